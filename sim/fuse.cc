#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/files.h"
#include "sim/powercap.h"

#ifdef ZEUS_SIM_FUSE
#define FUSE_USE_VERSION 35
#include <fuse.h>
#include <fuse_lowlevel.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#endif

namespace zeus::sim {

namespace fs = std::filesystem;

void unmount(const fs::path& folder) {
  struct stat inside {
  }, outside{};
  const bool dead = ::stat(folder.c_str(), &inside) != 0 && errno != ENOENT;  // ENOTCONN
  if (!dead && (::stat(folder.parent_path().c_str(), &outside) != 0 ||
                inside.st_dev == outside.st_dev || inside.st_ino == 0)) {
    return;
  }
  if (::umount2(folder.c_str(), MNT_DETACH) == 0 || ::geteuid() == 0) return;
  const char* const arguments[] = {"fusermount3", "-u", "-z", "-q", folder.c_str(), nullptr};
  pid_t pid = 0;
  if (::posix_spawnp(&pid, arguments[0], nullptr, nullptr, const_cast<char* const*>(arguments),
                     ::environ) == 0) {
    ::waitpid(pid, nullptr, 0);
  }
}

#ifndef ZEUS_SIM_FUSE

Result<std::unique_ptr<FileServer>> serve_fuse(const Machine&, const fs::path&) {
  return Error{Errc::absent, 0, "this build has no FUSE"};
}

#else

namespace {

// Descriptors of /dev/fuse that a forked child must not keep: with them open, a file system whose
// server was killed would let its readers wait for ever.
constexpr int kMounts = 64;
std::atomic<int> channels[kMounts];  // descriptor + 1; 0: free

void remember(int fd) {
  static const bool once = [] {
    return ::pthread_atfork(nullptr, nullptr, [] {
             for (auto& c : channels) {
               if (const int held = c.exchange(0); held != 0) ::close(held - 1);
             }
           }) == 0;
  }();
  static_cast<void>(once);
  for (auto& c : channels) {
    int free = 0;
    if (c.compare_exchange_strong(free, fd + 1)) return;
  }
}

void forget(int fd) {
  for (auto& c : channels) {
    int held = fd + 1;
    if (c.compare_exchange_strong(held, 0)) return;
  }
}

class FuseFiles final : public FileServer {
 public:
  FuseFiles(const Machine& machine, fs::path folder)
      : machine_(machine), folder_(std::move(folder)) {
    for (Entry& e : powercap_tree(machine.scenario())) entries_.emplace("/" + e.path, std::move(e));
  }

  Status mount() {
    const fuse_operations operations = make_operations();
    std::string options = "fsname=zeus-sim,default_permissions";
    if (::geteuid() == 0) options += ",allow_other";
    std::string program = "zeus-sim", dash_o = "-o";
    char* arguments[] = {program.data(), dash_o.data(), options.data(), nullptr};
    fuse_args args = FUSE_ARGS_INIT(3, arguments);
    fuse_ = ::fuse_new(&args, &operations, sizeof operations, this);
    ::fuse_opt_free_args(&args);
    if (fuse_ == nullptr) return Error{Errc::unsupported, 0, "libfuse does not start"};
    if (::fuse_mount(fuse_, folder_.c_str()) != 0) {
      const Error e = file_error("mount on", folder_, errno);
      ::fuse_destroy(fuse_);
      fuse_ = nullptr;
      return e;
    }
    fd_ = ::fuse_session_fd(::fuse_get_session(fuse_));
    ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
    remember(fd_);
    ::fcntl(fd_, F_SETFL, O_NONBLOCK);
    stop_ = Fd(::eventfd(0, EFD_CLOEXEC));
    for (std::thread& t : threads_) t = std::thread([this] { serve(); });
    return ok();
  }

  ~FuseFiles() override {
    if (fuse_ == nullptr) return;
    const std::uint64_t one = 1;
    static_cast<void>(!::write(stop_.get(), &one, sizeof one));
    for (std::thread& t : threads_) t.join();
    forget(fd_);
    ::fuse_unmount(fuse_);
    ::fuse_destroy(fuse_);
  }

 private:
  // As the kernel does it: the text is made when a reader begins at 0, and what follows is of one
  // piece with it.
  struct OpenFile {
    const Entry& entry;
    std::mutex mutex;
    std::string text;
  };

