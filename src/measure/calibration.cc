#include "measure/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/numbers.h"
#include "measure/kind.h"
#include "solve/line.h"

namespace zeus {
namespace {

/// Stretches in which the meter is steady, and has been for a settling time.
class Steady {
 public:
  static constexpr double kStretch = 0.5;

  Steady(const StepTrace& readings, const StepTrace& meter) {
    double since = meter.begin_s(), low = kInfinity, high = -kInfinity;
    const double end = std::min(meter.end_s(), readings.end_s());
    double used = std::max(meter.begin_s(), readings.begin_s());
    for (double t = meter.begin_s(); t + kSlice <= end; t += kSlice) {
      const double w = meter.mean(t, t + kSlice);
      low = std::min(low, w);
      high = std::max(high, w);
      if (high - low > std::max(3.0, 0.04 * high)) {
        since = t + kSlice;  // The slice itself may hold the step.
        low = kInfinity;
        high = -kInfinity;
      }
      // A slice more ahead: the clocks of meter and sensor differ by less.
      const double from = std::max(used, since + kSettle), to = t - kSlice;
      if (to - from < kStretch) continue;
      pairs.emplace_back(meter.mean(from, from + kStretch), readings.mean(from, from + kStretch));
      used = from + kStretch;
    }
  }
  std::vector<std::pair<double, double>> pairs;  // Meter, sensor.

 private:
  static constexpr double kSlice = 0.1, kSettle = 1.5;
};

}  // namespace

Result<GainFit> fit_gain(const StepTrace& readings, const StepTrace& meter, double meter_u) {
  const auto no = [](const char* why) {
    return Error{Errc::unsupported, 0, std::string("cannot tell the gain: ") + why};
  };
  if (readings.empty() || meter.empty()) return no("there are no readings, or none of the meter");
  const auto pairs = Steady(readings, meter).pairs;
  if (pairs.empty()) {
    return no("the meter was never steady for two seconds; let the load hold its level");
  }
  GainFit fit{.low_w = kInfinity, .high_w = -kInfinity, .stretches = pairs.size()};
  solve::Line line;
  for (const auto& [power, shown] : pairs) {
    line.add(power, shown);
    fit.low_w = std::min(fit.low_w, power);
    fit.high_w = std::max(fit.high_w, power);
  }
  if (fit.low_w > 0.75 * fit.high_w || pairs.size() < 4) {
    return no("there was one steady level only; it takes two, one a quarter below the other");
  }
  fit.gain = line.slope();
  fit.offset_w = line.intercept();
  const auto [slope_u, intercept_u] = line.u();
  if (!(fit.gain > 0.01)) return no("the sensor does not follow the meter; is it this device's?");
  fit.gain_u = std::hypot(slope_u / fit.gain, meter_u);
  fit.offset_u_w = intercept_u;
  return fit;
}

Calibration calibrate(const SensorInfo& sensor, std::span<const Sample> polls,
                      const Stimulus& stimulus) {
  Calibration out;
  out.comb = infer_comb(polls);
  if (!out.comb.accepted) {
    out.missing.emplace_back(
        "its update period: the reading did not change often or regularly enough");
  }
  const std::vector<Publication> ticks = publications(sensor, polls, out.comb, stimulus.origin);
  std::vector<double> powers;
  for (const Publication& k : ticks) powers.push_back(k.power_w);
  out.quantum = static_cast<double>(quantum_of(polls)) * sensor.scale;
  if (out.comb.accepted) out.guess = guess_kind(powers).kind;
  const double update = out.comb.accepted ? out.comb.period_s : seconds(sensor.profile.update);
  const bool metered = !stimulus.meter.empty();
  const StepTrace did = metered ? with_steps_inside(stimulus.meter) : stimulus.load;
  if (did.empty()) {
    out.missing.emplace_back("its window and gain: that takes a load or a meter");
    return out;
  }
  out.shape = fit_shape(ticks, did, update);
  if (!out.shape) {
    out.missing.emplace_back("its window: the readings do not follow the " +
                             std::string(metered ? "meter" : "load") +
                             ", or any window would do; it takes power that switches");
  } else if (!metered) {
    // Power is not as square as a load: windows come out up to a fifth wrong (B3).
    out.shape->window_u_s =
        std::hypot(out.shape->window_u_s, 0.2 * out.shape->window_s / std::sqrt(3.0));
  }
  if (out.shape && sensor.quantity == Quantity::energy) {
    const double share = out.shape->window_s / update, u = out.shape->window_u_s / update;
    out.coverage = std::abs(share - 1) <= std::max(2 * u, 0.05) ? 1 : std::min(1.0, share);
  }
  if (metered) {
    auto gain =
        fit_gain(readings(sensor, polls, stimulus.origin), stimulus.meter, stimulus.meter_u);
    if (gain) {
      out.gain = *gain;
    } else {
      out.missing.push_back(gain.error().detail);
    }
  }
  return out;
}

}  // namespace zeus
