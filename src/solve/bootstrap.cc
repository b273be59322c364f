#include <algorithm>
#include <cmath>

#include "solve/random.h"
#include "solve/study.h"

namespace zeus::solve {
namespace {

/// What is drawn from: blocks with both values, or two samples of their own.
struct Samples {
  std::vector<double> command, reference;
  bool paired = false;

  Samples(std::span<const Outcome> outcomes, std::size_t c, std::size_t r, Order order)
      : paired(order != Order::sequential) {
    for (const Outcome& a : outcomes) {
      if (!a.usable()) continue;
      if (!paired && a.command == c) command.push_back(a.value);
      if (!paired && a.command == r) reference.push_back(a.value);
      if (!paired || a.command != c) continue;
      const auto b = std::find_if(outcomes.begin(), outcomes.end(), [&](const Outcome& o) {
        return o.command == r && o.block == a.block && o.usable();
      });
      if (b == outcomes.end()) continue;
      command.push_back(a.value);
      reference.push_back(b->value);
    }
  }
  bool enough() const { return std::min(command.size(), reference.size()) >= kLeast; }
};

double sum(const std::vector<double>& values) {
  double out = 0;
  for (const double v : values) out += v;
  return out;
}

double mean(const std::vector<double>& values) {
  return sum(values) / static_cast<double>(values.size());
}

double draw(const Samples& s, Random& random) {
  double a = 0, b = 0;
  for (std::size_t i = 0; i < s.command.size(); ++i) {
    const auto k = static_cast<std::size_t>(random.below(s.command.size()));
    a += s.command[k];
    if (s.paired) b += s.reference[k];
  }
  for (std::size_t i = 0; i < s.reference.size() && !s.paired; ++i) {
    b += s.reference[static_cast<std::size_t>(random.below(s.reference.size()))];
  }
  return a / static_cast<double>(s.command.size()) * static_cast<double>(s.reference.size()) / b;
}

/// What each value moves the ratio, by leaving it out: third and second moments for `acceleration`.
double acceleration(const Samples& s) {
  const auto na = static_cast<double>(s.command.size());
  const auto nb = static_cast<double>(s.reference.size());
  const double a = sum(s.command), b = sum(s.reference), ratio = (a / na) / (b / nb);
  double cubes = 0, squares = 0;
  const auto add = [&](double without, double n) {
    const double influence = (n - 1) * (ratio - without);
    cubes += std::pow(influence / n, 3);
    squares += std::pow(influence / n, 2);
  };
  for (std::size_t i = 0; i < s.command.size(); ++i) {
    const double rest = (a - s.command[i]) / (na - 1);
    add(rest / (s.paired ? (b - s.reference[i]) / (nb - 1) : b / nb), na);
  }
  for (std::size_t i = 0; i < s.reference.size() && !s.paired; ++i) {
    add((a / na) / ((b - s.reference[i]) / (nb - 1)), nb);
  }
  return squares > 0 ? cubes / (6 * std::pow(squares, 1.5)) : 0;
}

double normal(double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; }

double normal_quantile(double p) {
  const double z = t_quantile(std::abs(2 * p - 1), std::numeric_limits<double>::infinity());
  return p < 0.5 ? -z : z;
}

}  // namespace

std::array<double, 2> bootstrap_ratio(std::span<const Outcome> outcomes, std::size_t command,
                                      std::size_t reference, Order order, std::size_t draws) {
  const Samples samples(outcomes, command, reference, order);
  if (!samples.enough()) return {kNoValue, kNoValue};
  const double ratio = mean(samples.command) / mean(samples.reference);
  Random random(1);
  std::vector<double> ratios(draws);
  for (double& r : ratios) r = draw(samples, random);
  std::sort(ratios.begin(), ratios.end());

  // Half of those that equal the estimate lie below it.
  const auto [first, last] = std::equal_range(ratios.begin(), ratios.end(), ratio);
  const auto lower = static_cast<double>((first - ratios.begin()) + (last - ratios.begin())) / 2;
  const auto n = static_cast<double>(draws);
  const double bias = normal_quantile(std::clamp(lower / n, 1 / n, 1 - 1 / n));
  const double skew = acceleration(samples);
  const auto end = [&](double p) {
    const double z = bias + normal_quantile(p);
    const double at = normal(bias + z / (1 - skew * z)) * (n + 1) - 1;
    return ratios[static_cast<std::size_t>(std::lround(std::clamp(at, 0.0, n - 1)))];
  };
  return {end(0.025), end(0.975)};
}

}  // namespace zeus::solve
