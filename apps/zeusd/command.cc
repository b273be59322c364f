#include "command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace zeus::zeusd {
namespace {

using std::chrono::milliseconds;

constexpr auto kGrace = std::chrono::seconds(1);  // For outputs, once the program has ended.
constexpr auto kDeath = std::chrono::seconds(2);  // For SIGKILL to take effect.
constexpr auto kLookAtStop = std::chrono::milliseconds(50);

/// posix_spawn's two objects, set up for one program.
class Recipe {
 public:
  Recipe(int out, int err) {
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, out, 1);
    posix_spawn_file_actions_adddup2(&actions_, err, 2);
    posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addchdir_np(&actions_, "/");
    posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
  }
  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;
  ~Recipe() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  /// 0, or the errno of what failed in the parent or the child.
  int spawn(std::vector<std::string>& argv, pid_t& pid) const {
    std::vector<char*> words;
    for (std::string& word : argv) words.push_back(word.data());
    words.push_back(nullptr);
    char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char lang[] = "LANG=C";
    char* const environment[] = {path, lang, nullptr};
    return ::posix_spawn(&pid, words[0], &actions_, &attributes_, words.data(), environment);
  }

 private:
  posix_spawnattr_t attributes_{};
  posix_spawn_file_actions_t actions_{};
};

}  // namespace

int Command::spawn() {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return errno;
  streams_[0].fd = Fd(out[0]);
  const Fd out_end(out[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) return errno;
  streams_[1].fd = Fd(err[0]);
  const Fd err_end(err[1]);
  for (const Stream& s : streams_) ::fcntl(s.fd.get(), F_SETFL, O_NONBLOCK);
  pid_t pid = -1;
  if (const int error = Recipe(out[1], err[1]).spawn(argv_, pid); error != 0) return error;
  pid_ = pid;
  process_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (process_.get() >= 0) return 0;
  const int error = errno;
  kill_group();
  return error;
}

Command::End Command::run(std::chrono::seconds timeout, bool collect,
                          const std::atomic<bool>& stop) {
  const auto begin = Clock::now(), deadline = begin + timeout;
  if (const int error = spawn(); error != 0) {
    number_ = error;
    return End::not_spawned;
  }
  while (true) {
    const auto now = Clock::now();
    if (stop || now >= deadline) {
      kill_group();
      pump(now + kGrace, false);
      return stop ? End::stopped : End::timed_out;
    }
    if (pump(std::min(deadline, now + kLookAtStop), true)) break;
  }
  pump(Clock::now() + (collect ? kGrace : milliseconds(0)), false);
  return ended();
}

/// Reads the outputs until the end of the program (`for_end`) or of both of them, or until `until`,
/// but at least what is there. True if that end has come.
bool Command::pump(Clock::time_point until, bool for_end) {
  while (true) {
    const bool closed = streams_[0].output.closed && streams_[1].output.closed;
    if (closed && !for_end) return true;
    pollfd fds[] = {{for_end ? process_.get() : -1, POLLIN, 0},
                    {streams_[0].output.closed ? -1 : streams_[0].fd.get(), POLLIN, 0},
                    {streams_[1].output.closed ? -1 : streams_[1].fd.get(), POLLIN, 0}};
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    const int n = ::poll(fds, 3, static_cast<int>(std::max<milliseconds::rep>(left.count(), 0)));
    for (int i = 0; n > 0 && i < 2; ++i) {
      if (fds[i + 1].revents != 0) take(streams_[i]);
    }
    if (n > 0 && fds[0].revents != 0) return true;
    if (n == 0 || Clock::now() >= until) return false;
  }
}

void Command::take(Stream& stream) {
  Output& output = stream.output;
  char buffer[Command::kMostOutput];
  const ssize_t n = ::read(stream.fd.get(), buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    output.closed = true;
    return;
  }
  const auto got = static_cast<std::size_t>(n);
  const std::size_t room = kMostOutput - output.text.size();
  output.text.append(buffer, std::min(got, room));
  output.cut |= got > room;
}

/// What became of it, without taking it off the table of processes: as long as it stands there, its
/// number, which is that of its session, is nobody else's.
Command::End Command::ended() noexcept {
  siginfo_t info{};
  (void)::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG);
  number_ = info.si_status;
  return info.si_code == CLD_EXITED ? End::exited : End::signalled;
}

void Command::kill_group() const noexcept {
  if (pid_ > 0) (void)::kill(-pid_, SIGKILL);
}

Command::~Command() {
  if (pid_ <= 0) return;
  // A call into a driver that hangs, or a program of another user, outlives SIGKILL.
  pollfd process{process_.get(), POLLIN, 0};
  (void)::poll(&process, 1, static_cast<int>(milliseconds(kDeath).count()));
  (void)::waitpid(pid_, nullptr, WNOHANG);
}

}  // namespace zeus::zeusd
