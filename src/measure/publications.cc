#include "measure/publications.h"

#include <algorithm>
#include <cmath>

#include "measure/kind.h"

namespace zeus::estimators {
namespace {

/// The mean distance of two polls, in seconds.
double poll_distance(std::span<const Sample> polls) {
  if (polls.size() < 2) return kInfinity;
  return seconds(polls.back().at() - polls.front().at()) / static_cast<double>(polls.size() - 1);
}

/// The kept samples reach over the whole window.
bool whole(const View& v, double period) {
  return !v.polls.empty() && v.place(v.polls.front().at()) <= period &&
         v.length() - v.place(v.polls.back().at()) <= period;
}

/// B2 of the specification. Real running means move up to half as much again from one reading to
/// the next as an ideal one does: half the window is allowed for.
bool too_sharp(const Publications& pub, const View& v) {
  const SensorProfile& p = v.info.profile;
  if (p.power_max_w <= 0) return false;
  std::array<double, Publications::kMost> watts;
  for (std::size_t i = 0; i < pub.count; ++i) watts[i] = pub.values[i].watts;
  return rules_out_running_mean(std::span(watts).first(pub.count), Range(v).device(), pub.period_s,
                                pub.window_s / 2);
}

}  // namespace

Publications::Publications(const View& v) noexcept {
  const SensorProfile& p = v.info.profile;
  period_s = seconds(p.update);
  window_s = seconds(p.window);
  const double distance = poll_distance(v.polls);
  Comb comb = infer_comb(v.polls);
  if (comb.accepted) {
    mismatch = period_s > 0 && std::abs(comb.period_s - period_s) > 0.03 * period_s;
    period_s = comb.period_s;
  } else if (period_s > 0 && distance <= period_s / 2) {
    comb = fit_phase(v.polls, period_s);
    if (comb.changes == 0 || comb.rms_s > period_s / 8) return;
  } else {
    return;
  }
  if (distance > period_s / 2 || !whole(v, period_s)) return;
  if (v.length() / period_s > static_cast<double>(kMost) / 2) return;

  const double bracket = distance / std::sqrt(12.0);
  const double jitter = std::sqrt(std::max(0.0, comb.rms_s * comb.rms_s - bracket * bracket));
  instant_u_s = std::hypot(
      std::max(comb.rms_s, bracket) / std::sqrt(std::max(1.0, static_cast<double>(comb.changes))),
      jitter);

  // Each publication is taken from the poll that lies nearest to the middle of its time.
  const double first = v.place(comb.origin) + comb.phase_s, delay = seconds(p.delay);
  const double around = std::max(2 * period_s, window_s) + 2 * period_s;
  double best = kInfinity, watts = 0, index = 0;
  const auto put = [&](double k, double w, bool was_seen) {
    if (count == kMost) return;
    values[count++] = {first + k * period_s - delay, w, was_seen};
    missed += was_seen ? 0 : 1;
  };
  for (const Sample& s : v.polls) {
    if (!s.ok()) continue;
    const double at = v.place(s.at());
    if (at < -around || at > v.length() + around) continue;
    const double turns = (at - first) / period_s, k = std::floor(turns);
    const double off = std::abs(turns - k - 0.55);
    if (best < kInfinity && k > index) {
      put(index, watts, true);
      const auto steps = static_cast<std::size_t>(k - index);
      for (std::size_t i = 1; i < steps && count < kMost; ++i) {
        put(index + static_cast<double>(i), watts, false);
      }
      best = kInfinity;
    }
    if (best == kInfinity || off < best) {
      best = off;
      watts = static_cast<double>(s.raw()) * v.info.scale;
      index = k;
    }
  }
  if (best < kInfinity) put(index, watts, true);
  resolved = count > 0 && count < kMost;
  sharp = resolved && missed == 0 && too_sharp(*this, v);
}

Range::Range(const View& v) noexcept {
  const SensorProfile& p = v.info.profile;
  const auto shown = [&p](double watts) { return p.gain * watts + p.offset_w; };
  known = p.power_max_w > 0;
  std::uint64_t least = v.series.before_end.least, greatest = v.series.before_end.greatest;
  for (const Sample& s : v.polls) {
    if (!s.ok()) continue;
    least = std::min(least, s.raw());
    greatest = std::max(greatest, s.raw());
  }
  for (const Sample& s : {v.series.begin.sample, v.series.end.sample}) {
    if (!s.ok()) continue;
    least = std::min(least, s.raw());
    greatest = std::max(greatest, s.raw());
  }
  if (least <= greatest) {
    seen_low = static_cast<double>(least) * v.info.scale;
    seen_high = static_cast<double>(greatest) * v.info.scale;
  }
  device_low = std::max(0.0, std::min(shown(p.power_min_w), seen_low));
  device_high = known ? std::max(shown(p.power_max_w), seen_high) : seen_high;
}

}  // namespace zeus::estimators
