#include "base/trusted_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

namespace zeus {

namespace fs = std::filesystem;

/// Goes from the root to a file, one name at a time, through links as the kernel would.
class TrustWalk {
 public:
  explicit TrustWalk(const fs::path& path) : target_(path), at_(path.root_path()) { push(path); }

  Result<TrustedFile> run(TrustedFile::Use use) {
    folder_ = Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (folder_.get() < 0) return cannot(at_, errno);
    if (auto s = judge(folder_, at_); !s) return s.error();
    while (!names_.empty()) {
      const std::string name = std::move(names_.front());
      names_.pop_front();
      const fs::path here = name == ".." ? at_.parent_path() : at_ / name;
      Fd next(::openat(folder_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
      if (next.get() < 0) return cannot(here, errno);
      if (auto s = judge(next, here); !s) return s.error();
      if (S_ISLNK(stat_.st_mode)) {
        if (auto s = follow(next, here); !s) return s.error();
      } else if (names_.empty()) {
        return finish(name, here, std::move(next), use);
      } else {
        folder_ = std::move(next);
        at_ = here;
      }
    }
    return Error{Errc::invalid, 0, cannot_open() + "it is a folder"};
  }

 private:
  /// Puts the names of `path` before those that are still to go.
  void push(const fs::path& path) {
    std::vector<std::string> names;
    for (const fs::path& name : path.relative_path()) {
      if (!name.empty() && name != ".") names.push_back(name.string());
    }
    names_.insert(names_.begin(), names.begin(), names.end());
  }

  Status follow(const Fd& link, const fs::path& here) {
    constexpr int kMostLinks = 40;  // As in the kernel.
    if (++links_ > kMostLinks) return cannot(here, ELOOP);
    char target[PATH_MAX];
    const ssize_t n = ::readlinkat(link.get(), "", target, sizeof target);
    if (n < 0) return cannot(here, errno);
    const fs::path to(std::string(target, static_cast<std::size_t>(n)));
    if (to.is_absolute()) {
      folder_ = Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
      if (folder_.get() < 0) return cannot("/", errno);
      at_ = "/";
    }
    push(to);
    return ok();
  }

  Result<TrustedFile> finish(const std::string& name, const fs::path& here, Fd fd,
                             TrustedFile::Use use) {
    const bool runs = use == TrustedFile::Use::run;
    if (!S_ISREG(stat_.st_mode)) {
      return Error{Errc::invalid, 0, cannot_open() + "it is no regular file"};
    }
    if (!runs) {
      fd = Fd(::openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY));
      if (fd.get() < 0) return cannot(here, errno);
      if (auto s = judge(fd, here); !s) return s.error();
    } else if ((stat_.st_mode & 0111U) == 0) {
      return Error{Errc::invalid, 0,
                   cannot_open() + "it is not executable; chmod +x " + here.string()};
    }
    TrustedFile file;
    file.path_ = target_;
    file.fd_ = std::move(fd);
    file.mode_ = stat_.st_mode & 07777U;
    std::sort(group_.begin(), group_.end());
    group_.erase(std::unique(group_.begin(), group_.end()), group_.end());
    file.group_ = std::move(group_);
    return file;
  }

  Status judge(const Fd& fd, const fs::path& here) {
    if (::fstat(fd.get(), &stat_) != 0) return cannot(here, errno);
    if (stat_.st_uid != 0 && stat_.st_uid != ::geteuid()) {
      return Error{Errc::denied, 0,
                   cannot_open() + here.string() + " belongs to user " +
                       std::to_string(stat_.st_uid) + "; chown it to root"};
    }
    const unsigned mode = stat_.st_mode;
    const bool held = S_ISLNK(mode) || (S_ISDIR(mode) && (mode & S_ISVTX) != 0);
    if (held) return ok();
    if ((mode & S_IWOTH) != 0) {
      return Error{
          Errc::denied, 0,
          cannot_open() + "everybody may write " + here.string() + "; chmod o-w " + here.string()};
    }
    if ((mode & S_IWGRP) != 0 && stat_.st_gid != 0) group_.push_back(here);
    return ok();
  }

  std::string cannot_open() const { return "cannot trust " + target_.string() + ": "; }
  static Error cannot(const fs::path& here, int error) { return file_error("open", here, error); }

  fs::path target_, at_;
  std::deque<std::string> names_;
  Fd folder_;
  struct stat stat_ {};
  int links_ = 0;
  std::vector<fs::path> group_;
};

Result<TrustedFile> TrustedFile::open(const fs::path& path, Use use) {
  std::error_code ec;
  const fs::path whole = fs::absolute(path, ec);
  if (ec) return file_error("open", path, ec.value());
  return TrustWalk(whole).run(use);
}

Result<std::string> TrustedFile::read(std::size_t most) const { return read_all(fd_, path_, most); }

Result<std::string> read_all(const Fd& fd, const fs::path& path, std::size_t most) {
  std::string text(most + 1, '\0');
  std::size_t had = 0;
  while (had < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + had, text.size() - had);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("read", path, errno);
    if (n == 0) break;
    had += static_cast<std::size_t>(n);
  }
  if (had > most) {
    return Error{
        Errc::invalid, 0,
        "cannot read " + path.string() + ": it is longer than " + std::to_string(most) + " bytes"};
  }
  text.resize(had);
  return text;
}

}  // namespace zeus
