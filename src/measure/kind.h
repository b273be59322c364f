#pragma once

#include <cstdint>
#include <span>

#include "zeus/measurement.h"

namespace zeus {

// What the readings of a sensor tell of it without any stimulus. Specification of accuracy,
// sections B2 and B4.

/// The step of a sensor's readings in raw units: the greatest common divisor of the differences of
/// successive readings. 0 with fewer than 50 distinct differences.
std::uint64_t quantum_of(std::span<const Sample> polls) noexcept;

/// Whether readings of consecutive publications, in watts, change faster than a mean over
/// `window_s` can: by more than `range_w` T_u / W. `range_w` is the greatest swing of the device's
/// power.
bool rules_out_running_mean(std::span<const double> ticks_w, double range_w, double update_s,
                            double window_s) noexcept;

struct KindGuess {
  SensorKind kind = SensorKind::unknown;  ///< `running`, `exponential` or unknown.
  double correlation = 0;  ///< Of successive differences of the readings, one publication apart.
  double tau_ticks = 0;    ///< Time constant in update periods, -1 / ln r; 0: not exponential.
};
/// Guesses how a sensor smooths from readings of consecutive publications. Differences that shrink
/// in a constant ratio r are a first-order response; others that go on as they began (correlation
/// above 0.5) are the ramps of a running mean. A load that itself changes slowly looks like one.
KindGuess guess_kind(std::span<const double> ticks) noexcept;

}  // namespace zeus
