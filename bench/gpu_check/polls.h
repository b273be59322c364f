#pragma once

// What readings of one sensor, polled fast, say: pure functions.

#include <optional>
#include <span>
#include <vector>

#include "zeus/measurement.h"

namespace zeus::check {

struct Percentiles {
  std::size_t n = 0;
  double p50 = 0, p90 = 0, p99 = 0, max = 0;  ///< NaN where n is 0.
};
/// By the nearest rank: the least value that `p` of all do not exceed.
Percentiles percentiles(std::vector<double> values);

/// The changes of the reading, oldest first. A failed poll hides a change that it may have met.
std::vector<Tick> changes(std::span<const Sample> polls);

struct Mean {
  double watts = 0, u_w = 0;  ///< u_w: what the resolution makes of it.
};
/// The ticks that are known to a quarter of `period_s`: after the others updates cannot be counted.
std::vector<Tick> sharp(std::span<const Tick> ticks, double period_s);

/// Mean power by a counter that publishes every `update_s`, over whole updates, from the first
/// sharp change to the last one. Nothing for fewer than two of them or a counter that fell.
std::optional<Mean> mean_of_counter(std::span<const Sample> polls, double scale, double update_s);
/// Mean of the readings of a level, each as long as it was seen. Nothing for fewer than two.
std::optional<Mean> mean_of_level(std::span<const Sample> polls, double scale);

/// Circular mean of the ticks after `origin` modulo `period_s`, in periods: [0, 1). Nothing without
/// a tick, or where they do not agree (mean resultant length below 0.9).
std::optional<double> phase(std::span<const Tick> ticks, Instant origin, double period_s);

/// Share of the changes of `a` that may have come with one of `b`: their brackets overlap. 0 where
/// there is none.
double together(std::span<const Tick> a, std::span<const Tick> b);

}  // namespace zeus::check
