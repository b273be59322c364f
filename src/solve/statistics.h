#pragma once

#include <cstddef>
#include <span>

namespace zeus::solve {

/// What repeated measurements of one quantity say about it.
struct Summary {
  std::size_t n = 0;   ///< How many values were finite; the others are left out.
  double mean = 0;     ///< NaN where n is 0.
  double sd = 0;       ///< Of one value (n - 1 in the divisor); NaN below two values.
  double half_95 = 0;  ///< Half the 95 % interval of the mean, by Student's t; NaN below two.
  double min = 0, max = 0;
};
Summary summarize(std::span<const double> values) noexcept;

/// P(|T| < t) of Student's t with `freedom` degrees, from the closed forms for whole degrees
/// (Abramowitz and Stegun, 26.7.3 and 26.7.4).
double t_probability(double t, std::size_t freedom) noexcept;

/// The t with P(|T| < t) = `probability`. Infinite for no degree of freedom.
double t_quantile(double probability, std::size_t freedom) noexcept;

}  // namespace zeus::solve
