#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "report/text.h"

namespace zeus::cli {
namespace fs = std::filesystem;

void complain(std::string_view sentence) {
  (void)write_all(STDERR_FILENO, fmt::format("zeus: {}\n", report::printable(sentence)));
}

int write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  return *this;
}

OutputFile::~OutputFile() {
  if (fd_ > 2) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Error OutputFile::failed(std::string_view what, int error) const {
  return {Errc::denied, error,
          fmt::format("cannot {} {}: {}; choose another file", what, path_,
                      std::generic_category().message(error))};
}

Result<OutputFile> OutputFile::open(const std::string& path) {
  OutputFile out;
  out.path_ = path;
  if (path == "-") {
    out.fd_ = STDOUT_FILENO;
    return out;
  }
  std::error_code none;
  const auto kind = fs::status(path, none).type();
  if (kind == fs::file_type::directory) return out.failed("write", EISDIR);
  if (kind != fs::file_type::regular && kind != fs::file_type::not_found) {
    out.fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (out.fd_ < 0) return out.failed("write", errno);
    return out;
  }
  // A link keeps pointing where it points.
  const fs::path place = fs::weakly_canonical(path, none);
  if (!none) out.path_ = place.string();
  if (kind == fs::file_type::regular && ::access(out.path_.c_str(), W_OK) != 0) {
    return out.failed("write", errno);
  }
  std::string name = out.path_ + ".XXXXXX";
  out.fd_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (out.fd_ < 0) return out.failed("write", errno);
  out.temporary_ = std::move(name);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  struct stat s {};
  const bool exists = ::stat(out.path_.c_str(), &s) == 0;
  (void)::fchmod(out.fd_, exists ? s.st_mode & 0777u : 0666u & ~mask);
  return out;
}

Result<OutputFile> OutputFile::stream(const std::string& path) {
  OutputFile out;
  out.path_ = path;
  out.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
  if (out.fd_ < 0) return out.failed("write", errno);
  return out;
}

Status OutputFile::write(std::string_view text) {
  if (const int e = write_all(fd_, text); e != 0) return failed("write", e);
  return ok();
}

Status OutputFile::commit() {
  if (temporary_.empty()) return ok();
  if (::fsync(fd_) != 0 && errno != EINVAL) return failed("write", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("write", errno);
  temporary_.clear();
  return ok();
}

}  // namespace zeus::cli
