#include "load.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <system_error>

namespace zeus::cli {

Result<Load> Load::start(const std::string& command, const Signals& signals) {
  // exec: so that the command itself, and not a shell before it, dies with this process.
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) {
    return Error{Errc::busy, errno,
                 "cannot start the load: " + std::generic_category().message(errno)};
  }
  if (pid == 0) {
    (void)::setpgid(0, 0);
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) _exit(1);
    signals.restore();
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  (void)::setpgid(pid, pid);  // Whoever of the two comes first.
  Load load(pid);
  load.hold();
  return load;
}

Load::~Load() {
  if (pid_ <= 0) return;
  (void)::kill(-pid_, SIGKILL);
  (void)::waitpid(pid_, nullptr, 0);
}

void Load::hold() const noexcept { (void)::kill(-pid_, SIGSTOP); }
void Load::go() const noexcept { (void)::kill(-pid_, SIGCONT); }

bool Load::ended() noexcept {
  if (pid_ <= 0 || ::waitpid(pid_, nullptr, WNOHANG) != pid_) return pid_ <= 0;
  (void)::kill(-pid_, SIGKILL);  // What it left in its group.
  pid_ = -1;
  return true;
}

}  // namespace zeus::cli
