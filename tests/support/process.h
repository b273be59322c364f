#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace zeus::test {

/// A program run as a user runs it: by its file, with its own environment, its output caught.
class Process {
 public:
  struct Options {
    std::map<std::string, std::string> environment{};  ///< On top of PATH and HOME.
    std::string folder{};                              ///< Where it runs; empty: here.
    std::chrono::seconds timeout{60};
  };
  struct Result {
    int status = -1;  ///< Exit status; -N where signal N killed it.
    std::string out, err;
    bool timed_out = false;
  };

  explicit Process(std::vector<std::string> argv) : Process(std::move(argv), Options{}) {}
  Process(std::vector<std::string> argv, Options options) : options_(std::move(options)) {
    int out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) ::abort();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err[1], 2);
    if (!options_.folder.empty()) {
      posix_spawn_file_actions_addchdir_np(&actions, options_.folder.c_str());
    }
    std::vector<std::string> variables = {"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent"};
    for (const auto& [name, value] : options_.environment) variables.push_back(name + '=' + value);
    if (::posix_spawn(&pid_, argv.front().c_str(), &actions, nullptr, pointers(argv).data(),
                      pointers(variables).data()) != 0) {
      pid_ = -1;
    }
    posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    ::close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) (void)wait();
  }

  void signal(int number) const { (void)::kill(pid_, number); }
  pid_t pid() const { return pid_; }

  /// Reads standard output until `text` has come; false when the time is up.
  bool sees(const std::string& text) { return reads(result_.out, text); }
  /// The same of standard error.
  bool says(const std::string& text) { return reads(result_.err, text); }
  /// What standard error has said, as far as it was read.
  const std::string& said() const { return result_.err; }

  /// Waits for the end; kills it when the time is up.
  Result wait() {
    const auto end = std::chrono::steady_clock::now() + options_.timeout;
    while (open_ > 0 && std::chrono::steady_clock::now() < end) read_some();
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() >= end) {
        result_.timed_out = true;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    pid_ = -1;
    ::close(out_);
    ::close(err_);
    result_.status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    return result_;
  }

 private:
  bool reads(const std::string& from, const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + options_.timeout;
    while (from.find(text) == std::string::npos) {
      if (std::chrono::steady_clock::now() > end || !read_some()) return false;
    }
    return true;
  }
  static std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> out;
    for (std::string& w : words) out.push_back(w.data());
    out.push_back(nullptr);
    return out;
  }
  bool read_some() {
    pollfd fds[] = {{out_done_ ? -1 : out_, POLLIN, 0}, {err_done_ ? -1 : err_, POLLIN, 0}};
    if (::poll(fds, 2, 50) <= 0) return true;
    if (fds[0].revents != 0) take(out_, result_.out, out_done_);
    if (fds[1].revents != 0) take(err_, result_.err, err_done_);
    return open_ > 0;
  }
  void take(int fd, std::string& to, bool& done) {
    char buffer[65536];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n > 0) {
      to.append(buffer, static_cast<std::size_t>(n));
    } else {
      done = true;
      --open_;
    }
  }

  Options options_;
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1, open_ = 2;
  bool out_done_ = false, err_done_ = false;
  Result result_;
};

}  // namespace zeus::test
