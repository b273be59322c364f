#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>

#include "readers.h"

namespace zeus::zeusd {

/// What is told of a processor to peers who could not read its counters themselves. Faster or finer
/// than this, they tell what it computes (CVE-2020-8694): of each processor there are at most ten
/// readings a second, and all routes, streams and peers are told the same ones, so that nobody
/// learns more by asking in several ways. Called from any thread.
class Guard {
 public:
  static constexpr std::chrono::milliseconds kPeriod{100};

  struct Told {
    Value package{}, dram{};
  };
  /// What must be told again at `now`; nothing where a new reading may be.
  std::optional<Told> kept(unsigned cpu, Instant now) const;
  /// Of a new reading: itself, where its time has come, or what must be told in its place.
  Told tell(unsigned cpu, const Told& reading, Instant now);

 private:
  struct Entry {
    Told told;
    Instant next{};
  };
  static bool due(const Entry& entry, Instant now);

  mutable std::mutex mutex_;
  std::map<unsigned, Entry> entries_;
};

}  // namespace zeus::zeusd
