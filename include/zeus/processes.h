#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "zeus/export.h"
#include "zeus/result.h"

namespace zeus {

/// What a driver says of one process on a GPU, for one of its own sampling periods.
struct ProcessUse {
  int pid = 0;                     ///< As the host numbers processes, whatever a container sees.
  std::chrono::microseconds at{};  ///< When it was sampled, by the driver: since 1970.
  double sm = 0;                   ///< Share of the period in which kernels of it ran, 0 to 1.
};

/// The processes of one device. Cold path: both calls ask the driver, and allocate.
class ProcessSource {
 public:
  virtual ~ProcessSource() = default;

  /// What was sampled after `mark`, as far back as the driver remembers, in no order. Periods in
  /// which no process ran leave nothing. Errc::unsupported, with the reason, where the driver does
  /// not tell: of a card that is partitioned none does.
  virtual Result<std::vector<ProcessUse>> since(std::chrono::microseconds mark) = 0;

  /// The processes that have the device open for computing, whether they run or not.
  virtual Result<std::vector<int>> resident() = 0;
};

/// Splits `total` units by `weights` (finite, none below 0, not all 0), without a rest: the parts
/// are laid end to end and the places where they meet are rounded, so that they add up to `total`
/// exactly and each is at most one unit off its share.
ZEUS_API std::vector<std::uint64_t> apportion(std::uint64_t total, std::span<const double> weights);

/// Divides the energy of one GPU among the processes on it. A model, not a measurement: no sensor
/// tells whose power it was. In each stretch of time a process has the share of the energy that it
/// has of the time of the SMs (streaming multiprocessors), and what is left of that time is idle.
/// Where the shares add up to more than the whole, as those of kernels that run side by side do,
/// they are divided by their sum, and nothing is idle.
class ZEUS_API Attribution {
 public:
  /// One stretch in which the GPU used `energy_j`, with all samples of it. It should not be shorter
  /// than the driver's sampling period, which is a second at the most (NVIDIA's documentation of
  /// nvmlDeviceGetProcessUtilization). Stretches of unknown energy (NaN) are left out, and counted.
  void add(double energy_j, std::span<const ProcessUse> uses);
  /// A process that is there counts, with 0 J if it never runs.
  void see(int pid) { weights_.try_emplace(pid, 0.0); }

  struct Part {
    int pid = 0;
    std::uint64_t energy_uj = 0;
  };
  struct Parts {
    std::vector<Part> processes;  ///< By pid.
    std::uint64_t idle_uj = 0;
  };
  /// `energy_uj`, measured over all stretches, divided: the parts add up to it exactly.
  Parts parts(std::uint64_t energy_uj) const;

  std::size_t left_out() const noexcept { return left_out_; }
  std::size_t stretches() const noexcept { return stretches_; }  ///< Without those left out.

 private:
  std::map<int, double> weights_;  ///< By pid: the joules of each stretch times the share in it.
  double idle_ = 0;
  std::size_t left_out_ = 0, stretches_ = 0;
};

}  // namespace zeus
