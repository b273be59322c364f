#pragma once

// A simulated machine as it is written down: plain data, and its reader. README.md has the schema.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "sim/calls.h"
#include "sim/power.h"
#include "sim/sensor.h"
#include "zeus/result.h"

namespace zeus::sim {

/// True power of a device, before its limit.
struct Power {
  Steps steps = Steps::constant(0);
  bool follow = false;  ///< Follows a load instead of `steps`: CPU use of the owner's process tree,
  bool driven = false;  ///< or what Machine::set_load() says and nobody else.
  double idle = 0, max = 0;
  double cores = 0;  ///< So many busy cores are full load.

  double lowest() const { return follow ? idle : steps.lowest(); }
  double highest() const { return follow ? max : steps.highest(); }
};

struct Limit {
  double min, max, standard;  ///< watts
};

struct Range {
  unsigned low, high;  ///< MHz
};

/// Something that uses a GPU for computing.
struct GpuProcess {
  unsigned pid = 0;
  unsigned sm = 0;  ///< Per cent of the time in which kernels of it run.
};

struct Gpu {
  std::string model = "Simulated GPU";
  std::string uuid, pci, serial;
  unsigned architecture = 9;  ///< NVML's number.
  unsigned minor = 0;
  int compute[2] = {9, 0};
  Power power;
  std::optional<Limit> limit;
  unsigned long long memory = 80ULL << 30;
  Range sm_clocks{210, 1980};
  std::vector<unsigned> memory_clocks{2619};
  unsigned temperature = 35;
  bool persistence = true;
  bool c2c = false;
  std::vector<std::string> mig;  ///< UUIDs of the instances; mig mode is on if there are any.
  std::vector<GpuProcess> processes;

  std::optional<Counter> energy, module_energy;
  std::optional<PowerSensor> power_instant, power_average, power_usage;
  std::optional<PowerSensor> module_power, memory_power;
};

struct Zone {
  std::string path;  ///< "intel-rapl:0:2"
  std::string name;  ///< "dram"
  Power power;
  Counter counter;  ///< In joules; the file shows microjoules.
  std::uint64_t range_uj = 262'143'328'850;
  bool has_range = true;
  unsigned mode = 0444;
  bool enabled = true;
  int mirror = -1;  ///< Index of the zone whose energy this one shows.
};

/// Something that goes wrong. Plain data: the table of run-time faults lies in shared memory.
struct Fault {
  enum class Target : std::uint8_t { gpu, zone };
  enum class What : std::uint8_t { code, error_number, text, value, freeze, reset, step, block };
  Target target = Target::gpu;
  What what = What::code;
  int device = -1;  ///< Index among the GPUs or zones; -1: all.
  CallSet calls;
  char file[32] = "energy_uj";
  Ns from = -kForever, until = kForever;
  unsigned every = 0;        ///< Only each n-th call.
  unsigned after_calls = 0;  ///< Not the first n calls.
  int code = 0;              ///< The vendor's, or errno.
  double step_j = 0;
  unsigned long long value = 0;  ///< In the unit of the call: mJ, mW, uJ.
  Ns block = 0;
  char text[32] = "";
};

struct Nvml {
  enum class Control { root, everyone, nobody };
  std::string driver = "550.54.15", version = "12.550.54.15";
  int cuda = 12040;
  Ns latency = 0;
  bool old = false;  ///< The library of a driver that lacks newer symbols.
  Control control = Control::root;
  bool scopes = true;  ///< Without, a field answers for the GPU whatever scope is asked.
};

struct Scenario {
  std::string name, description;
  std::uint64_t seed = 1;
  std::optional<Nvml> nvml;
  std::vector<Gpu> gpus;
  std::vector<Zone> zones;
  std::vector<Fault> faults;

  bool follows() const;  ///< Some device follows the CPU use of the owner's process tree.
};

/// Reads a scenario. A key that is not known is an error that names it, its line and what is known.
Result<Scenario> read_scenario(const std::filesystem::path& file);
/// The same from text; `folder` is where relative file names begin.
Result<Scenario> parse_scenario(std::string_view text, const std::string& source,
                                const std::filesystem::path& folder);
/// The text of a scenario with file names made absolute, so that it can be read from elsewhere.
Result<std::string> portable_text(const std::filesystem::path& file);

}  // namespace zeus::sim
