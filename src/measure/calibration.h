#pragma once

// What a device's own readings say of its sensors, where something else says what it drew: a meter,
// or the load that was put on it. Specification of accuracy, B1 to B3. Pure: no clock, no device.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "measure/comb.h"
#include "measure/shape_fit.h"
#include "zeus/export.h"
#include "zeus/result.h"

namespace zeus {

/// reading = gain x power + offset, from the steady levels of a meter.
struct GainFit {
  double gain = 1, gain_u = 0;  ///< gain_u is relative, and contains the meter's.
  double offset_w = 0, offset_u_w = 0;
  double low_w = 0, high_w = 0;  ///< The range of power it is known for.
  std::size_t stretches = 0;     ///< Of 0.5 s, steady.
};

/// Least squares over stretches of 0.5 s within steady levels: where the meter has not moved by
/// more than 4 % (or 3 W) for 1.5 s before, so that a mean over a second has settled. `meter_u` is
/// the relative standard uncertainty of the meter. Errc::unsupported says what was missing: levels
/// that differ by a quarter at least, each for two seconds and more.
ZEUS_API Result<GainFit> fit_gain(const StepTrace& readings, const StepTrace& meter,
                                  double meter_u);

/// What was found of one sensor.
struct Calibration {
  Comb comb;
  std::optional<ShapeFit> shape;
  std::optional<GainFit> gain;
  double quantum = 0;                      ///< Step of its readings in SI; 0: not known.
  SensorKind guess = SensorKind::unknown;  ///< By its readings alone: running, exponential.
  std::optional<double> coverage;          ///< Of a counter: W over its update, 1 where that fits.
  std::vector<std::string> missing;        ///< What could not be told, and why: sentences.
  bool empty() const noexcept { return !comb.accepted && !shape && !gain; }
};

/// What the device is known to have done while it was polled. Either may be empty. Times are
/// seconds after `origin`.
struct Stimulus {
  Instant origin{};
  StepTrace meter;  ///< Watts.
  StepTrace load;   ///< 1 where the load ran, 0 where it was held.
  double meter_u = 0.01;
};
ZEUS_API Calibration calibrate(const SensorInfo& sensor, std::span<const Sample> polls,
                               const Stimulus& stimulus);

}  // namespace zeus
