#pragma once

#include <optional>

#include "measure/publications.h"
#include "measure/view.h"

namespace zeus::estimators {

/// What a load may have done while a sensor did not look at it (specification of accuracy, 5.4).
struct Hidden {
  double u_j = 0;        ///< Standard uncertainty, in joules.
  double swing_w = 0;    ///< Between the levels of the load, as far as is known.
  bool guessed = false;  ///< From the range of the device: there were too few readings.
  Flag flags = Flag::none;
  Estimate::Alias alias{};
};

/// The same for the window of `power`, whose publications `pub` tell how rough the load is.
/// `coverage` is the share of the time that is looked at; none: that of the power sensor itself.
Hidden hidden_load(const View& power, const Publications& pub,
                   std::optional<double> coverage = std::nullopt) noexcept;

}  // namespace zeus::estimators
