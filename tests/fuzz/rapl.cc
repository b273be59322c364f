#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backends/rapl/perf.h"
#include "backends/rapl/zones.h"
#include "fuzz/fuzz.h"

// Names of powercap's folders and zones, and the files of perf's `power` PMU.

namespace {

using namespace zeus;  // NOLINT(google-build-using-namespace)
using fuzz::require;

/// Without the zeros that a number may begin with.
std::string plain(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    const bool begins = out.empty() || !digit(out.back());
    const bool more = i + 1 < text.size() && digit(text[i + 1]);
    if (text[i] != '0' || !begins || !more) out += text[i];
  }
  return out;
}

void check_zone(std::string_view text) {
  const auto zone = rapl::Zone::parse(std::string(text));
  if (!zone) return;
  std::string name = zone->mmio ? "intel-rapl-mmio:" : "intel-rapl:";
  name += std::to_string(zone->top);
  if (zone->child >= 0) name += ':' + std::to_string(zone->child);
  require(plain(text) == name);
  require(zone->folder == text);
  require(!(*zone < *zone));
}

void check_top(std::string_view text) {
  const auto top = rapl::parse_top(text);
  if (!top) return;
  if (top->domain.scope == Scope::psys) return require(text == "psys");
  require(top->domain.scope == Scope::package);
  std::string name = "package-" + std::to_string(top->domain.unit);
  if (top->die) name += "-die-" + std::to_string(top->domain.part);
  require(plain(text) == name);  // Two names never become one domain.
  require(top->die || top->domain.part == 0);
}

void check_event(std::string_view text) {
  const auto event = rapl::parse_event(text);
  if (!event) return;
  require(!text.starts_with("event=") || *event <= 0xff);
  require(rapl::parse_event("config=" + std::to_string(*event)) == *event);
}

void check_cpus(std::string_view text) {
  const auto cpus = rapl::parse_cpus(text);
  if (!cpus) return;
  require(!cpus->empty() && cpus->front() >= 0 && cpus->back() < 1 << 16);
  require(std::adjacent_find(cpus->begin(), cpus->end(), std::greater_equal<>()) == cpus->end());
  require(text.find("--") == std::string_view::npos && text.find("x-") == std::string_view::npos);
  std::string list;
  for (const int cpu : *cpus) list += (list.empty() ? "" : ",") + std::to_string(cpu);
  require(rapl::parse_cpus(list) == cpus);
}

void check_scale(std::string_view text) {
  const auto scale = rapl::parse_scale(text);
  if (!scale) return;
  // Counts are shifted by up to 63 bits, to no unit below 2^-16 J.
  require(std::isfinite(*scale) && std::ldexp(*scale, 63) > 0x1p-17);
  require(*scale <= 1e3);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::text_of(data, size);
  check_zone(text);
  check_top(text);
  check_event(text);
  check_cpus(text);
  check_scale(text);
  const rapl::Kind* kind = rapl::find_kind(text);
  require(kind == nullptr || kind->name == text);
  return 0;
}
