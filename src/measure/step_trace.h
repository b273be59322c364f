#pragma once

#include <cstddef>
#include <span>
#include <vector>

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

/// What was averaged over each interval into `means`, if it is made of steps that are further apart
/// than two intervals: a mean between those beside it is a step inside its interval, at the place
/// that keeps the integral. Read as a level instead, it makes every step a ramp.
ZEUS_API StepTrace with_steps_inside(const StepTrace& means);

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

}  // namespace zeus
