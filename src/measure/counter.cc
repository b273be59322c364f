#include <algorithm>
#include <cmath>
#include <optional>

#include "measure/coverage.h"
#include "measure/passage.h"
#include "measure/track.h"
#include "measure/view.h"

namespace zeus::estimators {
namespace {

/// The powers at the edges of a window: what was used before it and not yet shown when it began,
/// and what was used in it and not yet shown when it ended. Each is that of the last stretch
/// between samples before the edge; where there was none before the window, of the first one in it.
/// A step is how much it differs from its neighbour: what it was at the edge itself lies in
/// between. A stretch does not begin and end with updates either, so that its power has an error of
/// its own.
struct EdgePower {
  double in = kNan, out = kNan, u_in = 0, u_out = 0;
  bool told = false;  // What came before the window was seen.

  EdgePower(const View& v, double mean) : least_(0.9 * v.update()), update_(v.update()) {
    // Before the window.
    for (const Sample& s : v.polls.first(v.series.earlier)) to(v.info, s);
    if (stretches_ > 1) {
      in = last_;
      u_in = u_;
    }
    const bool known = !std::isnan(in);
    *this = EdgePower(in, u_in, least_, update_);
    told = known;
    last_ = in;  // The neighbour of the first stretch in the window.
    to(v.info, v.series.begin.sample);
    for (const Sample& s : v.between) to(v.info, s);
    to(v.info, v.series.end.sample);
    if (!known && stretches_ > 0) {
      in = first_;
      u_in = first_u_;
    }
    if (stretches_ > 0) {
      out = last_;
      u_out = u_;
    }
    if (std::isnan(out)) out = mean;
    if (std::isnan(in)) in = mean;
  }

 private:
  EdgePower(double power, double u, double least, double update)
      : in(power), u_in(u), least_(least), update_(update) {}

  void to(const SensorInfo& info, const Sample& next) {
    follow(track_, info, next, Duration::max());
    const bool broken = track_.resets + track_.gaps != mark_.resets + mark_.gaps;
    if (!mark_.valid() || broken) mark_ = track_;
    const double dt = seconds(track_.at - mark_.at);
    // A stretch is at least a whole update long, but for the jitter of who samples.
    if (dt <= 0 || dt < least_) return;
    const double joules = static_cast<double>(track_.total - mark_.total) * info.scale;
    const double most = dt - update_ / 2;
    // Half an update of the first one in the window was used before it.
    const bool begins = stretches_ == 0 && !std::isnan(last_);
    const double power = begins ? std::max(0.0, joules - last_ * update_ / 2) / most : joules / dt;
    const double own = power * update_ / (std::sqrt(6.0) * most);
    const double step = std::isnan(last_) ? 0 : std::abs(power - last_);
    u_ = std::hypot(own, step / std::sqrt(3.0));
    if (stretches_ == 0) first_ = power, first_own_ = own;
    if (stretches_++ < 2) first_u_ = std::hypot(first_own_, step / std::sqrt(3.0));
    last_ = power;
    mark_ = track_;
  }

