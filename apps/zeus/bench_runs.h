#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.h"
#include "solve/study.h"

namespace zeus::cli {

/// What `zeus bench` is asked for.
struct BenchOptions {
  Choice choice;
  std::vector<std::string> commands, names, fail_if, no_worse_than;
  unsigned runs = 10, warmup = 1, reference = 1;
  solve::Order order = solve::Order::random;
  std::uint64_t seed = 0;
  bool seeded = false;
  Duration period = std::chrono::milliseconds(100);
  Duration cooldown{}, cool_limit = std::chrono::seconds(60);
  std::optional<double> cool_to;
  bool phase = false, no_phase = false, ignore_failure = false, show_output = false;
  std::string shell = "/bin/sh", prepare;
  std::string export_json, export_csv, export_markdown;
};

/// Makes the runs and delivers the report; answers the exit status.
int run_bench(const Globals& globals, const BenchOptions& options);

}  // namespace zeus::cli
