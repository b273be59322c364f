#pragma once

// What a device's own readings say of its sensors, where something else says what it drew: a meter,
// or the load that was put on it. Specification of accuracy, B1 to B3. Pure: no clock, no device.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measure/comb.h"
#include "zeus/device.h"
#include "zeus/export.h"

namespace zeus {

/// A quantity in steps: each value holds until the next point. Means over any stretch are exact.
class ZEUS_API StepTrace {
 public:
  struct Point {
    double t_s, value;
  };
  StepTrace() = default;
  /// Points that are not later than the one before are left out.
  explicit StepTrace(std::span<const Point> points);

  bool empty() const noexcept { return points_.empty(); }
  double begin_s() const noexcept { return points_.front().t_s; }
  double end_s() const noexcept { return points_.back().t_s; }
  std::span<const Point> points() const noexcept { return points_; }

  /// Outside of the points the first and the last value hold.
  double mean(double from_s, double to_s) const noexcept;
  /// The last point at or before `t_s`, else the first.
  std::size_t place(double t_s) const noexcept;

 private:
  double integral(double t_s) const noexcept;
  std::vector<Point> points_;
  std::vector<double> sums_;  // Integral from the first point to each.
};

/// What a first-order sensor of unity gain shows of a trace, which must outlive it.
class ZEUS_API FirstOrder {
 public:
  FirstOrder(const StepTrace& p, double tau_s);
  double at(double t_s) const noexcept;

 private:
  double after(std::size_t i, double t_s) const noexcept;
  const StepTrace& p_;
  double tau_s_;
  std::vector<double> shown_;  // At each point.
};

/// A new value of a sensor and when it was published. Of a counter the mean power since the
/// publication before; only those are told that follow each other by one update.
struct Publication {
  double t_s = 0;    ///< After the origin.
  double t_u_s = 0;  ///< Its standard uncertainty, by the two polls that it lies between.
  double power_w = 0;
};

/// The publications behind polls of a sensor whose comb is known. Each is put on the comb of its
/// neighbours where that lies in its bracket.
ZEUS_API std::vector<Publication> publications(const SensorInfo& sensor,
                                               std::span<const Sample> polls, const Comb& comb,
                                               Instant origin);

/// How a sensor smooths, from publications v_k at t_k and what the device did, p(t):
///   v_k = a + b * mean of p over [t_k - D - W, t_k - D],
/// by least squares of a and b for each W and D, whose best pair is searched on a grid that is
/// refined. Where W is longer than an update, the same with a first-order response of time constant
/// tau in place of the mean, and the better of the two is told. `b` is no gain: tick times that are
/// not exact lower it.
struct ShapeFit {
  SensorKind kind = SensorKind::unknown;  ///< boxcar, running or exponential.
  double window_s = 0;                    ///< W, or tau.
  double window_u_s = 0;  ///< From the curvature of the squares, and from the ticks'.
  double delay_s = 0;     ///< D; contains what the two clocks differ by.
  double r2 = 0;          ///< Share of the variance that the fit explains.
  std::size_t ticks = 0;
};
/// Nothing with fewer than 30 publications inside `stimulus`, where it explains less than 90 % of
/// their variance, or where any W does as well.
ZEUS_API std::optional<ShapeFit> fit_shape(std::span<const Publication> ticks,
                                           const StepTrace& stimulus, double update_s);

/// reading = gain x power + offset, from the steady levels of a meter.
struct GainFit {
  double gain = 1, gain_u = 0;  ///< gain_u is relative, and contains the meter's.
  double offset_w = 0, offset_u_w = 0;
  double low_w = 0, high_w = 0;  ///< The range of power it is known for.
  std::size_t stretches = 0;     ///< Of 0.5 s, steady.
};

/// The readings of a sensor over time: of a counter the power between its publications.
ZEUS_API StepTrace readings(const SensorInfo& sensor, std::span<const Sample> polls,
                            Instant origin);

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
  std::optional<double> coverage;    ///< Of a counter: W over its update, 1 where that fits.
  std::vector<std::string> missing;  ///< What could not be told, and why: sentences.
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

/// A meter's log: a column t_s or t_ms and a column power_w. Times become seconds after
/// `origin_unix_s`; those of the log count from `start_unix_s`, 0 where they are unix times.
/// The error names `name`, the line, and what is wrong.
ZEUS_API Result<StepTrace> parse_meter(std::string_view csv, std::string_view name,
                                       double start_unix_s, double origin_unix_s);

/// The row of calibrations.csv for what was found of a sensor.
ZEUS_API std::string calibration_row(const DeviceInfo& device, const SensorInfo& sensor,
                                     const Calibration& found, std::string_view source);

/// The text of calibrations.csv with `rows` in place of those of the same device, driver and field;
/// with `forget`, without all rows of that device. Errc::invalid where `text` is another table.
ZEUS_API Result<std::string> with_calibrations(std::string_view text,
                                               std::span<const std::string> rows,
                                               std::span<const std::string> forget = {});

}  // namespace zeus
