#pragma once

// True power over time: what a perfect meter would see. Times are nanoseconds since the epoch of
// the session, and may lie before it: a sensor that averages over the last second asks for them.

#include <cstdint>
#include <limits>
#include <vector>

namespace zeus::sim {

using Ns = std::int64_t;
inline constexpr Ns kForever = std::numeric_limits<Ns>::max();
/// No duration of a scenario is longer, so that sums of some of them do not overflow.
inline constexpr Ns kLongest = 10LL * 365 * 86400 * 1'000'000'000;
inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

inline double seconds(Ns t) { return static_cast<double>(t) * 1e-9; }

struct Step {
  Ns length;
  double watts;
};

/// A constant stretch of power: [begin, end).
struct Piece {
  Ns begin, end;
  double watts;
};

/// Power as steps, once or for ever. Everything else is made of this: a constant is one step, a
/// square wave two, a recorded trace many. A power limit caps each step.
class Steps {
 public:
  static Steps constant(double watts);
  /// High for `duty` of each period; the first rising edge is at `phase`.
  static Steps square(double low, double high, Ns period, double duty, Ns phase);
  /// The first step begins at 0. Without `repeat`, the first value holds before and the last after.
  /// Every length must be positive.
  Steps(std::vector<Step> steps, bool repeat, Ns shift = 0);

  /// The stretch that `t` lies in, uncapped.
  Piece piece(Ns t) const noexcept;
  /// Energy of [a, b], a <= b, exact but for rounding. Each stretch is capped at `limit` watts.
  double joules(Ns a, Ns b, double limit = kNoLimit) const noexcept;
  double lowest() const noexcept { return lowest_; }
  double highest() const noexcept { return highest_; }

 private:
  struct Place {
    std::int64_t cycle;
    std::size_t index;
    Ns inside;  // Time since the start of the cycle.
  };
  Place place(Ns t) const noexcept;
  double before(std::size_t index, double limit) const noexcept;  // Joules of a cycle up to a step.
  double since_start(const Place& p, double limit) const noexcept;

  std::vector<Ns> starts_;
  std::vector<double> watts_;
  std::vector<double> joules_;  // Joules of the cycle before each step; one more for the whole.
  Ns length_ = 0;
  Ns shift_ = 0;
  bool repeat_ = false;
  double lowest_ = 0, highest_ = 0;
};

}  // namespace zeus::sim
