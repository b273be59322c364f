#pragma once

#include <cstddef>
#include <span>

#include "measure/comb.h"
#include "zeus/sensor.h"

namespace zeus {

/// Whether a load runs in step with a sensor's publications: R = |mean exp(2 pi i phase)| of the
/// marks against the comb, and the probability p = exp(-n R^2) of so great an R at random phases
/// (Rayleigh). Specification of accuracy, 5.4.
struct Rayleigh {
  double r = 0, p = 1;
  std::size_t n = 0;
};
/// Nothing known (r = 0, p = 1) without a mark or a period.
Rayleigh rayleigh(std::span<const Instant> marks, const Comb& comb) noexcept;

/// What the caller's marks say of a load: the median of the intervals, and how far the marks lie
/// from the regular grid that fits them best by least squares (root mean square).
struct Iterations {
  double period_s = 0, jitter_s = 0;
};
/// Zero with fewer than three marks, or where the median is not positive. Of more than 1024
/// intervals the median is that of 1024 evenly spread ones.
Iterations iterations(std::span<const Instant> marks) noexcept;

// Sensors that look at the mean of the last W (`window_s`) of every T_u (`update_s`).

/// Standard uncertainty in joules of N T_u-weighted readings over `length_s` for a load of period
/// `load_s` that swings by `swing_w` = dP between two levels. Specification of accuracy, 5.4:
///   u^2 = sum_m [dP sqrt(2)/(m pi) |sinc(m W/T_load)| g(f_m L) L]^2 + (k delta)^2 (T_u - W) L,
/// over the harmonics m/T_load >= 1/(2 T_u), m <= max(32, 2 T_load/T_u), which appear at f_m, their
/// distance from the nearest multiple of 1/T_u. g(x) = hypot(sinc x, 0.15 min(1, 1/(pi x))): nulls
/// are fragile, so that 15 % of the envelope are kept. k = min(1, 4 `mark_jitter_s`/T_u), and
/// `delta_w` as of u_random. Of very slow loads only the first 4096 of those harmonics count.
double u_alias(double update_s, double window_s, double length_s, double load_s, double swing_w,
               double mark_jitter_s, double delta_w) noexcept;

/// Period in seconds of the slowest beat of a harmonic that is seen with 5 % of the swing or more.
/// Infinity: locked. 0: none.
double slowest_beat(double update_s, double window_s, double load_s) noexcept;

/// Standard uncertainty in joules for an irregular load: delta sqrt((T_u - W) T_u) sqrt(L / T_u),
/// with delta^2 half the mean square of successive differences of the readings, in watts.
double u_random(double update_s, double window_s, double length_s, double delta_w) noexcept;

}  // namespace zeus
