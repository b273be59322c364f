#pragma once

#include <optional>
#include <span>

#include "measure/changes.h"
#include "measure/step_trace.h"
#include "zeus/export.h"

namespace zeus {

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

}  // namespace zeus
