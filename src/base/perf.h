#pragma once

#include <cstdint>

#include "base/files.h"

namespace zeus {

/// One event of a processor as the kernel counts it for everybody (perf_event_open, Linux only),
/// from 0 when opened. It belongs to no task: a forked child that inherits it reads on.
class PerfCounter {
 public:
  /// `type`: of the PMU, as its sysfs folder says. Reads once, so that what opens is known to work.
  static Result<PerfCounter> open(std::uint32_t type, std::uint64_t config, int cpu);
  /// Errc::lost once the kernel no longer counts it.
  Errc read(std::uint64_t& value) const noexcept;

 private:
  explicit PerfCounter(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace zeus
