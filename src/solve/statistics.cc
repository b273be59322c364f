#include "solve/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace zeus::solve {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Summary summarize(std::span<const double> values) noexcept {
  Summary s{.n = 0, .mean = kNan, .sd = kNan, .half_95 = kNan, .min = kNan, .max = kNan};
  double mean = 0, squares = 0;  // Welford's recurrence: no difference of large sums.
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    ++s.n;
    const double step = v - mean;
    mean += step / static_cast<double>(s.n);
    squares += step * (v - mean);
    s.min = s.n == 1 ? v : std::min(s.min, v);
    s.max = s.n == 1 ? v : std::max(s.max, v);
  }
  if (s.n > 0) s.mean = mean;
  if (s.n > 1) {
    const auto n = static_cast<double>(s.n);
    s.sd = std::sqrt(squares / (n - 1));
    s.half_95 = t_quantile(0.95, s.n - 1) * s.sd / std::sqrt(n);
  }
  return s;
}

double t_probability(double t, std::size_t freedom) noexcept {
  const double theta = std::atan(t / std::sqrt(static_cast<double>(freedom)));
  const double cos2 = std::cos(theta) * std::cos(theta);
  // Both series are 1 + sum of products; the odd one runs over 2/3, 4/5 ... after a factor cos.
  const bool odd = freedom % 2 == 1;
  double term = 1, sum = 1;
  for (std::size_t k = odd ? 2 : 1; k + 2 < freedom + (odd ? 0 : 1); k += 2) {
    term *= cos2 * static_cast<double>(k) / static_cast<double>(k + 1);
    sum += term;
  }
  if (!odd) return std::sin(theta) * sum;
  const double series = freedom == 1 ? 0 : std::sin(theta) * std::cos(theta) * sum;
  return 2 / std::numbers::pi * (theta + series);
}

double t_quantile(double probability, std::size_t freedom) noexcept {
  if (freedom == 0) return std::numeric_limits<double>::infinity();
  double low = 0, high = 1;
  while (t_probability(high, freedom) < probability && high < 1e12) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-14 * high; ++i) {
    const double middle = (low + high) / 2;
    (t_probability(middle, freedom) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace zeus::solve
