#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "base/files.h"

namespace zeus::zeusd {

/// A program run once, without a shell: nothing on its standard input, PATH and LANG in its
/// environment and no more, "/" as its folder, no file of ours open, no signal blocked or ignored,
/// in a session of its own. Starts no thread; any number may run at a time, on as many threads.
class Command {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostOutput = std::size_t{64} << 10;

  /// One output. The program is never held up: what is beyond kMostOutput is read and dropped.
  struct Output {
    std::string text;
    bool cut = false;     ///< There was more.
    bool closed = false;  ///< It was read to its end.
    bool whole() const { return closed && !cut; }
  };
  enum class End { exited, signalled, timed_out, stopped, not_spawned };

  explicit Command(std::vector<std::string> argv) : argv_(std::move(argv)) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();

  /// Starts it and waits for its end; at the end of `timeout`, or when `stop` becomes true, kills
  /// it with all its descendants that stayed in its session. Comes back at most some 3 s later,
  /// even if a process cannot be killed. A process left behind that holds an output is waited for 1
  /// s, and only if `collect` is set.
  End run(std::chrono::seconds timeout, bool collect, const std::atomic<bool>& stop);
  /// Kills what the program left behind in its session. Nothing once this object is gone.
  void kill_group() const noexcept;

  int number() const noexcept {
    return number_;
  }  ///< Exit status, signal, or errno of not_spawned.
  const Output& out() const noexcept { return streams_[0].output; }
  const Output& err() const noexcept { return streams_[1].output; }

 private:
  struct Stream {
    Fd fd;
    Output output;
  };
  int spawn();
  bool pump(Clock::time_point until, bool for_end);
  static void take(Stream& stream);
  End ended() noexcept;

  std::vector<std::string> argv_;
  pid_t pid_ = -1;
  int number_ = 0;
  Fd process_;
  Stream streams_[2];
};

}  // namespace zeus::zeusd
