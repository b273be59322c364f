#pragma once

// Recorded runs of real GPU sensors beside an external meter on the same clock.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "support/data.h"
#include "support/observe.h"
#include "zeus/measurement.h"

namespace zeus::test {

/// One run: the meter's energy, and what the sensor showed.
class Trace {
 public:
  explicit Trace(const std::filesystem::path& dir) {
    t_ = column(dir / "meter.csv", "t_ms");
    watts_ = column(dir / "meter.csv", "power_w");
    for (double& t : t_) t *= 1e-3;
    joules_.push_back(0);
    for (std::size_t i = 1; i < t_.size(); ++i) {
      joules_.push_back(joules_.back() + (watts_[i] + watts_[i - 1]) / 2 * (t_[i] - t_[i - 1]));
    }
    const auto times = column(dir / "sensor.csv", "t_ms");
    auto values = column(dir / "sensor.csv", "power_draw_instant_w");
    if (values.empty()) values = column(dir / "sensor.csv", "power_draw_w");
    for (std::size_t i = 0; i < times.size(); ++i) {
      const auto mw = static_cast<std::uint64_t>(std::llround(values[i] * 1e3));
      polls_.emplace_back(instant(times[i] * 1e-3), mw,
                          std::isnan(values[i]) ? Errc::absent : Errc::ok);
    }
    double last = std::numeric_limits<double>::quiet_NaN();
    std::size_t n = 0;
    for (const double t : column(dir / "marks.csv", "t_ms")) {
      if (t * 1e-3 != last && n++ % 2 == 0) marks_.push_back(t * 1e-3);  // Rising edges.
      last = t * 1e-3;
    }
  }

  double begin() const { return t_.front(); }
  double end() const { return t_.back(); }
  const std::vector<double>& marks() const { return marks_; }
  const std::vector<Sample>& polls() const { return polls_; }
  double lowest() const { return *std::min_element(watts_.begin(), watts_.end()); }
  double highest() const { return *std::max_element(watts_.begin(), watts_.end()); }

  double energy(double a, double b) const { return upto(b) - upto(a); }
  double mean(double a, double b) const { return energy(a, b) / (b - a); }

  /// The reading at an instant, in watts: the newest poll.
  double shown(double t) const {
    const auto it = std::upper_bound(polls_.begin(), polls_.end(), instant(t),
                                     [](Instant x, const Sample& s) { return x < s.at(); });
    return it == polls_.begin() ? std::nan("") : static_cast<double>(std::prev(it)->raw()) * 1e-3;
  }
  /// What tools do: polls held from one to the next.
  double naive(double a, double b) const {
    double sum = 0, t = a, watts = shown(a);
    for (const Sample& s : polls_) {
      const double at = std::chrono::duration<double>(s.at() - instant(0)).count();
      if (at <= a) continue;
      if (at >= b) break;
      sum += watts * (at - t);
      t = at;
      watts = static_cast<double>(s.raw()) * 1e-3;
    }
    return sum + watts * (b - t);
  }

 private:
  double upto(double t) const {
    const auto it = std::upper_bound(t_.begin(), t_.end(), t);
    const auto i = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(
        it - t_.begin() - 1, 0, static_cast<std::ptrdiff_t>(t_.size()) - 2));
    return joules_[i] + (joules_[i + 1] - joules_[i]) * (t - t_[i]) / (t_[i + 1] - t_[i]);
  }
  std::vector<double> t_, watts_, joules_, marks_;
  std::vector<Sample> polls_;
};

struct Line {
  double gain = 1, offset = 0;
};

/// Gain and offset from steady levels: where the meter's mean over a reading's window agrees with
/// that over twice as long.
inline Line steady_gain(const Trace& trace, double window) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (double t = trace.begin() + 1; t < trace.end() - 1; t += 0.05) {
    const double near = trace.mean(t - window - 0.15, t - 0.15);
    const double wide = trace.mean(t - 2 * window - 0.3, t + 0.15);
    if (std::abs(near - wide) > 0.01 * near + 1) continue;
    const double shown = trace.shown(t);
    n += 1;
    x += near;
    y += shown;
    xx += near * near;
    xy += near * shown;
  }
  const double gain = (n * xy - x * y) / (n * xx - x * x);
  return {gain, (y - gain * x) / n};
}

}  // namespace zeus::test
