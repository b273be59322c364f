#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/protocol.h"
#include "zeus/result.h"

namespace zeus::net {

/// What a daemon says of itself: GET /discover. Daemons of all generations are read alike; what an
/// older one does not say stays empty.
struct Discovery {
  struct Gpu {
    std::uint16_t id = 0;
    std::string name{};
    std::string pci_address{};                          ///< "0000:41:00.0".
    std::optional<bool> cumulative_energy_available{};  ///< It has an energy counter that works.
    std::string uuid{};
    friend bool operator==(const Gpu&, const Gpu&) = default;
  };
  struct Cpu {
    std::uint16_t id = 0;
    bool dram_available = false;
    friend bool operator==(const Cpu&, const Cpu&) = default;
  };
  std::vector<Gpu> gpus{};
  std::vector<Cpu> cpus{};
  std::vector<Group> enabled_api_groups{};  ///< All of them where a daemon knows no groups.
  bool auth_required = false;
  std::string version{};
  std::optional<int> protocol{};            ///< Upstream's wire has none.
  std::string instance{};                   ///< New at every start of the daemon.
  std::vector<std::string> features{};      ///< "heartbeat", "partial", "lease" ...
  std::optional<std::string> simulation{};  ///< The scenario of a machine that is not real.

  bool enables(Group group) const noexcept;
  bool has(std::string_view feature) const noexcept;
  friend bool operator==(const Discovery&, const Discovery&) = default;
};

/// Keys that are not known are passed over, as are groups. Errc::malformed names the first value
/// that is not what it must be.
Result<Discovery> parse_discovery(std::string_view json);

/// On one line, as our daemon says it: with the arrays of version 0.4 beside those of today.
std::string to_json(const Discovery& discovery);

}  // namespace zeus::net
