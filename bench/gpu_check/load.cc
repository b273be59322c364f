#include "gpu_check/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace zeus::check {
namespace {

using std::chrono::milliseconds;

Error failed(std::string detail) { return {Errc::lost, 0, std::move(detail)}; }

[[noreturn]] void become(const std::string& command, int in, int out, pid_t parent) {
  // It goes when this process goes, however that ends.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent || ::dup2(in, 0) < 0 || ::dup2(out, 1) < 0) ::_exit(127);
  ::signal(SIGPIPE, SIG_DFL);
  const std::string script = "exec " + command;
  ::execl("/bin/sh", "sh", "-c", script.c_str(), static_cast<char*>(nullptr));
  ::_exit(127);
}

}  // namespace

Result<Load> Load::start(const std::string& command, Instant deadline) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return failed("cannot make a pipe for the load");
  if (::pipe2(out, O_CLOEXEC) != 0) {
    ::close(in[0]);
    ::close(in[1]);
    return failed("cannot make a pipe for the load");
  }
  ::signal(SIGPIPE, SIG_IGN);  // A load that died is found where its answer is missing.
  const pid_t parent = ::getpid();
  Load load;
  load.pid_ = ::fork();
  if (load.pid_ == 0) become(command, in[0], out[1], parent);
  ::close(in[0]);
  ::close(out[1]);
  load.in_ = in[1];
  load.out_ = out[0];
  if (load.pid_ < 0) {
    return failed("cannot start the load: " + std::generic_category().message(errno));
  }
  if (const Status s = load.expect("ready", deadline); !s) return s.error();
  return load;
}

Load::Load(Load&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      in_(std::exchange(other.in_, -1)),
      out_(std::exchange(other.out_, -1)),
      heard_(std::move(other.heard_)) {}

Load::~Load() {
  if (in_ >= 0) ::close(in_);
  for (int i = 0; pid_ > 0 && i < 100; ++i) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = -1;
    if (pid_ > 0) std::this_thread::sleep_for(milliseconds(20));
  }
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (out_ >= 0) ::close(out_);
}

Status Load::send(const std::string& line) {
  if (::write(in_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return failed("cannot tell the load \"" + line.substr(0, line.size() - 1) +
                  "\": it has ended; run it by hand to see why");
  }
  return ok();
}

Status Load::busy(double s) { return send(fmt::format("busy {:.3f}\n", s)); }

Status Load::square(double period_s, double duty, Instant begin, double s) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(begin.time_since_epoch());
  return send(fmt::format("square {:.9f} {:.6f} {} {:.3f}\n", period_s, duty, ns.count(), s));
}

Status Load::expect(const std::string& word, Instant deadline) {
  for (;;) {
    if (const auto end = heard_.find('\n'); end != std::string::npos) {
      const std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      if (line == word) return ok();
      return failed("the load says \"" + line + "\" where it should say \"" + word + "\"");
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd fd{out_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&fd, 1, static_cast<int>(left.count())) == 0) {
      return failed("the load does not say \"" + word + "\" in time; run it by hand to see why");
    }
    char buffer[256];
    const ssize_t n = ::read(out_, buffer, sizeof buffer);
    if (n > 0) {
      heard_.append(buffer, static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      return failed("the load ended before it said \"" + word + "\"; its reason stands above");
    }
  }
}

}  // namespace zeus::check
