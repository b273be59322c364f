#include "solve/study.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "solve/random.h"

namespace zeus::solve {
namespace {

double square(double x) { return x * x; }

/// The logarithms of one command's values.
struct Logs {
  std::vector<double> values;
  double u_common = 0;  // Relative; the greatest of them: they are shared, not independent.

  Logs(std::span<const Outcome> outcomes, std::size_t command) {
    for (const Outcome& o : outcomes) {
      if (o.command == command && o.usable()) add(o);
    }
  }
  void add(const Outcome& o) {
    values.push_back(std::log(o.value));
    u_common = std::max(u_common, o.u_common / o.value);
  }
};

/// A scatter with `freedom` degrees and a common part with an infinity of them.
Uncertain combined(double value, double scatter, double freedom, double common) {
  const double u = std::hypot(scatter, common);
  const double effective =
      scatter > 0 ? freedom * std::pow(u / scatter, 4) : std::numeric_limits<double>::infinity();
  return {value, u, effective};
}

/// Blocks in which both commands have a number: ln(command) - ln(reference) of each.
std::vector<double> differences(std::span<const Outcome> outcomes, std::size_t command,
                                std::size_t reference) {
  std::vector<double> out;
  for (const Outcome& a : outcomes) {
    if (a.command != command || !a.usable()) continue;
    for (const Outcome& b : outcomes) {
      if (b.command != reference || b.block != a.block || !b.usable()) continue;
      out.push_back(std::log(a.value) - std::log(b.value));
    }
  }
  return out;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

const char* to_string(Order order) noexcept {
  switch (order) {
    case Order::random: return "random";
    case Order::interleaved: return "interleaved";
    case Order::sequential: return "sequential";
  }
  return "random";
}

std::vector<Turn> schedule(std::size_t commands, std::size_t runs, Order order,
                           std::uint64_t seed) {
  std::vector<Turn> out;
  out.reserve(commands * runs);
  if (order == Order::sequential) {
    for (std::size_t c = 0; c < commands; ++c) {
      for (std::size_t r = 0; r < runs; ++r) out.push_back({c, r});
    }
    return out;
  }
  Random random(seed);
  std::vector<std::size_t> block(commands);
  for (std::size_t r = 0; r < runs; ++r) {
    std::iota(block.begin(), block.end(), std::size_t{0});
    for (std::size_t i = commands; order == Order::random && i > 1; --i) {
      std::swap(block[i - 1], block[random.below(i)]);  // Fisher and Yates.
    }
    for (const std::size_t c : block) out.push_back({c, r});
  }
  return out;
}

std::size_t phases(std::size_t runs) noexcept {
  constexpr std::size_t kFew = 4, kMany = 8;
  for (std::size_t n = kMany; n >= kFew; --n) {
    if (runs % n == 0 && runs > 0) return n;
  }
  return std::min(runs, kMany);
}

std::int64_t next_start(std::int64_t now, std::int64_t period, std::size_t k,
                        std::size_t n) noexcept {
  if (period <= 0 || n == 0) return now;
  const auto offset = std::llround(static_cast<double>(period) * static_cast<double>(k % n) /
                                   static_cast<double>(n));
  const std::int64_t start = now - now % period + offset;
  return start >= now ? start : start + period;
}

std::array<double, 2> Uncertain::interval(double probability) const noexcept {
  if (std::isnan(u)) return {kNoValue, kNoValue};
  const double half = u > 0 ? t_quantile(probability, freedom) * u : 0;
  return {value - half, value + half};
}

double Uncertain::p(double null) const noexcept {
  if (std::isnan(u)) return kNoValue;
  if (u == 0) return value == null ? 1 : 0;
  return t_beyond(std::abs(value - null) / u, freedom);
}

double Uncertain::detectable() const noexcept {
  if (std::isnan(u)) return kNoValue;
  return u > 0 ? (t_quantile(0.95, freedom) + t_quantile(0.60, freedom)) * u : 0;
}

Level level_of(std::span<const Outcome> outcomes, std::size_t command) {
  std::vector<double> values;
  double common = 0;
  for (const Outcome& o : outcomes) {
    if (o.command != command || !o.usable()) continue;
    values.push_back(o.value);
    common = std::max(common, o.u_common);
  }
  Level out{summarize(values), {}};
  out.mean.value = out.summary.mean;
  if (values.size() < kLeast) return out;
  const auto n = static_cast<double>(values.size());
  out.mean = combined(out.summary.mean, out.summary.sd / std::sqrt(n), n - 1, common);
  return out;
}

double Comparison::ratio() const noexcept { return std::exp(log_ratio.value); }

std::array<double, 2> Comparison::interval(double probability) const noexcept {
  const auto [low, high] = log_ratio.interval(probability);
  return {std::exp(low), std::exp(high)};
}

double Comparison::detectable() const noexcept { return std::expm1(log_ratio.detectable()); }

Comparison compare(std::span<const Outcome> outcomes, std::size_t command, std::size_t reference,
                   Order order) {
  const Logs a(outcomes, command), b(outcomes, reference);
  const double common = std::hypot(a.u_common, b.u_common);
  Comparison out;
  out.paired = order != Order::sequential;
  if (out.paired) {
    const Summary d = summarize(differences(outcomes, command, reference));
    out.n = d.n;
    out.log_ratio.value = d.mean;
    if (d.n < kLeast) return out;
    const auto n = static_cast<double>(d.n);
    out.log_ratio = combined(d.mean, d.sd / std::sqrt(n), n - 1, common);
    return out;
  }
  const Summary sa = summarize(a.values), sb = summarize(b.values);
  out.n = std::min(sa.n, sb.n);
  out.log_ratio.value = sa.mean - sb.mean;
  if (out.n < kLeast) return out;
  const auto na = static_cast<double>(sa.n), nb = static_cast<double>(sb.n);
  const double va = square(sa.sd) / na, vb = square(sb.sd) / nb;
  const double freedom =
      va + vb > 0 ? square(va + vb) / (square(va) / (na - 1) + square(vb) / (nb - 1)) : 0;
  out.log_ratio = combined(out.log_ratio.value, std::sqrt(va + vb), freedom, common);
  return out;
}

Slope slope_of(std::span<const Outcome> outcomes, double Outcome::*against) {
  struct Sums {
    double n = 0, x = 0, y = 0;
  };
  std::vector<Sums> of;  // Of each command.
  const auto counts = [&](const Outcome& o) { return o.usable() && std::isfinite(o.*against); };
  for (const Outcome& o : outcomes) {
    if (!counts(o)) continue;
    if (o.command >= of.size()) of.resize(o.command + 1);
    Sums& s = of[o.command];
    s.n += 1;
    s.x += o.*against;
    s.y += std::log(o.value);
  }
  double n = 0, commands = 0, xx = 0, xy = 0, yy = 0;
  for (const Sums& s : of) {
    n += s.n;
    if (s.n > 0) commands += 1;
  }
  for (const Outcome& o : outcomes) {
    if (!counts(o)) continue;
    const Sums& s = of[o.command];
    const double x = o.*against - s.x / s.n, y = std::log(o.value) - s.y / s.n;
    xx += x * x;
    xy += x * y;
    yy += y * y;
  }
  Slope out;
  out.freedom = n - commands - 1;
  if (!(xx > 0) || out.freedom < 1) return out;
  const double slope = xy / xx;
  const double rest = std::max(0.0, yy - slope * xy);
  out.per_unit = std::expm1(slope);
  out.t = slope == 0 ? 0 : slope / std::sqrt(rest / out.freedom / xx);
  return out;
}

std::vector<std::size_t> outliers(std::span<const Outcome> outcomes) {
  std::size_t commands = 0;
  for (const Outcome& o : outcomes) commands = std::max(commands, o.command + 1);
  std::vector<std::size_t> out;
  for (std::size_t c = 0; c < commands; ++c) {
    std::vector<double> values = Logs(outcomes, c).values;
    if (values.size() < kAdvised) continue;
    const double middle = median(values);
    for (double& v : values) v = std::abs(v - middle);
    const double spread = median(std::move(values));
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const Outcome& o = outcomes[i];
      if (o.command != c || !o.usable() || !(spread > 0)) continue;
      const double distance = std::abs(std::log(o.value) - middle);
      if (distance > 3.5 * std::max(spread / 0.6745, o.u / o.value)) out.push_back(i);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

Answer above(const std::array<double, 2>& interval90, double limit) noexcept {
  if (interval90[0] > limit) return Answer::shown;
  return interval90[1] <= limit ? Answer::refuted : Answer::undecided;
}

Answer below(const std::array<double, 2>& interval90, double limit) noexcept {
  if (interval90[1] < limit) return Answer::shown;
  return interval90[0] >= limit ? Answer::refuted : Answer::undecided;
}

}  // namespace zeus::solve
