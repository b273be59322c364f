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

/// I_x(a, b), the regularised incomplete beta function, for a, b > 0 and 0 <= x <= 1, by its
/// continued fraction (NIST DLMF, 8.17.22).
double incomplete_beta(double x, double a, double b) noexcept;

/// P(|T| < t) of Student's t with `freedom` degrees, which need not be whole; for an infinity of
/// them that of the normal distribution (Abramowitz and Stegun, 26.7.1).
double t_probability(double t, double freedom) noexcept;

/// P(|T| >= t), which keeps its digits where it is small.
double t_beyond(double t, double freedom) noexcept;

/// The t with P(|T| < t) = `probability`. Infinite for no degree of freedom.
double t_quantile(double probability, double freedom) noexcept;

}  // namespace zeus::solve
