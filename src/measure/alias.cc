#include "measure/alias.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/numbers.h"

namespace zeus {
namespace {

using std::numbers::pi;

constexpr std::size_t kMostIntervals = 1024;
constexpr double kFewestHarmonics = 32, kMostHarmonics = 4096;
constexpr double kEnvelope = 0.15;  // Of a null of sinc.
constexpr double kVisible = 0.05;   // Of the swing.
constexpr double kLocked = 1e-9;    // Hz: a beat of thirty years.

double sinc(double x) noexcept { return std::abs(x) < 1e-9 ? 1 : std::sin(pi * x) / (pi * x); }

// Amplitude, in swings, with which harmonic m of a load between two levels is read.
double amplitude(double m, double window_s, double load_s) noexcept {
  return 2 / (m * pi) * std::abs(sinc(m * window_s / load_s));
}

// What a window of `length_s` leaves of an alias of frequency f, nulls not believed.
double share(double f, double length_s) noexcept {
  const double x = f * length_s;
  return std::hypot(sinc(x), kEnvelope / std::max(1.0, pi * x));
}

// Calls f(m, f_m) for each harmonic beyond half the rate of publication.
template <class F>
void for_each_alias(double update_s, double load_s, F f) {
  const double ratio = load_s / update_s, first = std::max(1.0, std::ceil(ratio / 2));
  const double last = std::max(kFewestHarmonics, 2 * std::ceil(ratio));
  const auto count = static_cast<int>(std::min(last - first, kMostHarmonics));
  for (int i = 0; i <= count; ++i) {
    const double m = first + i;
    f(m, std::abs(m / load_s - std::round(m / ratio) / update_s));
  }
}

}  // namespace

Rayleigh rayleigh(std::span<const Instant> marks, const Comb& comb) noexcept {
  if (marks.empty() || !(comb.period_s > 0)) return {};
  double x = 0, y = 0;
  for (const Instant mark : marks) {
    const double periods = (seconds(mark - comb.origin) - comb.phase_s) / comb.period_s;
    const double angle = 2 * pi * (periods - std::floor(periods));
    x += std::cos(angle);
    y += std::sin(angle);
  }
  const auto n = static_cast<double>(marks.size());
  const double r = std::hypot(x, y) / n;
  return {.r = r, .p = std::exp(-n * r * r), .n = marks.size()};
}

Iterations iterations(std::span<const Instant> marks) noexcept {
  if (marks.size() < 3) return {};
  const std::size_t intervals = marks.size() - 1, kept = std::min(intervals, kMostIntervals);
  std::array<double, kMostIntervals> x;
  for (std::size_t i = 0; i < kept; ++i) {
    const std::size_t from = i * intervals / kept;
    x[i] = seconds(marks[from + 1] - marks[from]);
  }
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(kept / 2);
  const auto end = x.begin() + static_cast<std::ptrdiff_t>(kept);
  std::nth_element(x.begin(), middle, end);
  double median = *middle;
  if (kept % 2 == 0) median = (median + *std::max_element(x.begin(), middle)) / 2;
  if (!(median > 0)) return {};

  // Least squares about the grid of the median, which keeps all digits.
  const auto n = static_cast<double>(marks.size());
  const double mean_k = (n - 1) / 2;
  const auto off = [&](std::size_t k) {
    return seconds(marks[k] - marks[0]) - static_cast<double>(k) * median;
  };
  double mean = 0, slope = 0, square = 0;
  for (std::size_t k = 0; k < marks.size(); ++k) mean += off(k) / n;
  for (std::size_t k = 0; k < marks.size(); ++k) {
    slope += (static_cast<double>(k) - mean_k) * (off(k) - mean) * 12 / (n * (n * n - 1));
  }
  for (std::size_t k = 0; k < marks.size(); ++k) {
    const double left = off(k) - mean - slope * (static_cast<double>(k) - mean_k);
    square += left * left / n;
  }
  return {.period_s = median, .jitter_s = std::sqrt(square)};
}

double u_random(double update_s, double window_s, double length_s, double delta_w) noexcept {
  if (!(update_s > window_s) || !(length_s > 0)) return 0;
  return delta_w * std::sqrt((update_s - window_s) * length_s);
}

double u_alias(double update_s, double window_s, double length_s, double load_s, double swing_w,
               double mark_jitter_s, double delta_w) noexcept {
  if (!(update_s > 0) || !(length_s > 0) || !(load_s > 0)) return 0;
  double variance = 0;
  for_each_alias(update_s, load_s, [&](double m, double f) {
    // Root mean square: amplitude / sqrt(2).
    const double u = swing_w * amplitude(m, window_s, load_s) / std::numbers::sqrt2 *
                     share(f, length_s) * length_s;
    variance += u * u;
  });
  const double irregular = std::min(1.0, 4 * mark_jitter_s / update_s);
  return std::hypot(
      std::sqrt(variance),
      irregular * u_random(update_s, window_s, std::max(length_s, update_s), delta_w));
}

double greatest_alias(double update_s, double window_s, double length_s, double load_s) noexcept {
  if (!(update_s > 0) || !(load_s > 0)) return 0;
  double greatest = 0;
  for_each_alias(update_s, load_s, [&](double m, double f) {
    if (amplitude(m, window_s, load_s) < kVisible) return;
    greatest = std::max(greatest, share(f, length_s));
  });
  return greatest;
}

double slowest_beat(double update_s, double window_s, double load_s) noexcept {
  if (!(update_s > 0) || !(load_s > 0)) return 0;
  double slowest = 0;
  for_each_alias(update_s, load_s, [&](double m, double f) {
    if (amplitude(m, window_s, load_s) < kVisible) return;
    slowest = std::max(slowest, f < kLocked ? std::numeric_limits<double>::infinity() : 1 / f);
  });
  return slowest;
}

}  // namespace zeus
