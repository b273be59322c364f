#include "backends/zeusd/answers.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "fuzz/fuzz.h"

// What a daemon answers when it is read: the walker takes from a document what the document has.

namespace {

using zeus::Errc;
using zeus::Reading;
using zeus::fuzz::require;
using zeus::zeusd::Route;
constexpr std::uint16_t kIds[] = {0, 1, 7};

void check(Route route, std::string_view text, const nlohmann::json& json) {
  std::array<Reading, 6> out;
  const Errc whole = zeus::zeusd::parse_answer(route, text, kIds, out);
  require(whole == Errc::ok || whole == Errc::malformed);
  (void)zeus::zeusd::parse_errors(route, text, Errc::denied, kIds, out);
  if (whole != Errc::ok || !json.is_object()) return;
  (void)zeus::zeusd::parse_answer(route, text, kIds, out);
  for (std::size_t i = 0; i < std::size(kIds); ++i) {
    const Reading& r = out[i * zeus::zeusd::slots_of(route)];
    if (r.error != Errc::ok) continue;
    // The number stands somewhere under that key, written as it was read.
    const std::string id = std::to_string(kIds[i]);
    require(text.find(id) != std::string_view::npos);
    require(text.find(std::to_string(r.raw)) != std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = zeus::fuzz::text_of(data, size);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  for (const Route route : {Route::gpu_energy, Route::gpu_power, Route::cpu_energy}) {
    check(route, text, json);
  }
  return 0;
}
