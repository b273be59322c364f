#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/run.h"
#include "zeus/result.h"

namespace zeus::cli {

/// Holds back the signals that concern a command under measurement, so that they are read one by
/// one instead of ending this process. To be made before any thread.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  struct Signal {
    int number = 0;
    bool from_terminal = false;  ///< The kernel gave it to the whole foreground group.
  };
  /// The next signal, or nothing after `timeout`.
  std::optional<Signal> wait(std::chrono::nanoseconds timeout) const;

  /// For a child between fork and exec: everything as it was before.
  void restore() const noexcept;

 private:
  sigset_t held_{}, before_{};
  struct sigaction child_before_ {
  }, pipe_before_{};
};

/// Calls `tick` at the times of a grid until somebody asks to end, the time is up, or it is false.
/// A `duration` of 0 has no end.
void until_told(const Signals& signals, Duration duration, Duration interval,
                const std::function<bool()>& tick);

/// True for INT, TERM, HUP and QUIT: somebody wants this to end.
bool asks_to_end(int signal) noexcept;

/// A command that was started by fork and waits at a gate, so that a window can begin just before
/// it does. It stays in this process group, and keeps the standard streams.
class Child {
 public:
  /// `enter`, if given, runs in the child before the command; it answers a sentence if it failed.
  using Enter = std::function<std::optional<std::string>()>;
  static Result<Child> prepare(const std::vector<std::string>& command, const Signals& signals,
                               const Enter& enter = {});
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();  ///< A child still at the gate goes home.

  /// Opens the gate. The error says why the command could not be executed: `vendor` is the exit
  /// status a shell would give, 127 if there is no such command, 126 if it cannot be run.
  Status start();

  struct Ended {
    report::Exit exit;
    bool abandoned = false;  ///< It still runs: somebody asked twice to end.
    int asked = 0;           ///< The first signal that asked this process to end; 0: none did.
  };
  /// Waits for the end, forwards signals, stops and goes on with the child, and calls `tick` at
  /// least every `interval`.
  Ended wait(const Signals& signals, std::chrono::nanoseconds interval,
             const std::function<void()>& tick);

 private:
  Child() = default;
  void forward(const Signals::Signal& signal) const;
  bool reap(Ended& ended);
  pid_t pid_ = -1;
  int gate_ = -1, news_ = -1;
  std::string name_;
  bool stopped_ = false;
};

/// The exit status that a shell would give.
int status_of(const Child::Ended& ended) noexcept;

}  // namespace zeus::cli