  // Our own loop, because libfuse's can only be woken by a request, which somebody must then
  // answer.
  void serve() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    fuse_session* const session = ::fuse_get_session(fuse_);
    fuse_buf buffer{};
    pollfd events[] = {{fd_, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (!::fuse_session_exited(session)) {
      if (::poll(events, 2, -1) < 0 && errno != EINTR) break;
      if ((events[1].revents & POLLIN) != 0) break;
      const int n = ::fuse_session_receive_buf(session, &buffer);
      if (n == -EINTR || n == -EAGAIN) continue;  // Another thread was faster.
      if (n <= 0) break;                          // Unmounted.
      ::fuse_session_process_buf(session, &buffer);
    }
    std::free(buffer.mem);
  }

  static FuseFiles& self() { return *static_cast<FuseFiles*>(::fuse_get_context()->private_data); }

  const Entry* find(const char* path) const {
    const auto it = entries_.find(path);
    return it == entries_.end() ? nullptr : &it->second;
  }

  static void* start(fuse_conn_info*, fuse_config* config) {
    config->attr_timeout = 0;
    config->entry_timeout = 0;
    config->negative_timeout = 0;
    return ::fuse_get_context()->private_data;
  }

  static int get_attributes(const char* path, struct stat* out, fuse_file_info*) {
    *out = {};
    out->st_uid = ::geteuid();
    out->st_gid = ::getegid();
    out->st_nlink = 1;
    const Entry* const e = self().find(path);
    if (e == nullptr && std::strcmp(path, "/") != 0) return -ENOENT;
    if (e == nullptr || e->kind == Entry::Kind::folder) {
      out->st_mode = S_IFDIR | 0755;
      out->st_nlink = 2;
    } else if (e->kind == Entry::Kind::link) {
      out->st_mode = S_IFLNK | 0777;
      out->st_size = static_cast<off_t>(e->text.size());
    } else {
      out->st_mode = S_IFREG | e->mode;
      out->st_size = 4096;  // As sysfs says of every file.
    }
    return 0;
  }

  static int read_link(const char* path, char* out, std::size_t size) {
    const Entry* const e = self().find(path);
    if (e == nullptr || e->kind != Entry::Kind::link) return -EINVAL;
    std::strncpy(out, e->text.c_str(), size - 1);
    out[size - 1] = '\0';
    return 0;
  }

  static int read_folder(const char* path, void* buffer, fuse_fill_dir_t fill, off_t,
                         fuse_file_info*, fuse_readdir_flags) {
    constexpr auto kPlain = static_cast<fuse_fill_dir_flags>(0);
    fill(buffer, ".", nullptr, 0, kPlain);
    fill(buffer, "..", nullptr, 0, kPlain);
    const std::string below = std::strcmp(path, "/") == 0 ? "/" : std::string(path) + "/";
    for (const auto& [name, entry] : self().entries_) {
      if (name.starts_with(below) && name.find('/', below.size()) == std::string::npos) {
        fill(buffer, name.c_str() + below.size(), nullptr, 0, kPlain);
      }
    }
    return 0;
  }

  static int open_file(const char* path, fuse_file_info* info) {
    const Entry* const e = self().find(path);
    if (e == nullptr) return -ENOENT;
    if ((info->flags & O_ACCMODE) != O_RDONLY) return -EACCES;
    if (const int error = self().machine_.refusal(e->zone, e->name().c_str()); error != 0) {
      return -error;
    }
    info->direct_io = 1;
    info->fh = reinterpret_cast<std::uint64_t>(new OpenFile{*e, {}, {}});
    return 0;
  }

  static int read_file(const char*, char* out, std::size_t size, off_t offset,
                       fuse_file_info* info) {
    auto& file = *reinterpret_cast<OpenFile*>(info->fh);
    const std::lock_guard lock(file.mutex);
    if (offset == 0) {
      Answer a = read_entry(self().machine_, file.entry);
      if (a.error != 0) return -a.error;
      file.text = std::move(a.text);
    }
    const auto from = static_cast<std::size_t>(offset);
    if (from >= file.text.size()) return 0;
    const std::size_t n = std::min(size, file.text.size() - from);
    std::memcpy(out, file.text.data() + from, n);
    return static_cast<int>(n);
  }

  static int close_file(const char*, fuse_file_info* info) {
    delete reinterpret_cast<OpenFile*>(info->fh);
    return 0;
  }

  static fuse_operations make_operations() {
    fuse_operations o{};
    o.init = start;
    o.getattr = get_attributes;
    o.readlink = read_link;
    o.readdir = read_folder;
    o.open = open_file;
    o.read = read_file;
    o.release = close_file;
    return o;
  }

  const Machine& machine_;
  fs::path folder_;
  std::map<std::string, Entry> entries_;
  fuse* fuse_ = nullptr;
  int fd_ = -1;
  Fd stop_;
  std::thread threads_[4];  // So that a read that blocks, blocks nobody else.
};

}  // namespace

Result<std::unique_ptr<FileServer>> serve_fuse(const Machine& machine, const fs::path& folder) {
  if (::access("/dev/fuse", R_OK | W_OK) != 0) return file_error("open", "/dev/fuse", errno);
  auto server = std::make_unique<FuseFiles>(machine, folder);
  if (Status mounted = server->mount(); !mounted) return mounted.error();
  return std::unique_ptr<FileServer>(std::move(server));
}

#endif

}  // namespace zeus::sim