  Track track_, mark_;
  double least_, update_, last_ = kNan, first_ = kNan, u_ = 0, first_own_ = 0, first_u_ = 0;
  std::size_t stretches_ = 0;
};

/// The powers at the edges where nobody read the counter before the window: as the power sensor
/// beside it shows them, if it is quick enough. Else what came before may have been anything from
/// nothing to twice the power in the window: a burst out of idle, or the end of one.
void look_beside(EdgePower& power, const View* beside) {
  const auto quick = [](const SensorProfile& p) {
    return p.kind == SensorKind::instant || (p.kind == SensorKind::boxcar && p.window <= p.update);
  };
  const bool shown = beside != nullptr && quick(beside->info.profile) &&
                     beside->series.begin.sample.ok() && beside->series.end.sample.ok();
  if (!shown) {
    power.u_in = std::hypot(power.u_in, power.in / std::sqrt(3.0));
    return;
  }
  const auto watts = [&](const Sample& s) {
    return static_cast<double>(s.raw()) * beside->info.scale;
  };
  // A reading may be an update old: how far it is from the one before tells what that can mean.
  const auto unsure = [&](const Sample& edge, std::span<const Sample> before) {
    for (auto i = before.rbegin(); i != before.rend(); ++i) {
      if (i->ok()) return std::abs(watts(edge) - watts(*i)) / std::sqrt(3.0);
    }
    return watts(edge) / std::sqrt(3.0);
  };
  const auto earlier = beside->polls.first(beside->series.earlier);
  power.in = watts(beside->series.begin.sample);
  power.out = watts(beside->series.end.sample);
  power.u_in = unsure(beside->series.begin.sample, earlier);
  power.u_out = unsure(beside->series.end.sample, beside->between);
}

/// How long before `edge` a counter published what was read there: seen by polls that lie closer
/// together than its updates. Nothing where they do not.
struct Age {
  double seconds = 0, bracket = 0;
};
std::optional<Age> age_at(const View& v, const Edge& edge) {
  const Sample *older = nullptr, *change_from = nullptr, *change_to = nullptr;
  const auto look = [&](const Sample& s) {
    if (!s.ok()) return;
    if (older != nullptr && older->raw() != s.raw()) {
      change_from = older;
      change_to = &s;
    }
    older = &s;
  };
  for (const Sample& s : v.polls) {
    if (s.at() >= edge.sample.at()) break;
    look(s);
  }
  look(edge.sample);
  if (change_to == nullptr) return std::nullopt;
  const double bracket = seconds(change_to->at() - change_from->at());
  const double since = seconds(edge.sample.at() - change_to->at());
  if (bracket > v.update() / 2 || since > 1.1 * v.update()) return std::nullopt;
  return Age{since + bracket / 2, bracket};
}

/// The counter did not move. A short window may have fallen between two updates: then there is a
/// bound but no number. In a long one the counter is dead: then there is neither.
Estimate unmoved(const SensorInfo& info, double length, double update) {
  if (length >= std::max(10 * update, 1.0)) return without("counter", Refusal::lost, Flag::stalled);
  Estimate e = without("counter", Refusal::no_update, Flag::below_resolution);
  if (info.profile.power_max_w > 0) e.high = info.profile.power_max_w * (length + update);
  return e;
}

/// From the last update before the window to the first one after it, less what was used in the
/// pads between them and the window (5.1, "bracketed").
struct Bracketed {
  double joules = 0, u_pads = 0, u_ticks = 0;
};

double middle(const View& v, const Tick& t) { return (v.place(t.before) + v.place(t.after)) / 2; }

std::optional<Bracketed> bracketed(const View& v) {
  const auto& [early, a] = v.series.lead;
  const auto& [b, c, d] = v.series.tail;
  if (!v.m.aligned || !a.valid() || !b.valid() || !c.valid() || !d.valid()) return std::nullopt;
  const auto units = [&](std::uint64_t from, std::uint64_t to) {
    return static_cast<double>(to - from) * v.info.scale;
  };
  if (b.raw < a.raw || c.raw < b.raw || d.raw < c.raw) return std::nullopt;  // It wrapped.
  const double length = v.length();
  const double pre = -middle(v, a), post = middle(v, b) - length;
  const auto power = [&](const Tick& from, const Tick& to) {
    const double dt = middle(v, to) - middle(v, from);
    return dt > 0 ? units(from.raw, to.raw) / dt : 0;
  };
  const double p_post = power(b, c), p_next = power(c, d);
  // Before the window the last update just passed, where there is one counter: the power of its
  // pad, then only a poll long, may be anything up to that.
  const bool steady = early.valid() && early.raw < a.raw;
  const double p_pre = steady ? power(early, a) : p_post;
  const double u_pre = steady ? std::abs(p_pre - p_post) / std::sqrt(3.0) : p_pre;
  const double u_post = std::abs(p_post - p_next) / std::sqrt(3.0);
  const double width_a = seconds(a.after - a.before), width_b = seconds(b.after - b.before);
  Bracketed out;
  out.joules = units(a.raw, b.raw) - p_pre * pre - p_post * post;
  out.u_pads = std::hypot(u_pre * pre, u_post * post);
  // Each tick is somewhere in its bracket, within a pad.
  out.u_ticks = std::hypot(p_pre * width_a, p_post * width_b) / std::sqrt(12.0);
  return out;
}

/// What a counter may not have seen (5.1, last item): nothing where it is proven to see all. Where
/// nobody knows, as much as the power sensor beside it does not see.
void cover(Estimate& e, const View& v, const View* beside) {
  const auto& p = v.info.profile;
  e.coverage = p.coverage.value_or(kNan);
  if (p.coverage && *p.coverage >= 0.95) return;
  if (!p.coverage) e.flags = e.flags | Flag::coverage_unverified;
  if (p.coverage) e.flags = e.flags | Flag::partial_coverage;
  if (beside == nullptr) {
    if (p.coverage && p.power_max_w > 0) {
      e.budget.coverage =
          (1 - *p.coverage) * v.length() * (p.power_max_w - p.power_min_w) / std::sqrt(12.0);
      e.flags = e.flags | Flag::coverage_unverified;
    }
    return;
  }
  const Hidden hidden = hidden_load(*beside, Publications(*beside), p.coverage);
  // It may well see all: what a blind sensor could miss at worst is no estimate of its error.
  if (p.coverage || !hidden.guessed) e.budget.coverage = hidden.u_j;
  e.flags = e.flags | (p.coverage ? hidden.flags : hidden.flags & Flag::aliased);
  e.alias = hidden.alias;
}

}  // namespace

Estimate from_counter(const View& v, const View* beside) noexcept {
  const SensorInfo& info = v.info;
  const auto& s = v.series;
  if (!s.begin.sample.ok() || !s.end.sample.ok()) return without("counter", Refusal::lost);
  const Passage gain(v);
  const double t_u = v.update(), p_max = info.profile.power_max_w;
  const double joules = gain.units() * info.scale, length = gain.length();
  const auto brackets = bracketed(v);
  if (gain.units() == 0 && !gain.any(&Track::resets) && !(brackets && brackets->joules > 0)) {
    return unmoved(info, length, t_u);
  }

  EdgePower power(v, length > 0 ? joules / length : 0);
  if (!power.told) look_beside(power, beside);
  const Margin margin(v);
  const double slack0 = seconds(s.begin.slack), slack1 = seconds(s.end.slack);
  Estimate e{.method = "counter"};
  e.update_s = t_u;
  e.budget.quantum = info.scale / std::sqrt(6.0);
  if (brackets && !gain.any(&Track::resets)) {
    e.method = "bracketed";
    e.value = std::max(0.0, brackets->joules);
    e.budget.edges = brackets->u_pads;
    e.budget.timing = brackets->u_ticks;
  } else {
    const auto age0 = age_at(v, s.begin), age1 = age_at(v, s.end);
    const double outside = margin.energy(power.in, power.out);
    const bool aged = age0 && age1;
    // What the counter had not yet shown at either edge.
    const double hidden = aged ? power.out * age1->seconds - power.in * age0->seconds
                               : (power.out - power.in) * t_u / 2;
    const double spread0 = aged ? age0->bracket : t_u, spread1 = aged ? age1->bracket : t_u;
    const double stale0 = aged ? age0->seconds : t_u / 2, stale1 = aged ? age1->seconds : t_u / 2;
    e.value = std::max(0.0, joules - outside + hidden);
    e.budget.edges =
        std::hypot(std::hypot(power.in * spread0, power.out * spread1) / std::sqrt(12.0),
                   std::hypot(power.u_in * stale0, power.u_out * stale1));
    e.budget.timing = std::hypot(std::hypot(power.in * slack0, power.out * slack1) / std::sqrt(3.0),
                                 margin.uncertainty(power.in, power.out));
  }
  if (gain.any(&Track::resets)) {
    e.flags = e.flags | Flag::reset;
    e.refusal = Refusal::fell;
  }
  if (gain.any(&Track::gaps)) {
    e.flags = e.flags | Flag::gap;
    e.refusal = Refusal::wrap_unknown;
  }
  cover(e, v, beside);

  const double half = p_max > 0 ? p_max * (t_u + slack0 + slack1) + info.scale : kInfinity;
  const double unseen = gain.unseen() > 0 ? (p_max > 0 ? p_max * gain.unseen() : kInfinity) : 0;
  e.low = std::max(0.0, joules - half - p_max * (margin.before + margin.after));
  e.high = joules + half + unseen;
  if (info.profile.coverage && *info.profile.coverage < 0.95) {
    // Of what it does not look at only the device's range is known.
    const double c = *info.profile.coverage, dark = (1 - c) * v.length();
    e.low = std::max(0.0, c * e.low + info.profile.power_min_w * dark);
    e.high = p_max > 0 ? c * e.high + p_max * dark : kInfinity;
  }
  finish(e, info, v.length());
  if (info.profile.power_min_w > 0 && v.length() > 0 && e.refusal == Refusal::none &&
      e.value + 3 * e.u_cmp < 0.2 * info.profile.power_min_w * v.length()) {
    e.refusal = Refusal::implausible;
  }
  return e;
}

}  // namespace zeus::estimators
