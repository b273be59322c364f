#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/names.h"
#include "zeus/device.h"
#include "zeus/measurement.h"
#include "zeus/sampler.h"

namespace zeus::report {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Where something was measured.
struct Host {
  std::string address, hostname, kernel;
  std::optional<Simulation> simulation{};
  std::optional<Replay> replay{};
};

/// The energy of one domain over one window, with what a reader needs to judge it.
struct DomainResult {
  DomainId domain;
  std::optional<DomainId> parent;
  bool in_total = false;  ///< A root: the others are inside one of those.
  std::string device_id, model, backend;
  std::uint16_t device_index = 0;
  std::string sensor, lineage, profile_id, profile_source;
  SensorKind sensor_kind = SensorKind::unknown;
  GainClass gain_class = GainClass::none;
  Estimate energy;
  std::string reason;  ///< Why there is no value; empty where there is one.
  double mean_power_w = kNan;
  double peak_power_w = kNan;  ///< The greatest reading of the domain's power sensor.
};

/// One window: all its domains and their sum.
struct WindowResult {
  std::string name;
  Instant begin{}, end{};
  std::chrono::system_clock::time_point wall;
  Duration self_cost{};
  std::vector<DomainResult> domains;
  Estimate total;
  /// Chosen parts that are not in the total. Where there is one the total is incomplete.
  std::vector<std::string> missing;

  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
  double edp_js() const { return total.value * seconds(); }  ///< Energy-delay product.
};

/// The greatest value seen of every sensor of a subject; NaN where none was.
using Peaks = std::vector<double>;
void note_peak(Peaks& peaks, std::size_t sensor, const SensorInfo& info, const Sample& sample);

/// Judges a measurement made on `machine`. `peaks` adds to the samples that the record still holds.
WindowResult judge(const Machine& machine, const Measurement& measurement, const Peaks& peaks = {});

/// A window in which nothing could be measured but time.
WindowResult only_time(const Machine& machine, std::string name, Instant begin, Instant end,
                       std::chrono::system_clock::time_point wall);

/// The record from the begin of `first` to the end of `last`, which followed it on one monitor.
Measurement joined(const Measurement& first, const Measurement& last);

/// How a command ended; neither is set where it had not ended.
struct Exit {
  std::optional<int> code, signal;
};

struct Repetition {
  WindowResult window;
  Exit exit;
};

/// What measuring cost.
struct Overhead {
  double cpu_s = 0;  ///< Of the measuring process, its child not included.
  Duration period{};
  Sampler::Effort effort;
  std::size_t samples_lost = 0;
};

/// Everything that `zeus run` has to say.
struct Run {
  std::string version;
  std::vector<std::string> command;
  Host host;
  std::vector<std::pair<std::string, Selection>> selections;  ///< "gpu", "cpu".
  std::vector<DeviceInfo> devices;
  std::vector<Problem> problems;
  std::size_t warmup = 0;
  std::vector<Repetition> runs;
  Overhead overhead;
};

/// The order in which people look for them: GPUs and what holds them, packages, DRAM, the rest; by
/// number.
bool before(DomainId a, DomainId b) noexcept;

/// A flag in words for people.
const char* explain(Flag flag) noexcept;

/// UTC to the microsecond: "2026-01-31T12:00:00.000000Z".
std::string iso8601(std::chrono::system_clock::time_point t);

}  // namespace zeus::report
