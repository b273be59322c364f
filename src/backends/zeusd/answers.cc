#include "backends/zeusd/answers.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "net/json_scan.h"

namespace zeus::zeusd {
namespace {

using net::JsonScan;

/// Where the device with this key stands in `ids`.
std::optional<std::size_t> place_of(std::string_view key,
                                    std::span<const std::uint16_t> ids) noexcept {
  std::uint16_t id = 0;
  const char* const last = key.data() + key.size();
  const auto [end, ec] = std::from_chars(key.data(), last, id);
  if (ec != std::errc{} || end != last) return std::nullopt;
  const auto it = std::find(ids.begin(), ids.end(), id);
  if (it == ids.end()) return std::nullopt;
  return static_cast<std::size_t>(it - ids.begin());
}

void put(std::span<Reading> out, std::size_t slot, std::optional<std::uint64_t> value) noexcept {
  if (slot >= out.size()) return;
  out[slot].raw = value.value_or(0);
  out[slot].error = value ? Errc::ok : Errc::absent;
}

/// The members of one device: {"energy_mj":5}.
void device(JsonScan& scan, Route route, std::size_t place, std::span<Reading> out) noexcept {
  scan.object([&](std::string_view key) {
    if (route == Route::gpu_energy && key == "energy_mj") {
      put(out, place, scan.number());
    } else if (route == Route::cpu_energy && key == "cpu_energy_uj") {
      put(out, 2 * place, scan.number_or_null());
    } else if (route == Route::cpu_energy && key == "dram_energy_uj") {
      put(out, 2 * place + 1, scan.number_or_null());
    } else {
      scan.skip();
    }
  });
}

void power(JsonScan& scan, std::size_t place, std::span<Reading> out) noexcept {
  const std::uint64_t mw = scan.number();
  put(out, place, mw);
  // Nothing that answers draws nothing.
  if (mw == 0 && place < out.size()) out[place].error = Errc::busy;
}

}  // namespace

std::string target_of(Route route, std::span<const std::uint16_t> ids, bool partial) {
  std::string out = route == Route::gpu_energy ? "/gpu/get_cumulative_energy?gpu_ids="
                    : route == Route::gpu_power
                        ? "/gpu/get_power?gpu_ids="
                        : "/cpu/get_cumulative_energy?cpu=true&dram=true&cpu_ids=";
  for (std::size_t i = 0; i < ids.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(ids[i]);
  return partial ? out + "&partial=true" : out;
}

Errc parse_answer(Route route, std::string_view body, std::span<const std::uint16_t> ids,
                  std::span<Reading> out) noexcept {
  for (Reading& r : out) r.error = Errc::lost;
  JsonScan scan(body);
  scan.object([&](std::string_view key) {
    if (route == Route::gpu_power && key == "power_mw") {
      scan.object([&](std::string_view id) {
        if (const auto place = place_of(id, ids)) return power(scan, *place, out);
        scan.skip();
      });
      return;
    }
    const auto place = route == Route::gpu_power ? std::nullopt : place_of(key, ids);
    if (place) return device(scan, route, *place, out);
    scan.skip();
  });
  return scan.done() ? Errc::ok : Errc::malformed;
}

std::size_t parse_errors(Route route, std::string_view body, Errc error,
                         std::span<const std::uint16_t> ids, std::span<Reading> out) noexcept {
  std::size_t named = 0;
  JsonScan scan(body);
  scan.object([&](std::string_view key) {
    if (key != "errors") return scan.skip();
    scan.object([&](std::string_view id) {
      scan.skip();
      const auto place = place_of(id, ids);
      if (!place) return;
      ++named;
      for (std::size_t i = 0; i < slots_of(route); ++i) {
        const std::size_t slot = *place * slots_of(route) + i;
        if (slot < out.size()) out[slot].error = error;
      }
    });
  });
  return scan.done() ? named : 0;
}

}  // namespace zeus::zeusd
