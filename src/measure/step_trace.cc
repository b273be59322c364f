#include "measure/step_trace.h"

#include <algorithm>
#include <cmath>

namespace zeus {

StepTrace::StepTrace(std::span<const Point> points) {
  for (const Point& p : points) {
    if (!points_.empty() && p.t_s <= points_.back().t_s) continue;
    sums_.push_back(
        points_.empty() ? 0 : sums_.back() + points_.back().value * (p.t_s - points_.back().t_s));
    points_.push_back(p);
  }
}

std::size_t StepTrace::place(double t_s) const noexcept {
  const auto after = std::upper_bound(points_.begin(), points_.end(), t_s,
                                      [](double t, const Point& p) { return t < p.t_s; });
  return after == points_.begin() ? 0 : static_cast<std::size_t>(after - points_.begin()) - 1;
}

double StepTrace::integral(double t_s) const noexcept {
  const std::size_t i = place(t_s);
  return sums_[i] + points_[i].value * (t_s - points_[i].t_s);
}

double StepTrace::mean(double from_s, double to_s) const noexcept {
  if (to_s <= from_s) return points_[place(to_s)].value;
  return (integral(to_s) - integral(from_s)) / (to_s - from_s);
}

StepTrace with_steps_inside(const StepTrace& means) {
  const auto p = means.points();
  std::vector<StepTrace::Point> out;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (i == 0 || i + 2 >= p.size()) {  // The last point ends the last interval.
      out.push_back(p[i]);
      continue;
    }
    const double before = p[i - 1].value, after = p[i + 1].value;
    const double share =
        (p[i].value - after) / (before - after);  // Of the interval, before the step.
    if (!(share > 0 && share < 1)) {
      out.push_back(p[i]);
      continue;
    }
    out.push_back({p[i].t_s, before});
    out.push_back({p[i].t_s + share * (p[i + 1].t_s - p[i].t_s), after});
  }
  return StepTrace(out);
}

FirstOrder::FirstOrder(const StepTrace& p, double tau_s) : p_(p), tau_s_(tau_s) {
  for (const StepTrace::Point& point : p.points()) {
    shown_.push_back(shown_.empty() ? point.value : after(shown_.size() - 1, point.t_s));
  }
}

double FirstOrder::after(std::size_t i, double t_s) const noexcept {
  const StepTrace::Point& point = p_.points()[i];
  return point.value +
         (shown_[i] - point.value) * std::exp(-std::max(0.0, t_s - point.t_s) / tau_s_);
}

double FirstOrder::at(double t_s) const noexcept { return after(p_.place(t_s), t_s); }

}  // namespace zeus
