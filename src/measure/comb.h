#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <span>

#include "zeus/measurement.h"

namespace zeus {

/// The instants at which a sensor publishes, told from the changes of its readings: `phase_s` after
/// `origin`, and every whole number of periods before and after. Specification of accuracy, B1.
struct Comb {
  double period_s = 0;  ///< T; 0: not known.
  /// T lies between them by pairs of brackets; where jitter makes these contradict each other,
  /// their spread. 0 and infinity where there were too few.
  double period_low_s = 0, period_high_s = 0;
  double phase_s = 0;  ///< One publication, near the newest brackets, in seconds after `origin`.
  Instant origin{};
  double rms_s = 0;         ///< Of the middles of the brackets about the comb, by their weights.
  std::size_t changes = 0;  ///< Brackets used.
  double consistent = 0;  ///< Share of the brackets that hold a tick; a slip is one that does not.
  double seen = 0;        ///< Changes seen per tick of the comb; below 0.9 readings repeat.
  bool accepted = false;  ///< There were enough brackets, narrow enough, and they agree.
};

/// Infers a comb while the polls come in, in constant memory and without allocation.
///
/// Each change of the reading lies in a bracket: the old value was last seen at its begin, the new
/// one first at its end. A failed sample breaks it. The half-sample mode of the intervals between
/// the middles of the first 64 brackets is a first period, robust against missed changes; where
/// brackets are wider than T / 4, the peak of the middles' periodogram near it. It numbers the
/// brackets, and the period is the slope of their middles over their numbers by least squares,
/// weighted by 1 / (half^2 / 3 + (T / 200)^2): a tick is anywhere in its bracket, at equal chance.
///
/// Combs slip, so that the fit is made in blocks of at most 50 changes. A new phase begins where a
/// middle lies off by more than T / 4, and by T / 10 more than the brackets explain; or where no
/// change was seen for so long that the ticks between cannot be counted. The period is the mean of
/// the blocks' slopes weighted by their information, sum w (n - mean n)^2. The phase told is the
/// newest, of which older blocks count less.
///
/// Accepted with 20 changes in 1 s of which 95 % hold a tick, to T / 40, in brackets of at most
/// 0.62 T in the mean: from 2 T / 3 on, any changes that are polled regularly look like a comb. The
/// first bracket of a phase, which holds a tick whatever it is, does not count.
///
/// Of simulated combs of 175 changes and more, polled 2.2 times a period or more often, 97 % are
/// accepted, all with their true period. Polls within some per cent of T / 2 may pull T by 2.5 %
/// towards two of theirs; rarer ones mostly find nothing.
class CombFollower {
 public:
  /// The next poll of the sensor. One that is not later than the last good one is left out.
  void feed(Sample sample) noexcept;
  /// What is known by now. Costs a copy of this object, of some 3 kB.
  Comb comb() const noexcept;

 private:
  static constexpr std::size_t kFirst = 64;  // Brackets that the first period is told from.
  static constexpr std::size_t kBlock = 50;

  struct Bracket {  // Seconds after the origin.
    double before = 0, after = 0;
    double middle() const noexcept { return (before + after) / 2; }
    double half() const noexcept { return (after - before) / 2; }
  };
  struct Placed {
    Bracket bracket;
    double number = 0;
  };
  // Weighted means and central moments of numbers n and times t; of times, what n * mode_s_ does
  // not tell, which keeps all digits.
  struct Moments {
    double weight = 0, n = 0, t = 0, nn = 0, nt = 0, tt = 0;
    void add(double w, double number, double time) noexcept;
  };

  void take(const Bracket& bracket) noexcept;
  void settle() noexcept;
  void place(const Bracket& bracket) noexcept;
  void append(const Bracket& bracket, double number) noexcept;
  void lose_phase() noexcept;
  void close_block() noexcept;
  void narrow_bounds() noexcept;
  double period() const noexcept;
  double tick(double number) const noexcept;

  Instant origin_{};
  Sample last_{};
  std::array<Bracket, kFirst> first_{};
  std::size_t buffered_ = 0;

  double mode_s_ = 0;            // The first period; 0: not yet known.
  double half_s_ = 0;            // Root mean square of the first brackets' halves.
  double mode_information_ = 0;  // 1 / variance of the mode.
  std::array<Placed, kBlock> block_{};
  std::size_t in_block_ = 0;
  Moments open_{};                  // Of the present block.
  double nn_ = 0, nt_ = 0;          // Sums over the closed blocks.
  double weight_ = 0, square_ = 0;  // Of the middles about the comb.

  std::size_t in_phase_ = 0;  // Brackets since the last slip.
  double phase_weight_ = 0, phase_n_ = 0, phase_t_ = 0, number_ = 0;

  double low_s_ = 0, high_s_ = std::numeric_limits<double>::infinity();
  std::size_t changes_ = 0, held_ = 0, slips_ = 0;
  std::size_t followed_ = 0;  // Brackets that are not the first of their phase,
  double expected_ = 0;       // and the ticks up to them.
  double width_sum_s_ = 0, begin_s_ = 0, end_s_ = 0;
};

/// The comb behind consecutive polls of one sensor in order of time, as CombFollower tells it.
Comb infer_comb(std::span<const Sample> polls) noexcept;

/// The comb of known period that fits the brackets best: only its phase is told. For windows with
/// too few changes: three are enough to accept it. Brackets that lie off by more than T / 4 from
/// the circular mean of all have no say. No comb without a change, or with `period_s` <= 0.
Comb fit_phase(std::span<const Sample> polls, double period_s) noexcept;

}  // namespace zeus
