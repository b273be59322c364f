#include "sim/sensor.h"

#include <algorithm>
#include <cmath>

namespace zeus::sim {

namespace {

// Rounding of binary fractions must not cost a whole quantum: 100 W for 0.1 s is 10 J.
constexpr double kSlack = 1e-3;

double whole(double x) { return std::floor(x + kSlack); }

// First-order response at `t`: the past weighs less the older it is, and 24 time constants ago it
// weighs nothing.
double decayed(const Truth& truth, Ns t, double tau) {
  double sum = 0, weight = 1;
  for (Ns at = t; weight > 4e-11;) {
    const Piece p = truth.piece(at - 1);
    const double left = p.begin == -kForever ? 0 : std::exp(-seconds(t - p.begin) / tau);
    sum += p.watts * (weight - left);
    weight = left;
    at = p.begin;
  }
  return sum;
}

}  // namespace

std::uint64_t mix(std::uint64_t x) noexcept {  // The finaliser of SplitMix64 (Steele et al. 2014).
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double spread(std::uint64_t seed, std::uint64_t index) noexcept {
  return static_cast<double>(mix(mix(seed) ^ index) >> 11) * 0x1p-53;
}

Ns Comb::tick(std::int64_t k) const noexcept {
  const Ns even = phase + k * update;
  if (jitter == 0) return even;
  const double u = 2 * spread(seed, static_cast<std::uint64_t>(k)) - 1;
  return even + static_cast<Ns>(u * static_cast<double>(jitter));
}

std::int64_t Comb::last(Ns t) const noexcept {
  const Ns inside = t - delay - phase;
  std::int64_t k = inside / update - (inside % update < 0 ? 1 : 0);
  if (jitter != 0) {  // A neighbour may have moved past `t`, or this one may not be out yet.
    if (tick(k + 1) <= t - delay) ++k;
    if (tick(k) > t - delay) --k;
  }
  return k;
}

std::int64_t PowerSensor::quanta(const Truth& truth, Ns t) const noexcept {
  const Ns tick = comb.tick(comb.last(t));
  double watts = 0;
  if (kind == Kind::exponential) {
    watts = decayed(truth, tick, tau);
  } else if (kind == Kind::instant || window == 0) {
    watts = truth.piece(tick).watts;
  } else {
    watts = truth.joules(tick - window, tick) / seconds(window);
  }
  constexpr double kMost = 0x1p62;
  return static_cast<std::int64_t>(
      std::clamp(whole((gain * watts + offset) / quantum), -kMost, kMost));
}

double PowerSensor::read(const Truth& truth, Ns t) const noexcept {
  return static_cast<double>(quanta(truth, t)) * quantum;
}

double Counter::accumulated(const Truth& truth, Ns t) const noexcept {
  const std::int64_t last = comb.last(t);
  if (window == 0) return truth.joules(0, comb.tick(last));
  double sum = 0;
  Ns previous = comb.tick(0);
  for (std::int64_t k = 1; k <= last; ++k) {
    const Ns tick = comb.tick(k);
    sum += truth.joules(tick - window, tick) / seconds(window) * seconds(tick - previous);
    previous = tick;
  }
  return sum;
}

std::uint64_t Counter::quanta(const Truth& truth, Ns t,
                              const CounterEvents& events) const noexcept {
  t = std::min(t, events.frozen_at);
  double joules = accumulated(truth, t);
  double base = start;
  if (events.reset_at != -kForever && t >= events.reset_at) {
    joules -= accumulated(truth, events.reset_at);
    base = 0;
  }
  double shown = whole((base + gain * joules + events.step) / quantum);
  if (modulus > 0) {
    const double around = std::round(modulus / quantum);
    shown -= std::floor(shown / around) * around;
  }
  return to_count(shown);
}

double Counter::read(const Truth& truth, Ns t, const CounterEvents& events) const noexcept {
  return static_cast<double>(quanta(truth, t, events)) * quantum;
}

}  // namespace zeus::sim
