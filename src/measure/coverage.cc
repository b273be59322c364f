#include "measure/coverage.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "measure/alias.h"
#include "measure/publications.h"

namespace zeus::estimators {
namespace {

/// Readings of a window: their spread, the roughness from one to the next, and for how many of them
/// they stay alike.
struct Spread {
  double sd = 0, delta = 0, correlated = 1;
  std::size_t n = 0;
};

/// Integrated autocorrelation time in readings, at least 1: summed up to five times itself (Sokal),
/// or 64 readings.
double autocorrelation(std::span<const double> x, double mean, double variance) {
  if (variance <= 0) return 1;
  const auto n = static_cast<double>(x.size());
  double time = 1;
  for (std::size_t k = 1; k + 1 < x.size() && k <= 64; ++k) {
    double sum = 0;
    for (std::size_t i = 0; i + k < x.size(); ++i) sum += (x[i] - mean) * (x[i + k] - mean);
    time += 2 * sum / n / variance;
    if (static_cast<double>(k) >= 5 * std::max(time, 1.0)) break;
  }
  return std::max(1.0, time);
}

Spread spread_of(std::span<const double> x) {
  Spread s{.sd = 0, .delta = 0, .correlated = 1, .n = x.size()};
  if (x.size() < 2) return s;
  const auto n = static_cast<double>(x.size());
  double mean = 0, squares = 0, changes = 0;
  for (const double v : x) mean += v / n;
  for (const double v : x) squares += (v - mean) * (v - mean);
  for (std::size_t i = 1; i < x.size(); ++i) changes += (x[i] - x[i - 1]) * (x[i] - x[i - 1]);
  s.sd = std::sqrt(squares / (n - 1));
  s.delta = std::sqrt(changes / (2 * (n - 1)));
  s.correlated = x.size() > 4 ? autocorrelation(x, mean, squares / n) : 1;
  return s;
}

/// What of the spread of the readings a load of that period does not explain: the second
/// differences of the readings in the order of their phases, whose mean square is six times their
/// variance. The four greatest are those of the steps of the load itself.
double unexplained(const View& v, const Publications& pub, double period) {
  constexpr std::size_t kSteps = 4;
  struct Phase {
    double phase, watts;
  };
  std::array<Phase, Publications::kMost> inside;
  std::size_t n = 0;
  for (std::size_t i = 0; i < pub.count; ++i) {
    const double end = pub.values[i].end_s;
    if (end < 0 || end > v.length()) continue;
    inside[n++] = {end / period - std::floor(end / period), pub.values[i].watts};
  }
  if (n < 2 * kSteps) return 0;  // Too few to tell: the range of the device counts.
  std::sort(inside.begin(), inside.begin() + static_cast<std::ptrdiff_t>(n),
            [](const Phase& a, const Phase& b) { return a.phase < b.phase; });
  std::array<double, kSteps> greatest{};
  double sum = 0;
  for (std::size_t i = 1; i + 1 < n; ++i) {
    const double bend = inside[i + 1].watts - 2 * inside[i].watts + inside[i - 1].watts;
    double square = bend * bend;
    sum += square;
    for (double& g : greatest) {
      if (square > g) std::swap(square, g);
    }
  }
  for (const double g : greatest) sum -= g;
  return std::sqrt(std::max(0.0, sum) / (6 * static_cast<double>(n - 2 - kSteps)));
}

Spread spread(const View& v, const Publications& pub) {
  if (pub.resolved) {
    std::array<double, Publications::kMost> inside;
    std::size_t n = 0;
    for (std::size_t i = 0; i < pub.count; ++i) {
      const double end = pub.values[i].end_s;
      if (end >= 0 && end <= v.length()) inside[n++] = pub.values[i].watts;
    }
    return spread_of(std::span(inside).first(n));
  }
  // Only how rough it was is known of a long window; what changes slowly is the same for each poll.
  const double n = pub.period_s > 0 ? v.length() / pub.period_s : 0;
  const double rough = std::max(0.0, v.series.before_end.rough - v.series.before_begin.rough);
  const double delta = n > 0 ? std::sqrt(rough / (2 * std::max(1.0, n))) * v.info.scale : 0;
  return {.sd = delta, .delta = delta, .correlated = 1, .n = static_cast<std::size_t>(n)};
}

/// What the polls showed while the marks say that the load ran.
struct Seen {
  double span_s = 0, low = kInfinity, high = -kInfinity, sd = 0;
};

Seen seen_between_marks(const View& v, double period) {
  Seen out;
  double n = 0, mean = 0, squares = 0;
  const Instant from = v.m.marks.front();
  const Instant to = v.m.marks.back() +
                     std::chrono::duration_cast<Duration>(std::chrono::duration<double>(period));
  Instant first{}, last{};
  for (const Sample& s : v.polls) {
    if (!s.ok() || s.at() < from || s.at() > to) continue;
    const double watts = static_cast<double>(s.raw()) * v.info.scale;
    if (n++ == 0) first = s.at();
    last = s.at();
    const double off = watts - mean;
    mean += off / n;
    squares += off * (watts - mean);
    out.low = std::min(out.low, watts);
    out.high = std::max(out.high, watts);
  }
  if (n < 2) return {};
  out.span_s = seconds(last - first);
  out.sd = std::sqrt(squares / (n - 1));
  return out;
}

}  // namespace

Hidden hidden_load(const View& v, const Publications& pub,
                   std::optional<double> coverage) noexcept {
  const SensorProfile& p = v.info.profile;
  const double t_u = pub.period_s, length = v.length();
  if (t_u <= 0 || length <= 0) return {.flags = Flag::coverage_unverified};
  // A running mean shows nothing of what is faster than itself.
  const bool blunt = p.kind == SensorKind::running || p.kind == SensorKind::unknown;
  const double own = p.kind == SensorKind::instant ? 0 : std::min(pub.window_s, t_u);
  const double w = coverage ? std::min(1.0, *coverage) * t_u : own;
  if (coverage && w >= 0.95 * t_u) return {};
  if (blunt || (!coverage && w >= 0.95 * t_u)) return {.flags = Flag::coverage_unverified};

  const Range range(v);
  const Spread s = spread(v, pub);
  Hidden out;
  out.flags = Flag::partial_coverage;
  out.swing_w = range.device();
  const double dark = (1 - w / t_u) * length;
  if (s.n < 8) {
    out.u_j = dark * range.device() / std::sqrt(12.0);
    out.guessed = true;
    out.flags = out.flags | Flag::coverage_unverified;
  }
  const Iterations load = iterations(v.m.marks);
  const double random = u_random(t_u, w, length, s.delta);
  if (load.period_s > 0) {
    Comb comb;
    comb.period_s = t_u;
    comb.origin = v.m.begin;
    // Those of the window: over a whole beat all phases come by.
    const auto inside = std::span(v.m.marks);
    const auto first = std::lower_bound(inside.begin(), inside.end(), v.m.begin);
    const auto last = std::upper_bound(first, inside.end(), v.m.end);
    const Rayleigh phases = rayleigh(std::span(first, last), comb);
    const double beat = slowest_beat(t_u, w, load.period_s);
    const bool in_step = phases.p < 0.01 || beat > length / 2;
    // The readings have shown all of the load where its slowest beat fits in.
    const Seen seen = seen_between_marks(v, load.period_s);
    const bool all = beat <= seen.span_s;
    if (all) out.swing_w = seen.high - seen.low;
    double aliased = u_alias(t_u, w, length, load.period_s, out.swing_w, load.jitter_s, s.delta);
    if (all) {
      const double any_shape = seen.sd * greatest_alias(t_u, w, length, load.period_s) * length;
      const double irregular = u_alias(t_u, w, length, load.period_s, 0, load.jitter_s, s.delta);
      aliased = std::min(aliased, std::hypot(any_shape, irregular));
    }
    // A load that the marks do not explain counts as irregular to that extent.
    const double rest =
        pub.resolved ? u_random(t_u, w, length, unexplained(v, pub, load.period_s)) : 0;
    out.alias = {load.period_s, beat, phases.r, phases.p};
    out.u_j = std::max(out.u_j, std::hypot(rest, aliased));
    if (in_step) out.flags = out.flags | Flag::aliased;
    return out;
  }
  // Nobody says whether the load is in step with the sensor.
  out.flags = out.flags | Flag::coverage_unverified;
  const double n = std::max(1.0, static_cast<double>(s.n));
  out.u_j = std::max({out.u_j, random, dark * s.sd * std::sqrt(s.correlated / n)});
  return out;
}

}  // namespace zeus::estimators
