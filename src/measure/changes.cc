#include "measure/changes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/numbers.h"

namespace zeus {
namespace {

/// A change between two polls, by their places.
struct Change {
  std::size_t before, after;
};

std::vector<Change> changes_of(std::span<const Sample> polls) {
  std::vector<Change> out;
  std::size_t last = polls.size();
  for (std::size_t i = 0; i < polls.size(); ++i) {
    if (!polls[i].ok()) continue;
    if (last < i && polls[i].raw() != polls[last].raw()) out.push_back({last, i});
    last = i;
  }
  return out;
}

}  // namespace

std::vector<Publication> publications(const SensorInfo& sensor, std::span<const Sample> polls,
                                      const Comb& comb, Instant origin) {
  constexpr std::size_t kBlock = 40;  // Combs slip: a phase is told from that many changes.
  const std::vector<Change> changes = changes_of(polls);
  const double period = comb.period_s;
  const bool counter = sensor.quantity == Quantity::energy;
  std::vector<Publication> out;
  double before_s = -kInfinity, before_j = 0;
  Comb near;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (i % kBlock == 0 && comb.accepted) {
      const auto last = std::min(i + kBlock, changes.size()) - 1;
      near = fit_phase(
          polls.subspan(changes[i].before, changes[last].after - changes[i].before + 1), period);
    }
    const Sample &before = polls[changes[i].before], &after = polls[changes[i].after];
    const double half = seconds(after.at() - before.at()) / 2;
    const double u = half / std::sqrt(3.0);
    double t = seconds(before.at() - origin) + half;
    if (near.accepted) {
      const double phase = seconds(near.origin - origin) + near.phase_s;
      const double tick = phase + std::round((t - phase) / period) * period;
      if (std::abs(tick - t) <= half + period / 50) t = tick;
    }
    const double value = static_cast<double>(after.raw()) * sensor.scale;
    if (!counter) {
      out.push_back({t, u, value});
    } else {
      const double dt = t - before_s;
      if (after.raw() > before.raw() && std::abs(dt - period) < period / 4) {
        out.push_back({t, u, (value - before_j) / (near.accepted ? period : dt)});
      }
      before_s = t;
      before_j = value;
    }
  }
  return out;
}

StepTrace readings(const SensorInfo& sensor, std::span<const Sample> polls, Instant origin) {
  std::vector<StepTrace::Point> points;
  if (sensor.quantity != Quantity::energy) {
    for (const Sample& s : polls) {
      if (!s.ok()) continue;
      points.push_back({seconds(s.at() - origin), static_cast<double>(s.raw()) * sensor.scale});
    }
    return StepTrace(points);
  }
  const std::vector<Change> changes = changes_of(polls);
  for (std::size_t i = 0; i + 1 < changes.size(); ++i) {
    const auto middle = [&](const Change& c) {
      return (seconds(polls[c.before].at() - origin) + seconds(polls[c.after].at() - origin)) / 2;
    };
    const std::uint64_t from = polls[changes[i].after].raw(),
                        to = polls[changes[i + 1].after].raw();
    const double begin = middle(changes[i]), end = middle(changes[i + 1]);
    if (to <= from || end <= begin) continue;
    points.push_back({begin, static_cast<double>(to - from) * sensor.scale / (end - begin)});
  }
  if (!points.empty()) {
    const Change& last = changes.back();
    points.push_back({seconds(polls[last.after].at() - origin), points.back().value});
  }
  return StepTrace(points);
}

}  // namespace zeus
