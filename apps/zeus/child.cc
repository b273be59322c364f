#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "output.h"

namespace zeus::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kEnding = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kOthers = {SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGCHLD};

/// Two signals so close to each other are one request: timeout(1) sends its signal to the process
/// and then to its group.
constexpr auto kSameRequest = std::chrono::milliseconds(500);
/// At a terminal the child may take Ctrl-C as a command; only two in a row mean this process.
constexpr auto kInARow = std::chrono::seconds(5);

/// What the child reports when it could not become the command.
struct News {
  int error = 0;         // errno of exec.
  char sentence[500]{};  // Of `enter`.
};

[[noreturn]] void become(const std::vector<std::string>& command, const Signals& signals,
                         const Child::Enter& enter, int gate, int news) {
  char go = 0;
  if (::read(gate, &go, 1) != 1) _exit(0);  // Called off.
  News failed;
  if (enter) {
    if (const auto why = enter()) {
      why->copy(failed.sentence, sizeof failed.sentence - 1);
      failed.error = EIO;
      (void)write_all(news, {reinterpret_cast<const char*>(&failed), sizeof failed});
      _exit(126);
    }
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  signals.restore();
  ::execvp(argv[0], argv.data());
  failed.error = errno;
  (void)write_all(news, {reinterpret_cast<const char*>(&failed), sizeof failed});
  _exit(failed.error == ENOENT ? 127 : 126);
}

}  // namespace

bool asks_to_end(int signal) noexcept {
  return std::find(kEnding.begin(), kEnding.end(), signal) != kEnding.end();
}

Signals::Signals() {
  sigemptyset(&held_);
  const auto hold = [this](int signal) {
    // What was ignored when this process began (nohup) stays ignored, here and in the child.
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN || signal == SIGCHLD) sigaddset(&held_, signal);
  };
  for (const int s : kEnding) hold(s);
  for (const int s : kOthers) hold(s);
  pthread_sigmask(SIG_BLOCK, &held_, &before_);
  struct sigaction act {};
  act.sa_handler = SIG_DFL;  // With SIG_IGN a child's status would be lost.
  sigaction(SIGCHLD, &act, &child_before_);
  act.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &act, &pipe_before_);
}

Signals::~Signals() { restore(); }

