#include "backends/rapl/perf.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "base/files.h"
#include "base/perf.h"

namespace zeus::rapl {
namespace {

namespace fs = std::filesystem;

/// The kernel counts in units of 2^-32 J, finer than any register: raw values are rounded down to
/// the finest unit that one has, so that they last for decades in the 59 bits of a sample.
constexpr double kFinestJ = 0x1p-16;

class PerfSource final : public Source {
 public:
  PerfSource(PerfCounter counter, unsigned shift) : counter_(std::move(counter)), shift_(shift) {}
  Errc read(std::span<Reading> out) noexcept override {
    std::uint64_t count = 0;
    const Errc e = counter_.read(count);
    out[0].raw = count >> shift_;
    return e;
  }

 private:
  PerfCounter counter_;
  unsigned shift_;
};

/// All of `text` as a number without a sign: decimal, or hexadecimal after "0x".
template <class T>
std::optional<T> whole_number(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x")) {
    text.remove_prefix(2);
    base = 16;
  }
  if (text.starts_with('-')) return std::nullopt;
  T value{};
  const char* const last = text.data() + text.size();
  const auto [end, ec] = std::from_chars(text.data(), last, value, base);
  if (ec != std::errc{} || end != last) return std::nullopt;
  return value;
}

template <class T>
std::optional<T> number_in(const fs::path& file) {
  const auto line = read_line(file);
  return line ? whole_number<T>(*line) : std::nullopt;
}

Error malformed(const fs::path& file, const char* what) {
  return {Errc::malformed, 0, "perf cannot be used, since " + file.string() + " tells no " + what};
}

}  // namespace

std::optional<std::uint64_t> parse_event(std::string_view text) {
  constexpr std::string_view kEvent = "event=", kConfig = "config=";
  if (text.starts_with(kConfig)) return whole_number<std::uint64_t>(text.substr(kConfig.size()));
  if (!text.starts_with(kEvent)) return std::nullopt;
  const auto event = whole_number<std::uint8_t>(text.substr(kEvent.size()));  // config:0-7
  return event ? std::optional<std::uint64_t>(*event) : std::nullopt;
}

std::optional<std::vector<int>> parse_cpus(std::string_view text) {
  constexpr int kMost = 1 << 16;
  std::vector<int> cpus;
  while (true) {
    const auto end = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, end);
    const auto dash = std::min(part.find('-'), part.size());
    const auto first = whole_number<int>(part.substr(0, dash));
    const auto last = dash == part.size() ? first : whole_number<int>(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= kMost) return std::nullopt;
    if (!cpus.empty() && *first <= cpus.back()) return std::nullopt;  // The kernel's lists ascend.
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    if (end == text.size()) return cpus;
    text.remove_prefix(end + 1);
  }
}

std::optional<double> parse_scale(std::string_view text) {
  constexpr double kLeast = 0x1p-64, kMost = 1e3;
  double scale = 0;
  const char* const last = text.data() + text.size();
  const auto [end, ec] = std::from_chars(text.data(), last, scale);
  if (ec != std::errc{} || end != last || !(scale >= kLeast) || scale > kMost) return std::nullopt;
  return scale;
}

