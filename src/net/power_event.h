#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "net/json_scan.h"

namespace zeus::net {

/// One event of /gpu/stream_power or /cpu/stream_power, in the wire's units.
struct PowerEvent {
  std::uint64_t timestamp_ms = 0;  ///< By the daemon's wall clock.
  std::uint16_t id = 0;
  std::uint64_t power_mw = 0;              ///< Of the GPU, or of the package.
  std::optional<std::uint64_t> dram_mw{};  ///< Of a CPU only.
};

/// {"timestamp_ms":1762000000000,"gpu_id":0,"power_mw":75000}, or with cpu_id, cpu_mw and dram_mw.
/// Nothing where it is not whole; members that are not known are passed over.
inline std::optional<PowerEvent> parse_power_event(std::string_view json) noexcept {
  PowerEvent out;
  std::optional<std::uint64_t> time, id, power;
  JsonScan scan(json);
  scan.object([&](std::string_view key) {
    if (key == "timestamp_ms") {
      time = scan.number();
    } else if (key == "gpu_id" || key == "cpu_id") {
      id = scan.number();
    } else if (key == "power_mw" || key == "cpu_mw") {
      power = scan.number();
    } else if (key == "dram_mw") {
      out.dram_mw = scan.number_or_null();
    } else {
      scan.skip();
    }
  });
  if (!scan.done() || !time || !id || !power || *id > 0xffff) return std::nullopt;
  out.timestamp_ms = *time;
  out.id = static_cast<std::uint16_t>(*id);
  out.power_mw = *power;
  return out;
}

}  // namespace zeus::net
