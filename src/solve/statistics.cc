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
    s.half_95 = t_quantile(0.95, n - 1) * s.sd / std::sqrt(n);
  }
  return s;
}

double incomplete_beta(double x, double a, double b) noexcept {
  if (!(x > 0)) return x == 0 ? 0 : kNan;
  if (x >= 1) return x == 1 ? 1 : kNan;
  // The fraction converges fast on this side of the mean; the other side is its mirror image.
  if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(1 - x, b, a);
  const double front = std::exp(a * std::log(x) + b * std::log1p(-x) + std::lgamma(a + b) -
                                std::lgamma(a) - std::lgamma(b)) /
                       a;
  // 1 + d1 / (1 + d2 / (1 + ...)) from the front, by Lentz's method.
  double value = 1, above = 1, below = 0;
  for (int i = 1; i < 1000; ++i) {
    const double m = i / 2;
    const double d = i % 2 == 0 ? m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
                                : -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    below = 1 / (1 + d * below);
    above = 1 + d / above;
    value *= above * below;
    if (std::abs(above * below - 1) < 1e-16) break;
  }
  return front / value;
}

double t_probability(double t, double freedom) noexcept {
  if (std::isinf(freedom)) return std::erf(t / std::numbers::sqrt2);
  return incomplete_beta(t * t / (freedom + t * t), 0.5, freedom / 2);
}

double t_beyond(double t, double freedom) noexcept {
  if (std::isinf(freedom)) return std::erfc(t / std::numbers::sqrt2);
  return incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5);
}

double t_quantile(double probability, double freedom) noexcept {
  if (freedom <= 0) return std::numeric_limits<double>::infinity();
  double low = 0, high = 1;
  while (t_probability(high, freedom) < probability && high < 1e12) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-14 * high; ++i) {
    const double middle = (low + high) / 2;
    (t_probability(middle, freedom) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace zeus::solve
