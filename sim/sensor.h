#pragma once

// What a sensor shows of the true power: it publishes at the instants of a comb, averages in its
// own way, has a gain, an offset and a quantum. Every answer is a function of the instant asked.

#include <algorithm>
#include <optional>

#include "sim/power.h"

namespace zeus::sim {

/// The true power of one device, as sensors look at it.
class Truth {
 public:
  virtual ~Truth() = default;
  virtual Piece piece(Ns t) const noexcept = 0;          ///< Capped by the limit of that time.
  virtual double joules(Ns a, Ns b) const noexcept = 0;  ///< Of [a, b]; negative if b < a.
};

/// The instants at which a sensor publishes: phase + k * update, each moved by up to `jitter`.
struct Comb {
  Ns update = 100'000'000;
  Ns phase = 0;
  Ns delay = 0;   ///< A published value becomes readable this much later.
  Ns jitter = 0;  ///< Below half of `update`.
  std::uint64_t seed = 0;

  Ns tick(std::int64_t k) const noexcept;
  /// Number of the last publication that can be read at `t`.
  std::int64_t last(Ns t) const noexcept;
};

struct PowerSensor {
  enum class Kind { instant, boxcar, exponential };
  Comb comb;
  Kind kind = Kind::boxcar;
  Ns window = 0;  ///< Of a boxcar: shorter than the update it samples, longer it is a running mean.
  double tau = 0;  ///< Time constant of an exponential sensor, in seconds.
  double gain = 1, offset = 0, quantum = 1e-3;  ///< watts

  /// Watts as shown at `t`.
  double read(const Truth& truth, Ns t) const noexcept;
  /// The same in whole quanta.
  std::int64_t quanta(const Truth& truth, Ns t) const noexcept;
};

/// Things that happened to a counter besides energy.
struct CounterEvents {
  Ns frozen_at = kForever;  ///< Shows what it showed then.
  Ns reset_at = -kForever;  ///< Began again at zero then.
  double step = 0;          ///< Joules added by a fault; negative for a step back.
};

struct Counter {
  Comb comb;
  double gain = 1;
  double quantum = 1e-3;  ///< Joules; steps of the counter.
  double start = 1e4;     ///< Joules shown at the epoch.
  double modulus = 0;     ///< Joules at which it wraps; 0: never.
  Ns window = 0;          ///< If set, it integrates only the last `window` of each update.

  /// Joules as shown at `t`, a multiple of the quantum.
  double read(const Truth& truth, Ns t, const CounterEvents& events = {}) const noexcept;
  /// The same in whole quanta: exact where a double of joules would not be.
  std::uint64_t quanta(const Truth& truth, Ns t, const CounterEvents& events = {}) const noexcept;

 private:
  double accumulated(const Truth& truth, Ns t) const noexcept;  // True or sampled, since the epoch.
};

/// A number of 64 bits, or the nearest that there is.
inline std::uint64_t to_count(double x) noexcept {
  constexpr double kMost = 0x1p63;
  return x > 0 ? static_cast<std::uint64_t>(std::min(x, kMost)) : 0;
}

/// Fraction in [0, 1) that belongs to `seed` and `index`: spreads phases.
double spread(std::uint64_t seed, std::uint64_t index) noexcept;
std::uint64_t mix(std::uint64_t x) noexcept;

}  // namespace zeus::sim
