#include "gpu_check/polls.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/numbers.h"

namespace zeus::check {
namespace {

constexpr double kAgree = 0.9;

Instant middle(const Tick& t) { return t.before + (t.after - t.before) / 2; }

}  // namespace

Percentiles percentiles(std::vector<double> values) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (values.empty()) return {0, kNan, kNan, kNan, kNan};
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto rank = [&](double p) {
    return values[static_cast<std::size_t>(std::max(0.0, std::ceil(p * n) - 1))];
  };
  return {values.size(), rank(0.5), rank(0.9), rank(0.99), values.back()};
}

std::vector<Tick> changes(std::span<const Sample> polls) {
  std::vector<Tick> out;
  for (std::size_t i = 1; i < polls.size(); ++i) {
    const Sample &a = polls[i - 1], &b = polls[i];
    if (a.ok() && b.ok() && a.raw() != b.raw()) out.push_back({a.at(), b.at(), b.raw()});
  }
  return out;
}

std::vector<Tick> sharp(std::span<const Tick> ticks, double period_s) {
  std::vector<Tick> out;
  for (const Tick& t : ticks) {
    if (seconds(t.after - t.before) < period_s / 4) out.push_back(t);
  }
  return out;
}

std::optional<Mean> mean_of_counter(std::span<const Sample> polls, double scale, double update_s) {
  const auto ticks = sharp(changes(polls), update_s);
  if (ticks.size() < 2 || !(update_s > 0)) return std::nullopt;
  const Tick &a = ticks.front(), &b = ticks.back();
  const double updates = std::round(seconds(middle(b) - middle(a)) / update_s);
  if (updates < 1 || b.raw < a.raw) return std::nullopt;
  const double length_s = updates * update_s;
  // Two readings, each rounded to the quantum.
  return Mean{static_cast<double>(b.raw - a.raw) * scale / length_s,
              scale / std::sqrt(6.0) / length_s};
}

std::optional<Mean> mean_of_level(std::span<const Sample> polls, double scale) {
  double sum = 0, length_s = 0;
  for (std::size_t i = 1; i < polls.size(); ++i) {
    if (!polls[i - 1].ok()) continue;
    const double s = seconds(polls[i].at() - polls[i - 1].at());
    sum += static_cast<double>(polls[i - 1].raw()) * scale * s;
    length_s += s;
  }
  if (!(length_s > 0)) return std::nullopt;
  return Mean{sum / length_s, scale / std::sqrt(12.0)};
}

std::optional<double> phase(std::span<const Tick> ticks, Instant origin, double period_s) {
  double x = 0, y = 0;
  for (const Tick& t : ticks) {
    const double turn = 2 * std::numbers::pi * seconds(middle(t) - origin) / period_s;
    x += std::cos(turn);
    y += std::sin(turn);
  }
  if (ticks.empty() || std::hypot(x, y) < kAgree * static_cast<double>(ticks.size())) {
    return std::nullopt;
  }
  const double p = std::atan2(y, x) / (2 * std::numbers::pi);
  return p - std::floor(p);
}

double together(std::span<const Tick> a, std::span<const Tick> b) {
  std::size_t n = 0, at = 0;
  for (const Tick& t : a) {
    while (at < b.size() && b[at].after < t.before) ++at;
    if (at < b.size() && b[at].before <= t.after) ++n;
  }
  return a.empty() ? 0 : static_cast<double>(n) / static_cast<double>(a.size());
}

}  // namespace zeus::check
