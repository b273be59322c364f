#include "measure/comb.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/numbers.h"

namespace zeus {
namespace {

constexpr std::size_t kFewestChanges = 20, kFewestOfKnownPeriod = 3;
constexpr double kShortest = 1;          // Seconds.
constexpr double kAgree = 0.95;          // Share of the brackets that must hold a tick.
constexpr double kWidest = 0.62;         // Mean bracket, in periods.
constexpr double kTolerance = 1.0 / 40;  // By which a tick may lie outside, in periods.
constexpr double kJitter = 1.0 / 200;    // That no bracket is believed to exclude, in periods.
constexpr std::size_t kEnds = 5;         // Brackets at either end of a block that bound T.
// Standard uncertainty of the half-sample mode, in half brackets.
constexpr double kModeUncertainty = 0.25;
// Mean brackets wider than that, in modes, leave the mode open to the polls' own period.
constexpr double kWide = 0.25;
// Periods from 1.7 down to 0.6 modes, in steps of a quarter of a peak's width: half a period is
// left out, since combs slip by it.
constexpr double kLongest = 1.7, kStretch = 32, kScanStep = 1 / (4 * kStretch), kNearly = 0.85;
constexpr std::size_t kScanned = 134;

double weight(double half_s, double period_s) noexcept {
  const double jitter = kJitter * period_s;
  return 1 / (half_s * half_s / 3 + jitter * jitter);
}

// The densest half of the densest half ... (Bickel and Fruehwirth 2006). Sorts `x`, not empty.
double half_sample_mode(std::span<double> x) noexcept {
  std::sort(x.begin(), x.end());
  while (x.size() > 3 && x.front() < x.back()) {
    const std::size_t half = (x.size() + 1) / 2;
    std::size_t best = 0;
    for (std::size_t i = 1; i + half <= x.size(); ++i) {
      if (x[i + half - 1] - x[i] < x[best + half - 1] - x[best]) best = i;
    }
    x = x.subspan(best, half);
  }
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

// The period in whose phase the instants `t`, in order, lie best, near the `mode` of their
// intervals: of the peaks of the periodogram near the highest the one of the longest period, since
// regular polls show a faster comb too, as an alias. It is taken over stretches of kStretch modes:
// longer ones hold slips.
double most_regular(std::span<const double> t, double mode) noexcept {
  std::array<double, kScanned> score{};
  const auto candidate = [&](std::size_t i) {
    return kLongest * mode * std::pow(1 - kScanStep, static_cast<double>(i));
  };
  for (std::size_t i = 0; i < kScanned; ++i) {
    const double turn = 2 * std::numbers::pi / candidate(i);
    double x = 0, y = 0, n = 0, begin = t.front();
    for (const double v : t) {
      if (v - begin > kStretch * mode) {
        score[i] += x * x + y * y - n;
        x = y = n = 0;
        begin = v;
      }
      x += std::cos(turn * (v - begin));
      y += std::sin(turn * (v - begin));
      ++n;
    }
    score[i] += x * x + y * y - n;
  }
  const double most = *std::max_element(score.begin(), score.end());
  std::size_t i = 1;
  while (i + 2 < kScanned &&
         (score[i] < kNearly * most || score[i] < score[i - 1] || score[i] < score[i + 1])) {
    ++i;
  }
  return candidate(i);
}

double share(double part, double whole) noexcept { return whole > 0 ? part / whole : 0; }

// Calls f(before, after) in seconds after the first poll, for every change seen.
template <class F>
void for_each_change(std::span<const Sample> polls, F f) {
  Sample last;
  for (const Sample& s : polls) {
    if (!s.ok()) {
      last = {};
    } else if (!last.ok() || s.at() > last.at()) {
      if (last.ok() && s.raw() != last.raw()) {
        f(seconds(last.at() - polls.front().at()), seconds(s.at() - polls.front().at()));
      }
      last = s;
    }
  }
}

}  // namespace

void CombFollower::Moments::add(double w, double number, double time) noexcept {
  weight += w;
  const double dn = number - n, dt = time - t;
  n += dn * w / weight;
  t += dt * w / weight;
  nn += w * dn * (number - n);
  nt += w * dn * (time - t);
  tt += w * dt * (time - t);
}

void CombFollower::feed(Sample sample) noexcept {
  if (!sample.ok()) {
    last_ = {};
    return;
  }
  if (origin_ == Instant{}) origin_ = sample.at();
  if (last_.ok()) {
    if (sample.at() <= last_.at()) return;
    if (sample.raw() != last_.raw()) {
      take({seconds(last_.at() - origin_), seconds(sample.at() - origin_)});
    }
  }
  last_ = sample;
}

void CombFollower::take(const Bracket& bracket) noexcept {
  if (mode_s_ > 0) {
    place(bracket);
    return;
  }
  first_[buffered_++] = bracket;
  if (buffered_ == kFirst) settle();
}

// Tells the first period, and places the brackets that waited for it.
void CombFollower::settle() noexcept {
  if (mode_s_ > 0 || buffered_ < 3) return;
  std::array<double, kFirst> intervals;
  double square = 0;
  for (std::size_t i = 0; i < buffered_; ++i) {
    if (i > 0) intervals[i - 1] = first_[i].middle() - first_[i - 1].middle();
    square += first_[i].half() * first_[i].half();
  }
  half_s_ = std::sqrt(square / static_cast<double>(buffered_));
  mode_s_ = half_sample_mode({intervals.data(), buffered_ - 1});
  double uncertainty = kModeUncertainty * half_s_;
  if (2 * half_s_ > kWide * mode_s_) {
    std::array<double, kFirst> middles;
    for (std::size_t i = 0; i < buffered_; ++i) middles[i] = first_[i].middle();
    mode_s_ = most_regular({middles.data(), buffered_}, mode_s_);
    uncertainty = kScanStep * mode_s_;
  }
  mode_information_ = 1 / std::pow(uncertainty + kJitter * mode_s_, 2);
  for (std::size_t i = 0; i < buffered_; ++i) place(first_[i]);
}

// The best period by now; the mode counts as one more measurement.
double CombFollower::period() const noexcept {
  return mode_s_ + (nt_ + open_.nt) / (mode_information_ + nn_ + open_.nn);
}

double CombFollower::tick(double number) const noexcept {
  return phase_t_ + period() * (number - phase_n_);
}

void CombFollower::place(const Bracket& bracket) noexcept {
  const double t = period();
  if (2 * bracket.half() >= t) return;  // It may hold two publications.
  if (in_phase_ == 0) {
    append(bracket, 0);
    return;
  }
  const double steps = std::max(1.0, std::round((bracket.middle() - tick(number_)) / t));
  const double information = mode_information_ + nn_ + open_.nn;
  if (steps / std::sqrt(information) > t / 4) {  // Too far to count the ticks between.
    lose_phase();
    append(bracket, 0);
    return;
  }
  const double off = std::abs(bracket.middle() - tick(number_ + steps));
  const double unsure = bracket.half() + half_s_ / static_cast<double>(in_phase_);
  if (off > std::clamp(unsure + t / 10, t / 4, t / 2)) {
    ++slips_;
    lose_phase();
    append(bracket, 0);
    return;
  }
  expected_ += steps;
  ++followed_;
  append(bracket, number_ + steps);
}

void CombFollower::append(const Bracket& bracket, double number) noexcept {
  if (in_block_ == kBlock) {
    close_block();
    phase_weight_ /= 2;
  }
  const double w = weight(bracket.half(), mode_s_), middle = bracket.middle();
  block_[in_block_++] = {bracket, number};
  open_.add(w, number, middle - number * mode_s_);
  phase_weight_ += w;
  phase_n_ += (number - phase_n_) * w / phase_weight_;
  phase_t_ += (middle - phase_t_) * w / phase_weight_;
  number_ = number;
  ++in_phase_;
  if (changes_++ == 0) begin_s_ = middle;
  end_s_ = middle;
  width_sum_s_ += 2 * bracket.half();
}

void CombFollower::lose_phase() noexcept {
  close_block();
  in_phase_ = 0;
  phase_weight_ = phase_n_ = phase_t_ = number_ = 0;
}

void CombFollower::close_block() noexcept {
  const double t = period();
  for (std::size_t i = 0; i < in_block_; ++i) {
    const Bracket& b = block_[i].bracket;
    if (std::abs(tick(block_[i].number) - b.middle()) <= b.half() + kTolerance * t) ++held_;
  }
  narrow_bounds();
  const double excess = t - mode_s_;
  weight_ += open_.weight;
  square_ += std::max(0.0, open_.tt - excess * (2 * open_.nt - excess * open_.nn));
  nn_ += open_.nn;
  nt_ += open_.nt;
  open_ = {};
  in_block_ = 0;
}

// Two brackets, n ticks apart, bound the period: ticks lie at the near or the far ends at most.
void CombFollower::narrow_bounds() noexcept {
  if (in_block_ < 2 * kEnds) return;
  for (std::size_t i = 0; i < kEnds; ++i) {
    for (std::size_t j = in_block_ - kEnds; j < in_block_; ++j) {
      const double n = block_[j].number - block_[i].number;
      low_s_ = std::max(low_s_, (block_[j].bracket.before - block_[i].bracket.after) / n);
      high_s_ = std::min(high_s_, (block_[j].bracket.after - block_[i].bracket.before) / n);
    }
  }
}

Comb CombFollower::comb() const noexcept {
  CombFollower all = *this;
  all.settle();
  all.close_block();
  Comb c;
  c.origin = origin_;
  c.changes = all.changes_;
  if (all.nn_ <= 0) return c;
  const auto changes = static_cast<double>(all.changes_);
  const double excess = all.nt_ / all.nn_;
  c.period_s = all.mode_s_ + excess;
  c.period_low_s = std::min({all.low_s_, all.high_s_, c.period_s});
  c.period_high_s = std::max({all.low_s_, all.high_s_, c.period_s});
  c.phase_s = all.phase_t_ + c.period_s * (std::round(all.phase_n_) - all.phase_n_);
  c.rms_s = std::sqrt(all.square_ / all.weight_);
  // The first bracket of a phase holds a tick whatever it is.
  const std::size_t free = all.changes_ - all.followed_;
  c.consistent = share(static_cast<double>(all.held_ - std::min(all.held_, free)),
                       static_cast<double>(all.followed_ + all.slips_));
  c.seen = share(static_cast<double>(all.followed_), all.expected_);
  c.accepted = all.followed_ + 1 >= kFewestChanges && all.end_s_ - all.begin_s_ >= kShortest &&
               c.consistent >= kAgree && all.width_sum_s_ / changes <= kWidest * c.period_s;
  return c;
}

Comb infer_comb(std::span<const Sample> polls) noexcept {
  CombFollower follower;
  for (const Sample& s : polls) follower.feed(s);
  return follower.comb();
}

Comb fit_phase(std::span<const Sample> polls, double period_s) noexcept {
  if (polls.empty() || !(period_s > 0)) return {};
  const double turn = 2 * std::numbers::pi / period_s;
  double x = 0, y = 0;
  for_each_change(polls, [&](double before, double after) {
    const double w = weight((after - before) / 2, period_s);
    x += w * std::cos(turn * (before + after) / 2);
    y += w * std::sin(turn * (before + after) / 2);
  });
  const double rough = std::atan2(y, x) / turn;

  double sum_w = 0, sum = 0, sum_square = 0, width = 0, first = 0, last = 0;
  Comb c{.period_s = period_s, .period_low_s = period_s, .period_high_s = period_s};
  c.origin = polls.front().at();
  const auto each = [&](double phase, auto f) {
    for_each_change(polls, [&](double before, double after) {
      if (after - before >= period_s) return;  // It may hold two publications.
      const double middle = (before + after) / 2, half = (after - before) / 2;
      f(middle, half, std::remainder(middle - phase, period_s));
    });
  };
  each(rough, [&](double middle, double half, double off) {
    if (c.changes++ == 0) first = middle;
    last = middle;
    width += 2 * half;
    if (std::abs(off) > std::max(half, period_s / 4)) return;
    const double w = weight(half, period_s);
    sum_w += w;
    sum += w * off;
    sum_square += w * off * off;
  });
  if (c.changes == 0 || sum_w <= 0) return {.origin = c.origin, .changes = c.changes};
  const double offset = sum / sum_w;
  c.phase_s = rough + offset;
  c.rms_s = std::sqrt(std::max(0.0, sum_square / sum_w - offset * offset));
  std::size_t held = 0;
  each(c.phase_s, [&](double, double half, double off) {
    if (std::abs(off) <= half + kTolerance * period_s) ++held;
  });
  const auto changes = static_cast<double>(c.changes);
  c.consistent = static_cast<double>(held) / changes;
  c.seen = share(changes - 1, std::round((last - first) / period_s));
  c.accepted = c.changes >= kFewestOfKnownPeriod && c.consistent >= kAgree &&
               width / changes <= kWidest * period_s;
  return c;
}

}  // namespace zeus
