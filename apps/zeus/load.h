#pragma once

#include <sys/types.h>

#include <string>

#include "child.h"

namespace zeus::cli {

/// A command that makes a device busy, in a process group of its own, held and let go by SIGSTOP
/// and SIGCONT. It ends with this process, however that ends.
class Load {
 public:
  /// Starts `command` by /bin/sh, held at once.
  static Result<Load> start(const std::string& command, const Signals& signals);
  Load(Load&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Load& operator=(Load&&) = delete;
  ~Load();

  void hold() const noexcept;
  void go() const noexcept;
  bool ended() noexcept;  ///< By itself: then nothing loads the device any more.

 private:
  explicit Load(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

}  // namespace zeus::cli
