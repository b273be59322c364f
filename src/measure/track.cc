#include "measure/track.h"

#include <algorithm>

#include "base/numbers.h"
#include "measure/ticks.h"

namespace zeus {
namespace {

/// The most a counter can honestly gain in `dt`. One update may bring up to a period of energy that
/// was used before.
std::uint64_t most(const SensorInfo& info, double dt) {
  const double p = info.profile.power_max_w;
  const double ticks = p * (dt + seconds(info.profile.update)) / info.scale + 1;
  return p > 0 && ticks < 1e18 ? static_cast<std::uint64_t>(ticks) : ~std::uint64_t{0};
}

void count(Track& track, const SensorInfo& info, Sample next) {
  const Duration dt = next.at() - track.at;
  const Advance a = advance(track.raw, next.raw(), info.wrap, most(info, seconds(dt)));
  track.total += a.ticks;
  track.resets += a.reset ? 1 : 0;
  track.gaps += a.ambiguous ? 1 : 0;
  if (a.reset || a.ambiguous) track.unseen += dt;
}

void integrate(Track& track, Sample next, Duration longest) {
  const Duration dt = next.at() - track.at;
  // Nanoseconds would overflow within hours, microseconds last for years (2^64 mW us at 1 kW).
  const auto us =
      std::chrono::duration_cast<std::chrono::microseconds>(next.at().time_since_epoch()) -
      std::chrono::duration_cast<std::chrono::microseconds>(track.at.time_since_epoch());
  track.total += track.raw * static_cast<std::uint64_t>(us.count());
  const double change = static_cast<double>(next.raw()) - static_cast<double>(track.raw);
  track.rough += change * change;
  if (dt > longest) {
    ++track.gaps;
    track.unseen += dt;
  }
}

}  // namespace

void follow(Track& track, const SensorInfo& info, Sample next, Duration longest) noexcept {
  if (!next.ok()) {
    ++track.failures;
    return;
  }
  ++track.polls;
  if (info.quantity != Quantity::energy) {
    track.least = std::min(track.least, next.raw());
    track.greatest = std::max(track.greatest, next.raw());
  }
  if (track.valid()) {
    if (next.at() < track.at) return;  // Two readers of one sensor: the newer one has been taken.
    if (info.quantity == Quantity::energy) {
      count(track, info, next);
    } else {
      integrate(track, next, longest);
    }
  }
  track.at = next.at();
  track.raw = next.raw();
}

}  // namespace zeus
