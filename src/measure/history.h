#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "zeus/measurement.h"
#include "zeus/sensor.h"

namespace zeus {

/// All that was read of one level (power, temperature), for questions about any interval asked
/// later. Equal readings in a row are one run; an answer takes the logarithm of their number.
/// A reading holds until the next one, or for `patience` where none comes. Not for several threads.
class History {
 public:
  /// One value, as long as it was read.
  struct Run {
    Instant first{}, last{};  ///< Its first and its last reading.
    std::uint64_t raw = 0;
  };
  /// An interval's integral over time: joules of a power.
  struct Integral {
    double value = 0;      ///< Of the time that is covered. NaN: none of it is.
    double u = 0;          ///< Standard uncertainty, k = 1, the gain's included where it is known.
    double covered_s = 0;  ///< How much of the interval a reading stands for.
    double length_s = 0;
  };

  /// `poll`: how often it is read. `most`: how many runs are kept, the oldest give way; 0: all.
  History(SensorInfo info, Duration poll, std::size_t most = 0);

  /// The next sample, in the order of time. A failed one ends what the value before it stands for.
  void add(const Sample& sample);

  /// E = sum v_k (t_k+1 - t_k), and since each change came at some instant of an update period T_u
  /// and a poll distance d (rectangular distribution: JCGM 100:2008, 4.3.7),
  /// u^2 = sum (v_k+1 - v_k)^2 (T_u + d)^2 / 12 + (v_end - v_begin)^2 (T_u + d + W)^2 / 3
  ///       + (u_gain E)^2.
  /// The second term: a rise or fall on the whole is seen late, by the sensor's window W too.
  Integral integral(Instant from, Instant to) const;

  /// The value in force at `t`, in SI; nothing where none was.
  std::optional<double> at(Instant t) const;

  std::size_t size() const noexcept { return runs_.size(); }
  const Run& run(std::size_t index) const { return runs_[index].run; }
  double value(std::size_t index) const { return static_cast<double>(run(index).raw) * scale(); }
  double scale() const noexcept { return info_.scale; }
  Duration patience() const noexcept { return patience_; }
  const SensorInfo& info() const noexcept { return info_; }
  std::uint64_t failures() const noexcept { return failures_; }
  Errc why() const noexcept { return why_; }  ///< Of the last failure; ok: the last one worked.
  Instant last_good() const noexcept { return runs_.empty() ? Instant{} : runs_.back().run.last; }

 private:
  struct Entry {
    Run run;
    Instant until{};     ///< The next run's first reading, or where it no longer stands.
    double before = 0;   ///< Integral up to `run.first`, in raw seconds.
    double rough = 0;    ///< Sum of the squared changes up to and with the one to this run, raw^2.
    double covered = 0;  ///< Covered seconds up to `run.first`.
  };
  struct Sums {
    double integral = 0, covered = 0, rough = 0, raw = 0;
  };
  /// From the beginning up to `t`.
  Sums up_to(Instant t) const;
  /// The last run that began at or before `t`; null: none.
  const Entry* run_at(Instant t) const;
  Instant held_until(const Entry& entry) const;

  SensorInfo info_;
  Duration poll_, patience_;
  std::size_t most_;
  std::deque<Entry> runs_;
  std::uint64_t failures_ = 0;
  Errc why_ = Errc::absent;
  bool broken_ = false;  ///< A reading failed since the last run's last one.
};

}  // namespace zeus
