#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "base/numbers.h"
#include "zeus/measurement.h"

namespace zeus::estimators {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// One sensor's part of a record, as the estimators look at it.
struct View {
  View(const Measurement& measurement, std::size_t sensor)
      : m(measurement),
        info(measurement.subject->sensors[sensor]),
        series(measurement.series[sensor]),
        between(std::span(measurement.between).subspan(series.first, series.count)),
        polls(std::span(measurement.between)
                  .subspan(series.first - series.earlier,
                           series.earlier + series.count + series.later)) {}

  const Measurement& m;
  const SensorInfo& info;
  const Measurement::Series& series;
  std::span<const Sample> between;  ///< Taken within the window.
  std::span<const Sample> polls;    ///< With those just before it and just after.

  double update() const { return seconds(info.profile.update); }
  double length() const { return seconds(m.end - m.begin); }
  /// Seconds after the begin of the window.
  double place(Instant t) const { return seconds(t - m.begin); }
};

/// How far a sensor was read before the window began and after it ended, in seconds: others were
/// read in between. What it used then, at the power it had there, is no part of the window.
struct Margin {
  double before = 0, after = 0;

  explicit Margin(const View& v) {
    if (v.m.end <= v.m.begin) return;
    before = std::max(0.0, seconds(v.m.begin - v.series.begin.sample.at()));
    after = std::max(0.0, seconds(v.series.end.sample.at() - v.m.end));
  }
  double energy(double power_in, double power_out) const {
    return power_in * before + power_out * after;
  }
  /// That the power there was the same is an assumption: rectangular, from none to twice as much.
  double uncertainty(double power_in, double power_out) const {
    return std::hypot(power_in * before, power_out * after) / std::sqrt(3.0);
  }
};

/// An estimate without a number; the bound may still say something.
inline Estimate without(std::string_view method, Refusal why, Flag flag = Flag::none) {
  return {.value = kNan,
          .u_abs = kNan,
          .u_cmp = kNan,
          .low = 0,
          .high = kInfinity,
          .budget = {},
          .flags = Flag::missing | flag,
          .method = method,
          .refusal = why,
          .quality = Quality::refused,
          .quality_abs = Quality::refused,
          .coverage = kNan,
          .update_s = 0,
          .alias = {}};
}

/// The energy as counter or as power tells it, before it is corrected for gain and judged.
/// `beside` is the power of the domain of a counter whose coverage is unknown; it may be null.
Estimate from_counter(const View& view, const View* beside) noexcept;
Estimate from_power(const View& view) noexcept;

/// Corrects for gain and offset (specification of accuracy, 5.6), combines the uncertainties (5.10)
/// and sets what follows from the profile alone.
void finish(Estimate& e, const SensorInfo& info, double length) noexcept;
/// Combines the budget into u_cmp and u_abs.
void combine(Estimate& e) noexcept;
/// Grades an estimate, and refuses what should not be told (section 6). The value of a refused one
/// is NaN; its bound stays.
void grade(Estimate& e) noexcept;

}  // namespace zeus::estimators
