#pragma once

// The parts of a scenario that describe devices; scenario.cc puts them together.

#include "sim/scenario.h"
#include "sim/toml_reader.h"

namespace zeus::sim {

/// Appends the GPUs of one [[gpu]] table, `count` of them.
void read_gpus(Problems& problems, const toml::table& table, const std::filesystem::path& folder,
               Scenario& out);
void read_zone(Problems& problems, const toml::table& table, const std::filesystem::path& folder,
               Scenario& out);
/// Watts over time from `power = {...}`.
void read_power(TableReader& owner, const std::filesystem::path& folder, Power& out);
/// "time,power" columns of a CSV file as steps; sample and hold.
Result<std::vector<Step>> read_trace(const std::filesystem::path& file, const std::string& time,
                                     double unit_s, const std::string& power);

}  // namespace zeus::sim