Result<Pmu> Pmu::find(const fs::path& root, const Processor& cpu) {
  Pmu pmu;
  pmu.root_ = root;
  pmu.folder_ = root / "sys/bus/event_source/devices/power";
  pmu.container_ = cpu.container;
  std::error_code ec;
  if (!fs::exists(pmu.folder_, ec)) return Error{Errc::absent, 0, "perf has no power PMU here"};
  const auto type = number_in<std::uint32_t>(pmu.folder_ / "type");
  if (!type) return malformed(pmu.folder_ / "type", "number");
  pmu.type_ = *type;
  const auto cpus = parse_cpus(read_line(pmu.folder_ / "cpumask").value_or(""));
  if (!cpus) return malformed(pmu.folder_ / "cpumask", "CPUs");

  // Only on Intel do dies have counters of their own; elsewhere each would repeat its socket's.
  const bool per_die = cpu.vendor == "GenuineIntel";
  constexpr std::uint16_t kMost = std::numeric_limits<std::uint16_t>::max();
  for (const int n : *cpus) {
    const fs::path topology =
        root / "sys/devices/system/cpu" / ("cpu" + std::to_string(n)) / "topology";
    const auto unit = number_in<int>(topology / "physical_package_id");
    if (!unit || *unit < 0 || *unit > kMost) {
      return malformed(topology / "physical_package_id", "socket");
    }
    const int die = number_in<int>(topology / "die_id").value_or(0);  // Since 5.2.
    const DomainId domain{Scope::package, static_cast<std::uint16_t>(*unit),
                          static_cast<std::uint16_t>(std::clamp<int>(die, 0, kMost))};
    const auto same = std::find_if(pmu.places_.begin(), pmu.places_.end(), [&](const Place& p) {
      return p.top.domain.unit == domain.unit && (!per_die || p.top.domain.part == domain.part);
    });
    if (same == pmu.places_.end()) pmu.places_.push_back({{domain}, n});
  }
  for (Place& p : pmu.places_) {
    p.top.die = std::count_if(pmu.places_.begin(), pmu.places_.end(), [&](const Place& other) {
                  return other.top.domain.unit == p.top.domain.unit;
                }) > 1;
  }
  return pmu;
}

std::vector<TopName> Pmu::tops() const {
  std::vector<TopName> tops;
  for (Place p : places_) {
    if (!p.top.die) p.top.domain.part = 0;  // A socket's only counter is the socket's.
    tops.push_back(p.top);
  }
  return tops;
}

bool Pmu::has(const Kind& kind) const {
  std::error_code ec;
  return fs::exists(folder_ / "events" / kind.event, ec);
}

const Pmu::Place* Pmu::place(const TopName& top) const {
  const auto it = std::find_if(places_.begin(), places_.end(), [&](const Place& p) {
    if (top.domain.scope == Scope::psys) return true;  // All of them see the one platform.
    if (p.top.domain.unit != top.domain.unit) return false;
    return top.die ? p.top.domain.part == top.domain.part : !p.top.die;
  });
  return it == places_.end() ? nullptr : &*it;
}

Result<PerfSensor> Pmu::open(const Kind& kind, const TopName& top) const {
  const std::string event = "power/" + std::string(kind.event) + '/';
  const fs::path file = folder_ / "events" / kind.event;
  const Place* const at = place(top);
  if (!has(kind) || at == nullptr) {
    return Error{Errc::absent, 0, "perf has no " + event + " for it"};
  }
  const auto config = parse_event(read_line(file).value_or(""));
  if (!config) return malformed(file, "event");
  const fs::path scale_file = file.string() + ".scale";
  const auto scale = parse_scale(read_line(scale_file).value_or(""));
  if (!scale) return malformed(scale_file, "scale");
  const auto unit = read_line(file.string() + ".unit");
  if (unit && *unit != "Joules") return malformed(file.string() + ".unit", "joules");

  auto counter = PerfCounter::open(type_, *config, at->cpu);
  if (!counter) return refused(counter.error(), event, at->cpu);
  unsigned shift = 0;
  while (std::ldexp(*scale, static_cast<int>(shift) + 1) <= kFinestJ) ++shift;
  return PerfSensor{std::make_shared<PerfSource>(std::move(*counter), shift),
                    std::ldexp(*scale, static_cast<int>(shift)), event};
}

Error Pmu::refused(const Error& error, const std::string& event, int cpu) const {
  Error out{error.code, error.vendor, "perf refuses " + event + " on CPU " + std::to_string(cpu)};
  if (error.vendor != 0) out.detail += ": " + std::generic_category().message(error.vendor);
  if (error.vendor == EPERM && container_) {
    out.detail += " (containers forbid it unless started with --cap-add PERFMON)";
  } else if (error.code == Errc::denied) {
    const auto paranoid = read_line(root_ / "proc/sys/kernel/perf_event_paranoid");
    if (paranoid) out.detail += " (perf_event_paranoid is " + *paranoid + ")";
  }
  return out;
}

}  // namespace zeus::rapl
