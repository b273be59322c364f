#pragma once

// Comparisons of programs by repeated runs: in which order to run them, when to start them, and
// what their results say. Knows no device: any quantity of a run will do.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "solve/statistics.h"

namespace zeus::solve {

/// In what order the runs of a comparison are made.
enum class Order : std::uint8_t {
  random,       ///< Blocks that hold every command once, each in an order drawn for it.
  interleaved,  ///< Blocks that hold every command once, in the order given.
  sequential    ///< All runs of a command, then all of the next.
};
const char* to_string(Order order) noexcept;

/// One run to be made. Of a sequential order `block` counts the runs of the command.
struct Turn {
  std::size_t command = 0, block = 0;
};

/// Every command `runs` times. The random order is a randomised complete block design: what drifts
/// more slowly than a block lasts meets all commands alike (NIST/SEMATECH e-Handbook, 5.3.3.2).
std::vector<Turn> schedule(std::size_t commands, std::size_t runs, Order order, std::uint64_t seed);

/// Over how many phases of the sensor's period the starts of `runs` runs are spread: the most from
/// 4 to 8 that divide them evenly; 8 where none does, and no more than there are runs.
std::size_t phases(std::size_t runs) noexcept;

/// The first instant from `now` on that lies `k / n` of `period` behind a multiple of it, `k`
/// taken modulo `n`. Runs k = 0, 1, 2 ... so started meet a sensor of this period at evenly spread
/// phases, wherever its comb lies; what it hides of a load in step with it cancels in their mean
/// (specification of accuracy, T8). All in nanoseconds; no shift where `period` or `n` is 0.
std::int64_t next_start(std::int64_t now, std::int64_t period, std::size_t k,
                        std::size_t n) noexcept;

inline constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

/// One quantity of one run.
struct Outcome {
  std::size_t command = 0, block = 0;
  double value = kNoValue;  ///< Not finite or not positive: this run has no number.
  double u = 0;             ///< Standard uncertainty of this value alone.
  /// The part of it that all runs share, which no repetition averages out.
  double u_common = 0;
  double place = 0;               ///< Among all runs in the order in which they were made.
  double temperature = kNoValue;  ///< At its start; NaN: not known.
  bool usable() const noexcept { return value > 0 && value <= std::numeric_limits<double>::max(); }
};

/// Fewer values than this give no interval, fewer than `kAdvised` a poor one (specification of
/// accuracy, section 5.8).
inline constexpr std::size_t kLeast = 3, kAdvised = 5;

/// A number with its standard uncertainty, and the degrees of freedom that this has.
struct Uncertain {
  double value = kNoValue;
  double u = kNoValue;  ///< NaN: too few values to tell.
  double freedom = 0;

  /// The two-sided interval by Student's t. The ends of that of 0.90 are the one-sided limits
  /// of 95 %.
  std::array<double, 2> interval(double probability) const noexcept;
  /// P of a value at least so far from `null` if `null` were true; two-sided.
  double p(double null) const noexcept;
  /// The least difference that a test at 5 %, two-sided, finds in 80 % of studies with such an
  /// uncertainty: (t_0.975 + t_0.80) u (NIST/SEMATECH e-Handbook, 7.2.2.2).
  double detectable() const noexcept;
};

/// What the runs of one command say. Repetition narrows the scatter alone, the common part is added
/// undivided (specification of accuracy, section 5.8), with an infinity of degrees of freedom
/// (Welch-Satterthwaite, JCGM 100:2008, G.4.1).
struct Level {
  Summary summary;
  Uncertain mean;
};
Level level_of(std::span<const Outcome> outcomes, std::size_t command);

/// How much more a command needs than the reference. Of logarithms: what is compared is a ratio.
struct Comparison {
  std::size_t n = 0;    ///< Blocks with a number of both, or the runs of the one with fewer.
  bool paired = false;  ///< Within blocks; else by Welch's test.
  Uncertain log_ratio;  ///< The mean of ln(command) - ln(reference).

  double ratio() const noexcept;
  /// The interval of the ratio.
  std::array<double, 2> interval(double probability) const noexcept;
  double p() const noexcept { return log_ratio.p(0); }  ///< That both need the same.
  double detectable() const noexcept;                   ///< 0.02: a ratio of 1.02 is found.
};
/// By Student's t of the differences within blocks where the order has blocks: what drifts from
/// block to block cancels. By Welch's t where it has none (NIST/SEMATECH e-Handbook, 7.3.1).
Comparison compare(std::span<const Outcome> outcomes, std::size_t command, std::size_t reference,
                   Order order);

/// The 95 % interval of the ratio of the arithmetic means by the bootstrap, bias-corrected and
/// accelerated (Efron 1987, section 4; of two samples Davison and Hinkley 1997, section 5.3.2).
/// Blocks are drawn whole where the order has blocks. NaN where there are too few values. Knows
/// nothing of what the runs have in common.
std::array<double, 2> bootstrap_ratio(std::span<const Outcome> outcomes, std::size_t command,
                                      std::size_t reference, Order order, std::size_t draws = 4999);

/// How the logarithm of the values goes with something else, commands being allowed to differ.
struct Slope {
  double per_unit = kNoValue;  ///< 0.01: 1 % more for each unit.
  double t = kNoValue;
  double freedom = 0;
  bool drifts() const noexcept { return t > 2 || t < -2; }  ///< As section 5.8 has it.
};
Slope slope_of(std::span<const Outcome> outcomes, double Outcome::*against);

/// Places in `outcomes` of those that lie far from the others of their command: 0.6745 times the
/// distance from the median, over the median of these distances, exceeds 3.5 (Iglewicz and Hoaglin,
/// 1993; NIST/SEMATECH e-Handbook, 1.3.5.17), and the distance exceeds 3.5 times its own
/// uncertainty. To be told, never to be left out.
std::vector<std::size_t> outliers(std::span<const Outcome> outcomes);

/// What the data say of a claim that a quantity lies above, or below, a limit.
enum class Answer : std::uint8_t {
  shown,     ///< The one-sided limit of 95 % lies beyond the limit.
  refuted,   ///< The other one lies on this side of it.
  undecided  ///< The interval holds the limit, or there is none.
};
Answer above(const std::array<double, 2>& interval90, double limit) noexcept;
Answer below(const std::array<double, 2>& interval90, double limit) noexcept;

}  // namespace zeus::solve
