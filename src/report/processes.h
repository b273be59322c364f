#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "report/json.h"
#include "report/run.h"
#include "report/text.h"

namespace zeus::report {

/// What stands beside every number of a process: it is computed, not measured.
inline constexpr std::string_view kAttribution = "model: shares of SM time";

/// The energy of one GPU, divided among the processes on it.
struct GpuProcesses {
  struct Process {
    int pid = 0;
    std::string name{};  ///< Empty where it could not be told: it has ended, or is hidden.
    std::uint64_t energy_uj = 0;
  };
  DeviceInfo device{};
  Estimate energy{};            ///< Of the whole GPU, measured.
  std::string why{};            ///< Why it could not be divided; empty where it was.
  std::uint64_t energy_uj = 0;  ///< Of the whole GPU: what the parts add up to.
  std::uint64_t idle_uj = 0;
  std::vector<Process> processes{};
  std::size_t left_out = 0;  ///< Stretches whose energy could not be told.
};

/// Everything that `zeus processes` has to say.
struct Processes {
  std::string version;
  Host host;
  std::vector<std::pair<std::string, Selection>> selections;
  std::vector<Problem> problems;
  double seconds = 0;
  std::vector<GpuProcesses> gpus;
};

std::string to_text(const Processes& processes, Style style);
Json to_json(const Processes& processes);  ///< The schema "zeus.processes/1".

}  // namespace zeus::report
