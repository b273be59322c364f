#pragma once

// A virtual sensor watched by a virtual monitor: records of windows over the simulated machine's
// model of sensors, of which the true energy is known, without a clock that has to be waited for.

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "measure/track.h"
#include "support/polls.h"
#include "zeus/measurement.h"

namespace zeus::test {

inline sim::Ns ns(double seconds) { return std::llround(seconds * 1e9); }
inline Instant instant(double seconds) {
  return Instant{} + std::chrono::hours(1) + Duration(ns(seconds));
}

/// Power as steps, known exactly. The first value holds before, the last after.
class Load final : public FixedTruth {
 public:
  using FixedTruth::FixedTruth;
  double energy(double a, double b) const { return joules(ns(a), ns(b)); }

  static Load steady(double watts) { return Load(sim::Steps::constant(watts)); }
  /// `high` from `from` to `to`, `idle` before and after.
  static Load burst(double from, double to, double high, double idle) {
    constexpr sim::Ns kBefore = 100'000'000'000;
    return Load(
        sim::Steps({{kBefore + ns(from), idle}, {ns(to) - ns(from), high}, {1'000'000'000, idle}},
                   false, -kBefore));
  }
  /// A square wave for ever, rising at `phase`.
  static Load square(double period, double duty, double high, double low, double phase = 0) {
    return Load(sim::Steps::square(low, high, ns(period), duty, ns(phase)));
  }
  /// Switches at random: exponentially distributed times of mean `dwell`.
  static Load telegraph(double dwell, double high, double low, double from, double to,
                        std::mt19937& random) {
    std::exponential_distribution<double> time(1 / dwell);
    std::vector<sim::Step> steps;
    bool up = random() % 2 == 0;
    for (double t = from; t < to; up = !up) {
      const double length = std::max(1e-6, time(random));
      steps.push_back({ns(length), up ? high : low});
      t += length;
    }
    return Load(sim::Steps(std::move(steps), false, ns(from)));
  }
};

/// What is watched, and how: polls `poll` seconds apart from `lead` before the window to `tail`
/// after it.
struct Watching {
  double begin = 0, end = 1;
  double poll = 0;  ///< 0: only the edges are read, as of a counter that cannot wrap.
  double phase = 0;
  double lead = 3, tail = 0;
  bool aligned = false;  ///< Ticks of the sensor are looked for, half a millisecond apart.
  std::vector<double> marks{};
};

/// Raw reading at an instant, in seconds.
using Read = std::function<std::uint64_t(double)>;

inline Sample sample(const Read& read, double t) { return {instant(t), read(t)}; }

/// Publications seen by polling every half millisecond from `from` to `to`.
inline std::vector<Tick> ticks(const Read& read, double from, double to) {
  constexpr double kStep = 0.0005;
  std::vector<Tick> out;
  for (double t = from; t + kStep <= to; t += kStep) {
    if (const auto raw = read(t + kStep); raw != read(t)) {
      out.push_back({instant(t), instant(t + kStep), raw});
    }
  }
  return out;
}

/// The record of a window over polls that were taken anyhow, in order of time.
inline Measurement record_of(SensorInfo info, std::span<const Sample> polls, const Edge& begin,
                             const Edge& end) {
  auto subject = std::make_shared<Subject>();
  subject->domains = DomainTree({info.domain});
  Measurement m;
  Measurement::Series s;
  s.begin = begin;
  s.end = end;
  Track track;
  for (const Sample& p : polls) {
    if (p.at() <= begin.sample.at()) {
      ++s.earlier;
    } else if (p.at() < end.sample.at()) {
      ++s.count;
    } else {
      ++s.later;
    }
    if (p.at() > end.sample.at()) continue;
    follow(track, info, p, Duration::max());
    (p.at() <= begin.sample.at() ? s.before_begin : s.before_end) = track;
  }
  if (!s.before_end.valid()) s.before_end = s.before_begin;
  s.first = s.earlier;
  m.between.assign(polls.begin(), polls.end());
  m.series.push_back(s);
  m.begin = begin.sample.at();
  m.end = end.sample.at();
  subject->sensors.push_back(std::move(info));
  m.subject = subject;
  return m;
}

inline Measurement observe(const SensorInfo& info, const Read& read, const Watching& how) {
  std::vector<Sample> polls;
  if (how.poll > 0) {
    for (double t = how.begin - how.lead + how.phase; t <= how.end + how.tail; t += how.poll) {
      polls.push_back(sample(read, t));
    }
  }
  Measurement m =
      record_of(info, polls, {sample(read, how.begin), {}}, {sample(read, how.end), {}});
  for (const double t : how.marks) m.marks.push_back(instant(t));
  m.aligned = how.aligned;
  if (how.aligned && info.quantity == Quantity::energy) {
    const double update = std::chrono::duration<double>(info.profile.update).count();
    auto before = ticks(read, how.begin - 3 * update, how.begin);
    const auto after = ticks(read, how.end, how.end + 5 * update);
    auto& s = m.series.front();
    if (before.size() > 2) before.erase(before.begin(), before.end() - 2);
    std::copy(before.rbegin(), before.rend(), s.lead.rbegin());
    std::copy_n(after.begin(), std::min(after.size(), s.tail.size()), s.tail.begin());
  }
  return m;
}

}  // namespace zeus::test
