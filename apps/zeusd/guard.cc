#include "guard.h"

#include <algorithm>

namespace zeus::zeusd {
namespace {

/// A reading may come so much too early, for timers that are late at times; the next then waits so
/// much longer.
constexpr std::chrono::milliseconds kEarly(5);

}  // namespace

bool Guard::due(const Entry& entry, Instant now) { return now >= entry.next - kEarly; }

std::optional<Guard::Told> Guard::kept(unsigned cpu, Instant now) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(cpu);
  if (it == entries_.end() || due(it->second, now)) return std::nullopt;
  return it->second.told;
}

Guard::Told Guard::tell(unsigned cpu, const Told& reading, Instant now) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[cpu];
  if (due(entry, now)) {
    entry.told = reading;
    entry.next = std::max(entry.next, now) + kPeriod;
  }
  return entry.told;
}

}  // namespace zeus::zeusd
