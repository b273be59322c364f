#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/prometheus.h"
#include "zeus/device.h"

namespace zeus::report {

/// What a daemon knows of its node at one moment. What is not known is left empty and has no
/// series: nothing here turns into a zero. All units are SI.
struct NodeMetrics {
  /// A card, a socket or a board. MIG makes no devices: partitions are counted in its info.
  struct Device {
    DeviceInfo info{};
    bool up = true;  ///< It answered when last asked. Where not, no reading of it is repeated.
    std::optional<double> power_limit_w{};
  };
  /// A domain that can be read. Domains that the node has not are not listed.
  struct Domain {
    DomainId id{};
    std::string device{};  ///< DeviceInfo::id of the device that it belongs to.
    /// What its sensors can tell at all, so that "never" can be told from "not now".
    bool has_energy = true, has_power = true;
    /// Counted up since the daemon began, over wraps and resets; never falls in one process.
    std::optional<double> joules{};
    std::optional<double> watts{};
    std::optional<double> age_s{};  ///< How long ago joules and watts were read.
    std::map<Errc, std::uint64_t> errors{};
    std::optional<std::uint64_t> resets{};  ///< How often its counter was seen to start again.
  };
  struct Requests {
    std::string route{};  ///< A route of ours, never the path that a client sent.
    int code = 0;
    std::uint64_t count = 0;
  };

  std::string version{};
  std::string simulated{};    ///< The scenario, on a simulated machine: every reading says so.
  double stale_after_s = 30;  ///< Readings older than this are not repeated.
  std::optional<double> start_time_s{};  ///< Seconds since 1970.
  std::optional<bool> ready{};
  std::vector<Device> devices{};
  std::vector<Domain> domains{};
  std::vector<Requests> requests{};
  std::map<std::string, std::uint64_t> subscribers{};  ///< By stream: "gpu", "cpu".
  std::map<std::string, std::uint64_t> problems{};  ///< Parts that could not be opened, by backend.
  std::optional<std::uint64_t> events_dropped{};    ///< Not delivered to slow subscribers.
  std::optional<std::uint64_t> samples_missed{};    ///< Polls of streams that were left out.
  std::optional<std::uint64_t> scrape_errors{};     ///< Scrapes in which a reading failed.
  std::optional<std::uint64_t> leases{};            ///< Held now.
  std::optional<bool> gpus_released{};              ///< Their driver is let go of, for a while.
  std::optional<std::uint64_t> leases_restored{};   ///< Put back for clients that are gone.
  std::optional<double> scrape_duration_s{};        ///< What making the page before this one took.
  std::optional<double> self_cpu_s{};               ///< CPU time of the daemon itself.
};

/// The metrics of one scrape: docs/reference/metrics.md. Of energy and power,
/// `sum(zeus_energy_joules_total)` and `sum(zeus_power_watts)` count nothing twice: a domain inside
/// another one of the list (core in package) has names of its own, zeus_nested_*. Readings that no
/// device can have (the blanks of vendors: 2^31, 2^47, 2^63 and their like, and anything below
/// zero) are absent.
std::vector<MetricFamily> node_metrics(const NodeMetrics& node);

}  // namespace zeus::report
