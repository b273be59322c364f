#pragma once

// The node that benchmarks measure, and its bare calls: what anybody must do to read it.

#include <filesystem>
#include <string>
#include <vector>

#include "backends/nvml/abi.h"
#include "zeus/device.h"

namespace zeus::bench {

/// The simulated node of bench/node.toml. Throws std::runtime_error with a sentence.
class Node {
 public:
  explicit Node(const std::string& latency);
  ~Node();

  const Machine& machine() const { return machine_; }

  /// The calls and preads of one reading of every energy counter, and nothing else.
  void read_bare() const;
  /// The same with the power fields: three values of each GPU in one call.
  void read_bare_levels() const;

 private:
  std::filesystem::path file_;
  Machine machine_;
  nvml::abi::GetEnergy* energy_ = nullptr;
  nvml::abi::GetFields* fields_ = nullptr;
  std::vector<nvml::abi::Device> gpus_;
  std::vector<int> zones_;
};

/// Nanoseconds of a clock: CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID ...
double now_ns(int clock);
double median(std::vector<double> values);

}  // namespace zeus::bench
