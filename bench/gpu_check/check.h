#pragma once

// The check of one GPU: what is done in which order, and what it gives. Reads only.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "gpu_check/coverage.h"
#include "gpu_check/load.h"
#include "gpu_check/poller.h"
#include "gpu_check/polls.h"
#include "measure/comb.h"

namespace zeus::check {

inline constexpr std::size_t kPhases = 8;
inline constexpr double kDuty = 0.5;

/// How long the readings of one call took.
struct Latency {
  std::vector<std::string> sensors;  ///< What the call yields.
  Percentiles idle, load;            ///< Polled every millisecond.
  Percentiles back_to_back;          ///< Idle, one call after the other.
};

struct SensorResult {
  const SensorInfo* info = nullptr;
  Comb comb;
  double idle_w = 0, busy_w = 0;  ///< Mean power as it shows it; NaN: not known.
};

/// Whether two sensors publish at once: by `share` of the changes of the first, and by how much
/// later the second publishes in the mean, where their periods are one.
struct Together {
  std::string first, second;
  double share = 0;
  double lag_s = 0;  ///< NaN where their periods differ.
};

/// Runs of the square load in step with one sensor.
struct Series {
  std::string locked_to;
  double period_s = 0, run_s = 0;
  std::array<double, kPhases> start{};  ///< In periods after a publication.
  struct OfSensor {
    std::string name;
    std::vector<PhaseRun> runs;
    Coverage coverage;
  };
  std::vector<OfSensor> sensors;                     ///< Those whose period is that of the series.
  std::map<std::string, std::vector<double>> watts;  ///< Of every sensor, a number a phase.
};

/// What is said of the energy counter, by the series whose load had this period.
struct Judgement {
  Coverage coverage;
  double period_s = 0;
};

struct Outcome {
  std::vector<Latency> latency;
  std::vector<SensorResult> sensors;
  std::vector<Together> together;
  std::vector<Series> series;
  Judgement counter;         ///< The verdict on the energy counter.
  std::string counter_name;  ///< Empty where there is none.
  double length_s = 0;       ///< Of the whole check.
  std::vector<std::string> problems;
};

/// Checks the GPU in `budget_s` seconds, of which the load's start takes a part.
Result<Outcome> check_gpu(const Device& device, const std::string& load, double budget_s);

/// The counter's coverage by all series: sampled if any says so, full only if all say so.
Judgement judge(const std::vector<Series>& series, const std::string& counter);

}  // namespace zeus::check
