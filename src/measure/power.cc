#include <algorithm>
#include <cmath>

#include "measure/coverage.h"
#include "measure/passage.h"
#include "measure/publications.h"
#include "measure/track.h"
#include "measure/view.h"

namespace zeus::estimators {
namespace {

/// A sum with its bound.
struct Sum {
  double joules = 0, low = 0, high = 0, variance = 0, covered_s = 0;

  void exact(double e) { between(e, e, 0); }
  /// Somewhere from `from` to `to`: in the middle, with a rectangular distribution.
  void between(double from, double to, double spread_low = 1) {
    joules += (from + to) / 2;
    low += from;
    high += to;
    variance += spread_low > 0 ? (to - from) * (to - from) / 12 : 0;
  }
};

/// Readings that are means over the time since the one before (5.2): each is assigned to that time.
/// Of the two that lie partly within the window, the part is known no better than the range of the
/// device allows.
Sum full(const View& v, const Publications& pub, const Range& range) {
  const double length = v.length(), t_u = pub.period_s;
  Sum sum;
  double reached = 0, last = 0;
  for (std::size_t i = 0; i < pub.count; ++i) {
    const auto& [end, watts, seen] = pub.values[i];
    const double from = std::max(end - t_u, 0.0), to = std::min(end, length);
    if (to <= from) continue;
    const double inside = to - from, outside = std::max(0.0, t_u - inside);
    if (!seen) {
      sum.between(range.device_low * inside, range.device_high * inside);
    } else if (outside < 1e-9 * t_u) {
      sum.exact(watts * inside);
    } else {
      const double all = watts * t_u;
      const double low = std::max(range.device_low * inside, all - range.device_high * outside);
      const double high = std::min(range.device_high * inside, all - range.device_low * outside);
      sum.between(std::min(low, high), std::max(low, high));
    }
    sum.covered_s += seen ? inside : 0;
    reached = std::max(reached, to);
    last = watts;
  }
  // What was not yet published when the window ended.
  if (const double open = length - reached; open > 0 && pub.count > 0) {
    const double low = range.device_low * open, high = range.device_high * open;
    sum.joules += std::clamp(last * open, low, high);
    sum.low += low;
    sum.high += high;
    sum.variance += (high - low) * (high - low) / 12;
  }
  return sum;
}

/// Readings of a part of the time (5.4): those wholly within the window stand for the time around
/// them.
Sum partial(const View& v, const Publications& pub, const Range& range, double window) {
  const double length = v.length();
  Sum sum;
  double previous = kNan, watts = 0, from = 0;
  std::size_t n = 0;
  for (std::size_t i = 0; i < pub.count; ++i) {
    const auto& value = pub.values[i];
    const double slack = 2 * pub.instant_u_s;
    if (!value.seen || value.end_s - window < slack || value.end_s > length - slack) continue;
    const double centre = value.end_s - window / 2;
    if (n++ > 0) {
      const double border = (previous + centre) / 2;
      sum.joules += watts * (border - from);
      from = border;
    }
    previous = centre;
    watts = value.watts;
    sum.low += watts * window;
  }
  if (n == 0) return sum;
  sum.joules += watts * (length - from);
  sum.covered_s = static_cast<double>(n) * window;
  const double dark = std::max(0.0, length - sum.covered_s);
  sum.high = sum.low + range.device_high * dark;
  sum.low += range.device_low * dark;
  return sum;
}

/// From the last reading before the window to the first that knows all of it, less the pads (5.2
/// and 5.3, bracketed): for windows that were aligned, with quiet power around.
struct Pads {
  bool known = false;
  double joules = 0, u = 0;
};

Pads padded(const View& v, const Publications& pub, const Range& range) {
  const double length = v.length(), t_u = pub.period_s;
  const double w = std::max(pub.window_s, t_u);
  const Publications::Value *before = nullptr, *older = nullptr, *end = nullptr, *after = nullptr;
  double sum = 0;
  bool whole = true;
  for (std::size_t i = 0; i < pub.count; ++i) {
    const auto& value = pub.values[i];
    if (value.end_s <= 0) {
      older = before;
      before = &value;
    } else if (end == nullptr) {
      sum += value.watts * t_u;
      whole = whole && value.seen;
      if (value.end_s >= length + (w > t_u ? w : 0)) end = &value;
    } else if (after == nullptr) {
      after = &value;
    }
  }
  if (!v.m.aligned || older == nullptr || end == nullptr || after == nullptr || !whole) return {};
  const double pre = -before->end_s, post = end->end_s - length;
  const double p_pre = before->watts, p_post = after->watts;
  // A reading that averages over more than an update is settled only when the next one agrees.
  const double u_pre = std::abs(before->watts - older->watts) / std::sqrt(3.0);
  const double u_post = std::abs(after->watts - end->watts) / std::sqrt(3.0);
  const bool settled = w <= t_u || (u_pre < 0.02 * range.seen() && u_post < 0.02 * range.seen());
  if (!settled) return {};
  const double lag = std::max(0.0, pub.window_s - t_u) / 2;
  Pads out;
  out.known = true;
  out.joules = sum - p_pre * pre - p_post * post + (p_post - p_pre) * lag;
  const double settled_post = w <= t_u ? 0 : u_post;
  out.u = std::hypot(u_pre * (pre + lag), settled_post * (post + lag));
  return out;
}

/// What a reading that follows the load late misses of a window, from its rise in it (5.3, 5.5): a
/// running mean over W half of it, or W - L / 2 where the window is shorter; a first-order sensor
/// its time constant.
double lag_s(const SensorInfo& info, const Publications& pub, double length) {
  const double w = seconds(info.profile.window);
  if (info.profile.kind == SensorKind::exponential) return seconds(info.profile.tau);
  if (w <= seconds(info.profile.update) || pub.sharp) return 0;
  return length >= w ? w / 2 : w - length / 2;
}

bool is_running(const SensorInfo& info, const Publications& pub) {
  if (pub.sharp) return false;
  return info.profile.kind == SensorKind::running ||
         (info.profile.kind == SensorKind::unknown && info.profile.window > info.profile.update);
}

/// The part of the uncertainty that the lag brings.
double lag_u(const SensorInfo& info, double rise, double lag) {
  if (info.profile.kind == SensorKind::exponential) {
    return std::abs(rise) * seconds(info.profile.tau_u);
  }
  return std::abs(rise * lag) / std::sqrt(3.0);
}

/// Power held from each poll to the next: for polls that do not tell one publication from the next.
Estimate held(const View& v, const Passage& h, const Publications& pub) {
  const SensorInfo& info = v.info;
  const Margin margin(v);
  Estimate e{.method = "integrated"};
  const double in = static_cast<double>(h.from.raw) * info.scale;
  const double out = static_cast<double>(h.to.raw) * info.scale;
  const double length = h.length(), lag = lag_s(info, pub, length), t_u = v.update();
  e.value =
      std::max(0.0, h.units() * 1e-6 * info.scale - margin.energy(in, out) + (out - in) * lag);
  e.budget.edges = std::sqrt(h.rough() / 12) * (t_u + length / h.stretches()) * info.scale;
  // Each change was seen late, by up to an update and a poll: over a window in which power rose or
  // fell on the whole this does not cancel, and where in that time it came is not known.
  const double late = t_u + length / h.stretches();
  e.budget.lag = lag > 0 ? lag_u(info, out - in, lag) : std::abs(out - in) * late / std::sqrt(3.0);
  e.budget.timing = margin.uncertainty(in, out);
  const double p_max = info.profile.power_max_w;
  const double lost = std::max(0.0, seconds(v.series.end.sample.at() - h.to.at));
  // Between two samples the load may have been anything.
  e.low = info.profile.power_min_w * v.length();
  e.high = p_max > 0 ? p_max * (length + lost) : kInfinity;
  e.coverage = kNan;
  const double share = t_u > 0 ? seconds(info.profile.window) / t_u : 0;
  if (info.profile.kind == SensorKind::boxcar && share > 0 && share < 0.95 && p_max > 0) {
    // What was looked at is known, but for the readings at the edges.
    const double looked = share * e.value, dark = (1 - share) * v.length();
    const double edges = 2 * (p_max - info.profile.power_min_w) * seconds(info.profile.window);
    e.low = std::max(e.low, looked - edges + info.profile.power_min_w * dark);
    e.high = std::min(e.high, looked + edges + p_max * dark);
  }
  return e;
}

Estimate from_sum(const Sum& sum, const char* method, double length) {
  Estimate e{.method = method};
  e.value = std::max(0.0, sum.joules);
  e.low = std::max(0.0, sum.low);
  e.high = sum.high;
  e.budget.edges = std::sqrt(sum.variance);
  e.coverage = length > 0 ? std::min(1.0, sum.covered_s / length) : 0;
  return e;
}

/// A reading at the edge of a window, held: for the rise of a sensor that lags.
double level(const Publications& pub, double at) {
  double watts = pub.values[0].watts;
  for (std::size_t i = 0; i < pub.count && pub.values[i].end_s <= at; ++i) {
    watts = pub.values[i].watts;
  }
  return watts;
}

/// A sensor that lags, without quiet pads.
Estimate lagging(const View& v, const Publications& pub, const Range& range, const char* method) {
  Estimate e = from_sum(full(v, pub, range), method, v.length());
  const double rise = level(pub, v.length()) - level(pub, 0);
  const double lag = lag_s(v.info, pub, v.length());
  e.value = std::max(0.0, e.value + rise * lag);
  e.budget.lag = lag_u(v.info, rise, lag);
  e.low = range.device_low * v.length();
  e.high = range.device_high * v.length();
  return e;
}

Estimate from_publications(const View& v, const Publications& pub) {
  const Range range(v);
  const SensorKind kind = v.info.profile.kind;
  const double length = v.length();
  const bool partly = kind == SensorKind::instant ||
                      (kind == SensorKind::boxcar && pub.window_s < 0.95 * pub.period_s);
  Estimate e;
  if (partly) {
    const double window = kind == SensorKind::instant ? 0 : pub.window_s;
    const Sum sum = partial(v, pub, range, window);
    if (sum.joules == 0 && sum.covered_s == 0) return without("partial", Refusal::no_update);
    e = from_sum(sum, "partial", length);
  } else if (const Pads pads = padded(v, pub, range); pads.known) {
    e = from_sum(full(v, pub, range), "bracketed", length);
    e.value = std::max(0.0, pads.joules);
    e.budget.edges = pads.u;
    if (is_running(v.info, pub)) {
      e.low = range.device_low * length;
      e.high = range.device_high * length;
    }
  } else if (kind == SensorKind::exponential) {
    e = lagging(v, pub, range, "exponential");
  } else if (is_running(v.info, pub)) {
    e = lagging(v, pub, range, "running_mean");
    e.flags = e.flags | Flag::no_pad;
  } else {
    e = from_sum(full(v, pub, range), "boxcar", length);
  }
  // What an error of the instants moves, and the bound with it.
  const double moved = range.device() * pub.instant_u_s;
  e.budget.timing = std::sqrt(2.0) * range.seen() * pub.instant_u_s;
  e.low = std::max(0.0, e.low - 4 * moved);
  e.high = range.known ? e.high + 4 * moved : kInfinity;
  const auto expected = length / pub.period_s;
  if (static_cast<double>(pub.missed) > 0.1 * expected) e.flags = e.flags | Flag::missed_ticks;
  return e;
}

}  // namespace

Estimate from_power(const View& v) noexcept {
  const SensorInfo& info = v.info;
  const auto& s = v.series;
  if (!s.begin.sample.ok() && !s.before_begin.valid() && v.polls.empty()) {
    return without("integrated", Refusal::lost);
  }
  const Passage h(v);
  if (h.to.polls == h.from.polls || h.length() <= 0) return without("integrated", Refusal::lost);
  const Publications pub(v);
  const bool running = info.profile.kind == SensorKind::running;
  const SensorKind kind = running && pub.sharp ? SensorKind::unknown : info.profile.kind;
  const bool fits = pub.resolved && kind != SensorKind::unknown && kind != SensorKind::model &&
                    s.begin.sample.ok() && s.end.sample.ok();
  Estimate e = fits ? from_publications(v, pub) : held(v, h, pub);
  if (!fits && is_running(info, pub)) e.flags = e.flags | Flag::no_pad;
  e.flags = e.flags | Flag::integrated;
  e.update_s = pub.period_s;
  if (e.refusal != Refusal::none) return e;
  if (pub.mismatch || (running && pub.sharp)) e.flags = e.flags | Flag::profile_mismatch;
  if (h.any(&Track::gaps)) e.flags = e.flags | Flag::gap;
  // The sensor died within the window: what it would have shown until the end is not known.
  if (!s.end.sample.ok() || !s.begin.sample.ok()) e.flags = e.flags | Flag::gap;
  e.budget.quantum = info.scale * v.length() / std::sqrt(12.0 * std::max(1.0, h.stretches()));
  if (!fits) {
    const double in = static_cast<double>(h.from.raw) * info.scale;
    const double out = static_cast<double>(h.to.raw) * info.scale;
    e.budget.timing = std::hypot(
        e.budget.timing,
        std::hypot(in * seconds(s.begin.slack), out * seconds(s.end.slack)) / std::sqrt(3.0));
  }
  const bool partly =
      kind == SensorKind::instant ||
      (kind == SensorKind::boxcar && pub.window_s > 0 && pub.window_s < 0.95 * pub.period_s);
  if (partly) {
    const Hidden hidden = hidden_load(v, pub);
    e.budget.coverage = hidden.u_j;
    e.flags = e.flags | hidden.flags;
    e.alias = hidden.alias;
    // The time from an edge to the reading next to it is half an update in the mean.
    if (fits) {
      e.budget.edges = hidden.swing_w * pub.period_s / (4 * std::sqrt(3.0)) * std::sqrt(2.0);
    }
    if (!fits && pub.period_s > 0) e.coverage = pub.window_s / pub.period_s;
  } else if (kind == SensorKind::unknown && !is_running(info, pub)) {
    e.flags = e.flags | Flag::coverage_unverified;
  } else if (!fits) {
    e.coverage = 1;
  }
  finish(e, info, v.length());
  const double most = info.profile.power_max_w * (v.length() + pub.period_s);
  if (most > 0 && e.value - 3 * e.u_abs > most) {
    e.refusal = Refusal::implausible;
  }
  return e;
}

}  // namespace zeus::estimators
