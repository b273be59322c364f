#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/rapl/processor.h"
#include "backends/rapl/zones.h"
#include "zeus/sensor.h"

namespace zeus::rapl {

/// What an event is called to the kernel: "event=0x02" or "config=0x2". Nothing for any other text.
std::optional<std::uint64_t> parse_event(std::string_view text);
/// A list of processors: "0,24", "0-1". Nothing for any other text.
std::optional<std::vector<int>> parse_cpus(std::string_view text);
/// Joules that one count stands for. Nothing for what cannot be.
std::optional<double> parse_scale(std::string_view text);

/// A domain's counter as perf gives it.
struct PerfSensor {
  std::shared_ptr<Source> source;
  double scale;
  std::string event;  ///< "power/energy-pkg/".
};

/// Perf's `power` PMU: the counters that powercap shows, by another way and under another right.
class Pmu {
 public:
  /// Errc::absent where the kernel has none.
  static Result<Pmu> find(const std::filesystem::path& root, const Processor& cpu);

  /// The sockets or dies that it counts, one each.
  std::vector<TopName> tops() const;
  bool has(const Kind& kind) const;
  /// The counter of a domain inside `top`; the error is a clause: "perf refuses power/...".
  Result<PerfSensor> open(const Kind& kind, const TopName& top) const;

 private:
  struct Place {
    TopName top;
    int cpu;
  };
  const Place* place(const TopName& top) const;
  Error refused(const Error& error, const std::string& event, int cpu) const;

  std::filesystem::path root_, folder_;
  bool container_ = false;
  std::uint32_t type_ = 0;
  std::vector<Place> places_;
};

}  // namespace zeus::rapl
