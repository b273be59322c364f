#pragma once

#include <sys/types.h>

#include <string>

#include "zeus/result.h"
#include "zeus/sensor.h"

namespace zeus::check {

/// A program that makes the GPU busy as it is told: it says "ready" once it can, reads one line a
/// command from its standard input, says "ok" at the end of each, and ends with its input.
///
///     busy SECONDS
///     square PERIOD_S DUTY START_NS SECONDS     high for DUTY of each period from START_NS on,
///                                               an instant of CLOCK_MONOTONIC
///
/// Anything else that it says is its reason to fail.
class Load {
 public:
  /// Runs `command` by the shell, and waits for its "ready".
  static Result<Load> start(const std::string& command, Instant deadline);
  Load(Load&& other) noexcept;
  Load& operator=(Load&&) = delete;
  ~Load();  ///< Ends the program, killing it where it does not end by itself.

  Status busy(double s);
  Status square(double period_s, double duty, Instant begin, double s);
  /// Waits for the "ok" of the command that was given.
  Status finish(Instant deadline) { return expect("ok", deadline); }

 private:
  Load() = default;
  Status send(const std::string& line);
  Status expect(const std::string& word, Instant deadline);

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string heard_;
};

}  // namespace zeus::check
