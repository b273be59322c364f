#include "measure/kind.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace zeus {
namespace {

constexpr std::size_t kFewestDifferences = 50;
constexpr double kRamp = 0.5;    // Correlation of differences beyond which they go on.
constexpr double kSmall = 0.05;  // Differences below it, of the greatest, are noise.
constexpr std::size_t kShortestRun = 5;
constexpr double kLeastFall = 0.69;  // Of ln |difference| over a run: to one half.
constexpr double kRegular = 0.15;    // Root mean square of ln |difference| about a line.

// Differences of one sign, one after the other, and the line through ln |d| over their numbers.
struct Run {
  std::size_t n = 0;
  double rate = 0, fall = 0, rms = 0;

  bool geometric() const noexcept { return fall >= kLeastFall && rms <= kRegular; }
};

Run run_from(std::span<const double> ticks, std::size_t begin, double least) noexcept {
  const auto d = [&](std::size_t i) { return ticks[i + 1] - ticks[i]; };
  Run run;
  double mean_i = 0, mean = 0, ii = 0, iy = 0, yy = 0;
  for (std::size_t i = begin; i + 1 < ticks.size(); ++i) {
    if (std::abs(d(i)) < least || std::signbit(d(i)) != std::signbit(d(begin))) break;
    const auto x = static_cast<double>(i - begin);
    const double n = static_cast<double>(++run.n), y = std::log(std::abs(d(i)));
    const double dx = x - mean_i, dy = y - mean;
    mean_i += dx / n;
    mean += dy / n;
    ii += dx * (x - mean_i);
    iy += dx * (y - mean);
    yy += dy * (y - mean);
  }
  if (run.n < 2) return run;
  const auto n = static_cast<double>(run.n);
  run.rate = -iy / ii;
  run.fall = run.rate * (n - 1);
  run.rms = std::sqrt(std::max(0.0, yy - iy * iy / ii) / n);
  return run;
}

// Whether the second of two differences is the greater, with the same sign.
bool rises(double a, double b, double c) noexcept {
  return (b - a) * (c - b) > 0 && std::abs(c - b) > std::abs(b - a);
}

double correlation_of_differences(std::span<const double> ticks) noexcept {
  double both = 0, square = 0;
  for (std::size_t i = 0; i + 1 < ticks.size(); ++i) {
    const double d = ticks[i + 1] - ticks[i];
    square += d * d;
    if (i + 2 < ticks.size()) both += d * (ticks[i + 2] - ticks[i + 1]);
  }
  return square > 0 ? both / square : 0;
}

}  // namespace

std::uint64_t quantum_of(std::span<const Sample> polls) noexcept {
  std::array<std::uint64_t, kFewestDifferences> distinct;
  std::size_t known = 0;
  std::uint64_t divisor = 0;
  Sample last;
  for (const Sample& s : polls) {
    if (!s.ok()) continue;
    if (last.ok() && s.raw() != last.raw()) {
      const std::uint64_t d = std::max(s.raw(), last.raw()) - std::min(s.raw(), last.raw());
      divisor = std::gcd(divisor, d);
      const auto end = distinct.begin() + static_cast<std::ptrdiff_t>(known);
      if (known < distinct.size() && std::find(distinct.begin(), end, d) == end) {
        distinct[known++] = d;
      }
    }
    last = s;
  }
  return known == distinct.size() ? divisor : 0;
}

bool rules_out_running_mean(std::span<const double> ticks_w, double range_w, double update_s,
                            double window_s) noexcept {
  if (!(window_s > update_s)) return false;
  const double most = range_w * update_s / window_s;
  for (std::size_t i = 0; i + 1 < ticks_w.size(); ++i) {
    if (std::abs(ticks_w[i + 1] - ticks_w[i]) > most) return true;
  }
  return false;
}

KindGuess guess_kind(std::span<const double> ticks) noexcept {
  KindGuess guess;
  guess.correlation = correlation_of_differences(ticks);
  double greatest = 0;
  for (std::size_t i = 0; i + 1 < ticks.size(); ++i) {
    greatest = std::max(greatest, std::abs(ticks[i + 1] - ticks[i]));
  }
  if (greatest <= 0) return guess;

  Run longest;
  std::size_t long_runs = 0, geometric = 0;
  for (std::size_t i = 0; i + 1 < ticks.size();) {
    // The first publication after a step shows a part of it only.
    if (i + 2 < ticks.size() && rises(ticks[i], ticks[i + 1], ticks[i + 2])) ++i;
    const Run run = run_from(ticks, i, kSmall * greatest);
    i += std::max<std::size_t>(run.n, 1);
    if (run.n < kShortestRun) continue;
    ++long_runs;
    if (!run.geometric()) continue;
    ++geometric;
    if (run.n > longest.n) longest = run;
  }
  if (geometric > 0 && 2 * geometric >= long_runs) {
    guess.kind = SensorKind::exponential;
    guess.tau_ticks = 1 / longest.rate;
  } else if (guess.correlation > kRamp) {
    guess.kind = SensorKind::running;
  }
  return guess;
}

}  // namespace zeus
