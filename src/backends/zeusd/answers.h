#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "zeus/sensor.h"

namespace zeus::zeusd {

/// The readings of one route. `ids` are the daemon's numbers of the devices that were asked for.
enum class Route : std::uint8_t {
  gpu_energy,  ///< {"0":{"energy_mj":5}}: a slot for each id.
  gpu_power,   ///< {"timestamp_ms":1,"power_mw":{"0":75000}}: likewise.
  cpu_energy,  ///< {"0":{"cpu_energy_uj":5,"dram_energy_uj":null}}: a slot for package and DRAM
               ///< each.
};
constexpr std::size_t slots_of(Route route) noexcept { return route == Route::cpu_energy ? 2 : 1; }

/// What to ask for. `partial`: where the daemon has that feature.
std::string target_of(Route route, std::span<const std::uint16_t> ids, bool partial);

/// Fills a slot for each value of a whole answer; what it does not say is Errc::lost, a null is
/// absent. A partial answer has its failures in "errors", and they are lost. Errc::malformed where
/// the answer cannot be read; then no slot is of use.
Errc parse_answer(Route route, std::string_view body, std::span<const std::uint16_t> ids,
                  std::span<Reading> out) noexcept;

/// Marks the slots of the devices that {"errors":{"3":"..."}} names as failed with `error`, and
/// says how many of `ids` it names.
std::size_t parse_errors(Route route, std::string_view body, Errc error,
                         std::span<const std::uint16_t> ids, std::span<Reading> out) noexcept;

}  // namespace zeus::zeusd