void Signals::restore() const noexcept {
  sigaction(SIGCHLD, &child_before_, nullptr);
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<Signals::Signal> Signals::wait(std::chrono::nanoseconds timeout) const {
  const auto ns = std::max<std::chrono::nanoseconds::rep>(timeout.count(), 0);
  const timespec limit{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  siginfo_t info{};
  const int number = sigtimedwait(&held_, &info, &limit);
  if (number <= 0) return std::nullopt;
  return Signal{number, info.si_code == SI_KERNEL};
}

Result<Child> Child::prepare(const std::vector<std::string>& command, const Signals& signals,
                             const Enter& enter) {
  int gate[2] = {-1, -1}, news[2] = {-1, -1};
  if (::pipe2(gate, O_CLOEXEC) != 0 || ::pipe2(news, O_CLOEXEC) != 0) {
    return Error{Errc::busy, errno,
                 "cannot make a pipe: " + std::generic_category().message(errno)};
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(gate[1]);
    ::close(news[0]);
    become(command, signals, enter, gate[0], news[1]);
  }
  const int error = errno;
  ::close(gate[0]);
  ::close(news[1]);
  Child child;
  child.pid_ = pid;
  child.gate_ = gate[1];
  child.news_ = news[0];
  child.name_ = command.front();
  if (pid < 0) {
    return Error{Errc::busy, error,
                 "cannot start a process: " + std::generic_category().message(error)};
  }
  return child;
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      gate_(std::exchange(other.gate_, -1)),
      news_(std::exchange(other.news_, -1)),
      name_(std::move(other.name_)),
      stopped_(other.stopped_) {}

Child::~Child() {
  if (news_ >= 0) ::close(news_);
  if (gate_ < 0) return;
  ::close(gate_);
  if (pid_ > 0) (void)::waitpid(pid_, nullptr, 0);
}

Status Child::start() {
  (void)write_all(gate_, "x");
  ::close(std::exchange(gate_, -1));
  News failed;
  ssize_t n = 0;
  do {
    n = ::read(news_, &failed, sizeof failed);
  } while (n < 0 && errno == EINTR);
  if (n != sizeof failed) return ok();  // exec closed the pipe.
  (void)::waitpid(pid_, nullptr, 0);
  pid_ = -1;
  if (failed.sentence[0] != '\0') return Error{Errc::invalid, 126, failed.sentence};
  const bool absent = failed.error == ENOENT;
  return Error{absent ? Errc::absent : Errc::denied, absent ? 127 : 126,
               fmt::format("cannot run \"{}\": {}", name_,
                           absent ? "there is no such command in PATH"
                                  : std::generic_category().message(failed.error))};
}

void Child::forward(const Signals::Signal& signal) const {
  // What the terminal sent, the child has too, unless it went to a group of its own.
  if (signal.from_terminal && ::getpgid(pid_) == ::getpgrp()) return;
  if (signal.number == SIGCONT && !stopped_) return;
  (void)::kill(pid_, signal.number);
}

/// Takes in what became of the child; true once it has ended.
bool Child::reap(Ended& ended) {
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG | WUNTRACED | WCONTINUED) == pid_) {
    if (WIFCONTINUED(status)) {
      stopped_ = false;
    } else if (WIFSTOPPED(status)) {
      stopped_ = true;
      // The shell sees only this process: it must stop as well to be brought back by `fg`.
      if (WSTOPSIG(status) != SIGSTOP) (void)::raise(SIGSTOP);
    } else {
      if (WIFSIGNALED(status)) {
        ended.exit.signal = WTERMSIG(status);
      } else {
        ended.exit.code = WEXITSTATUS(status);
      }
      pid_ = -1;
      return true;
    }
  }
  return false;
}

Child::Ended Child::wait(const Signals& signals, std::chrono::nanoseconds interval,
                         const std::function<void()>& tick) {
  Ended ended;
  Clock::time_point next = Clock::now() + interval, asked_at{};
  while (!reap(ended)) {
    const auto signal = signals.wait(next - Clock::now());
    const auto now = Clock::now();
    if (now >= next) {
      if (tick) tick();
      next = std::max(next + interval, Clock::now());
    }
    if (!signal || signal->number == SIGCHLD) continue;
    if (reap(ended)) break;
    forward(*signal);
    if (!asks_to_end(signal->number)) continue;
    const auto since = now - asked_at;
    const bool again =
        ended.asked != 0 && since > kSameRequest && (!signal->from_terminal || since < kInARow);
    if (again) {
      ended.abandoned = true;
      ended.asked = signal->number;
      return ended;
    }
    if (ended.asked == 0 || since > kSameRequest) asked_at = now;
    ended.asked = signal->number;
  }
  return ended;
}

void until_told(const Signals& signals, Duration duration, Duration interval,
                const std::function<bool()>& tick) {
  const Instant begin = Clock::now();
  Instant next = begin + interval;
  while (true) {
    const Instant now = Clock::now();
    if (duration.count() > 0 && now - begin >= duration) return;
    if (now >= next) {
      if (!tick()) return;
      next += (1 + (now - next) / interval) * interval;
    }
    Duration rest = next - now;
    if (duration.count() > 0) rest = std::min<Duration>(rest, duration - (now - begin));
    const auto signal = signals.wait(rest);
    if (signal && asks_to_end(signal->number)) return;
    if (signal && signal->number == SIGTSTP) (void)::raise(SIGSTOP);
  }
}

int status_of(const Child::Ended& ended) noexcept {
  if (ended.abandoned) return 128 + ended.asked;
  if (ended.exit.signal) return 128 + *ended.exit.signal;
  return ended.exit.code.value_or(1);
}

}  // namespace zeus::cli
