#include <fcntl.h>
#include <spawn.h>
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
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>
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

// ThreadSanitizer cannot start threads in the child of a threaded process.
#ifdef __SANITIZE_THREAD__
constexpr int kThreads = 1;
#else
constexpr int kThreads = 4;
#endif

class FuseTree {
 public:
  FuseTree(const Machine& machine, fs::path folder)
      : machine_(machine), folder_(std::move(folder)) {
    for (Entry& e : powercap_tree(machine.scenario())) entries_.emplace("/" + e.path, std::move(e));
  }
  ~FuseTree() {
    if (fuse_ == nullptr) return;
    ::fuse_unmount(fuse_);
    ::fuse_destroy(fuse_);
  }
  FuseTree(const FuseTree&) = delete;
  FuseTree& operator=(const FuseTree&) = delete;

  /// Answers 0 or an errno.
  int mount() {
    const fuse_operations operations = make_operations();
    std::string options = "fsname=zeus-sim,default_permissions";
    if (::geteuid() == 0) options += ",allow_other";
    std::string program = "zeus-sim", dash_o = "-o";
    char* arguments[] = {program.data(), dash_o.data(), options.data(), nullptr};
    fuse_args args = FUSE_ARGS_INIT(3, arguments);
    fuse_ = ::fuse_new(&args, &operations, sizeof operations, this);
    ::fuse_opt_free_args(&args);
    if (fuse_ == nullptr) return ENOSYS;
    if (::fuse_mount(fuse_, folder_.c_str()) != 0) {
      const int e = errno != 0 ? errno : EIO;
      ::fuse_destroy(fuse_);
      fuse_ = nullptr;
      return e;
    }
    ::fcntl(::fuse_session_fd(::fuse_get_session(fuse_)), F_SETFL, O_NONBLOCK);
    return 0;
  }

  /// Until nobody holds the other end of `life`, or somebody unmounts.
  void serve(int life) {
    std::vector<std::thread> others;  // So that a read that blocks, blocks nobody else.
    for (int i = 0; i < kThreads - 1; ++i) others.emplace_back([this, life] { loop(life); });
    loop(life);
    for (std::thread& t : others) t.join();
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
  void loop(int life) {
    fuse_session* const session = ::fuse_get_session(fuse_);
    fuse_buf buffer{};
    pollfd events[] = {{::fuse_session_fd(session), POLLIN, 0}, {life, POLLIN, 0}};
    while (!::fuse_session_exited(session)) {
      if (::poll(events, 2, -1) < 0 && errno != EINTR) break;
      if (events[1].revents != 0) break;
      const int n = ::fuse_session_receive_buf(session, &buffer);
      if (n == -EINTR || n == -EAGAIN) continue;  // Another thread was faster.
      if (n <= 0) break;                          // Unmounted.
      ::fuse_session_process_buf(session, &buffer);
    }
    std::free(buffer.mem);
  }

  static FuseTree& self() { return *static_cast<FuseTree*>(::fuse_get_context()->private_data); }

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
};

// In the server process: everything of the host but memory is let go of.
[[noreturn]] void serve_alone(const Machine& machine, const fs::path& folder, int life, int ready) {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ::prctl(PR_SET_NAME, "zeus-sim-files");
  const auto low = static_cast<unsigned>(std::min(life, ready)),
             high = static_cast<unsigned>(std::max(life, ready));
  const int null = ::open("/dev/null", O_RDWR);
  for (const int standard : {0, 1, 2}) ::dup2(null, standard);
  if (low > 3) ::close_range(3, low - 1, 0);
  if (high > low + 1) ::close_range(low + 1, high - 1, 0);
  ::close_range(high + 1, ~0U, 0);
  static_cast<void>(!::chdir("/"));
  {
    FuseTree tree(machine, folder);
    const int e = tree.mount();
    if (::write(ready, &e, sizeof e) == sizeof e && e == 0) tree.serve(life);
  }
  ::_exit(0);
}

// Ends of pipes that a forked child must not keep: the server lives as long as anybody holds one.
constexpr int kServers = 64;
std::atomic<int> lives[kServers];  // descriptor + 1; 0: free

void remember(int fd) {
  static const bool once = [] {
    return ::pthread_atfork(nullptr, nullptr, [] {
             for (auto& l : lives) {
               if (const int held = l.exchange(0); held != 0) ::close(held - 1);
             }
           }) == 0;
  }();
  static_cast<void>(once);
  for (auto& l : lives) {
    int free = 0;
    if (l.compare_exchange_strong(free, fd + 1)) return;
  }
}

void forget(int fd) {
  for (auto& l : lives) {
    int held = fd + 1;
    if (l.compare_exchange_strong(held, 0)) return;
  }
}

// The file system lives in a process of its own. Were it a thread of ours, a kill could catch
// another of our threads inside a read that nobody is left to answer, and not even SIGKILL ends
// that. The process belongs to init, so that the host's wait() never meets it; it ends, and
// unmounts, when our end of a pipe is closed, however we die.
class FuseProcess final : public FileServer {
 public:
  Status start(const Machine& machine, const fs::path& folder) {
    int life[2], ready[2];
    if (::pipe2(life, O_CLOEXEC) != 0) return file_error("serve", folder, errno);
    const Fd their_life(life[0]);
    Fd our_life(life[1]);
    if (::pipe2(ready, O_CLOEXEC) != 0) return file_error("serve", folder, errno);
    ready_ = Fd(ready[0]);
    Fd their_ready(ready[1]);
    const pid_t child = ::fork();
    if (child < 0) return file_error("serve", folder, errno);
    if (child == 0) {
      ::setsid();
      if (::fork() == 0) serve_alone(machine, folder, life[0], ready[1]);
      ::_exit(0);
    }
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    their_ready = Fd();
    int e = EIO;
    if (::read(ready_.get(), &e, sizeof e) != sizeof e) e = EIO;
    if (e != 0) return file_error("mount on", folder, e);
    life_ = std::move(our_life);
    remember(life_.get());
    return ok();
  }

  ~FuseProcess() override {
    if (life_.get() < 0) return;
    forget(life_.get());
    life_ = Fd();
    char end = 0;  // Comes when the server has unmounted and is gone.
    while (::read(ready_.get(), &end, 1) < 0 && errno == EINTR) {
    }
  }

 private:
  Fd life_, ready_;
};

}  // namespace

Result<std::unique_ptr<FileServer>> serve_fuse(const Machine& machine, const fs::path& folder) {
  if (::access("/dev/fuse", R_OK | W_OK) != 0) return file_error("open", "/dev/fuse", errno);
  auto server = std::make_unique<FuseProcess>();
  if (Status started = server->start(machine, folder); !started) return started.error();
  return std::unique_ptr<FileServer>(std::move(server));
}

#endif

}  // namespace zeus::sim
