#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/sensor.h"
#include "support/data.h"
#include "zeus/measurement.h"

namespace zeus::test {

/// The true power of a device that nobody else touches.
class FixedTruth final : public sim::Truth {
 public:
  explicit FixedTruth(sim::Steps steps) : steps_(std::move(steps)) {}
  sim::Piece piece(sim::Ns t) const noexcept override { return steps_.piece(t); }
  double joules(sim::Ns a, sim::Ns b) const noexcept override {
    return a <= b ? steps_.joules(a, b) : -steps_.joules(b, a);
  }

 private:
  sim::Steps steps_;
};

/// Power that switches between `low` and `high` watts at random, every `dwell_s` in the mean.
inline sim::Steps telegraph(double low, double high, double dwell_s, double length_s,
                            std::mt19937& random) {
  std::exponential_distribution<double> dwell(1 / dwell_s);
  std::vector<sim::Step> steps;
  bool up = false;
  for (double t = 0; t < length_s; up = !up) {
    const double s = dwell(random) + 1e-6;
    steps.push_back({static_cast<sim::Ns>(s * 1e9), up ? high : low});
    t += s;
  }
  return {std::move(steps), false, -sim::Ns{1'000'000'000}};
}

inline Sample sample(sim::Ns t, std::uint64_t raw, Errc error = Errc::ok) {
  return {Instant{} + std::chrono::hours(1) + Duration(t), raw, error};
}

/// What polls of a simulated sensor give, `poll_s` and the size of a normal deviate of `late_s`
/// apart, from 0 to `length_s`.
inline std::vector<Sample> polls(const sim::Truth& truth, const sim::PowerSensor& sensor,
                                 double poll_s, double late_s, double length_s,
                                 std::mt19937& random) {
  std::normal_distribution<double> late(0, 1);
  std::vector<Sample> samples;
  for (double s = 0; s < length_s; s += poll_s + std::abs(late(random)) * late_s) {
    const auto t = static_cast<sim::Ns>(s * 1e9);
    samples.push_back(sample(t, static_cast<std::uint64_t>(sensor.quanta(truth, t))));
  }
  return samples;
}

/// A recorded log of polls, in milliwatts. Empty without data.
inline std::vector<Sample> recorded(std::string_view trace, std::string_view watts) {
  const auto folder = data();
  if (!folder) return {};
  const auto file = *folder / "sensor-traces" / trace / "sensor.csv";
  const std::vector<double> t = column(file, "t_ms"), w = column(file, watts);
  std::vector<Sample> samples;
  for (std::size_t i = 0; i < std::min(t.size(), w.size()); ++i) {
    samples.push_back(sample(static_cast<sim::Ns>(std::llround(t[i] * 1e6)),
                             static_cast<std::uint64_t>(std::llround(w[i] * 1e3))));
  }
  return samples;
}

}  // namespace zeus::test
