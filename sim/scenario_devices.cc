#include "sim/scenario_devices.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace zeus::sim {

namespace fs = std::filesystem;

namespace {

constexpr std::pair<const char*, unsigned> kArchitectures[] = {
    {"kepler", 2}, {"maxwell", 3}, {"pascal", 4}, {"volta", 5},     {"turing", 6},
    {"ampere", 7}, {"ada", 8},     {"hopper", 9}, {"blackwell", 10}};

// The phase is drawn only if it is not given.
void read_comb(TableReader& r, std::uint64_t seed, std::uint64_t device, Comb& c) {
  r.period("update", c.update);
  if (c.update < 1000) r.say("update", "`update` is a microsecond at least");
  c.phase = static_cast<Ns>(spread(seed, device) * static_cast<double>(c.update));
  c.seed = mix(seed + device);
  r.duration("phase", c.phase);
  r.duration("delay", c.delay);
  r.duration("jitter", c.jitter);
  if (c.jitter < 0 || 2 * c.jitter >= c.update) {
    r.say("jitter", "`jitter` is less than half of `update`");
  }
}

void check_quantum(TableReader& r, double quantum) {
  if (!(quantum >= 1e-9)) r.say("quantum", "`quantum` is at least a billionth");
}

std::optional<PowerSensor> read_sensor(TableReader& owner, const char* key, std::uint64_t seed,
                                       std::uint64_t device) {
  const toml::table* t = owner.table(key);
  if (t == nullptr) return std::nullopt;
  TableReader r(owner.problems(), *t, owner.title() + "." + key);
  PowerSensor s;
  read_comb(r, seed, device, s.comb);
  std::string kind = "boxcar";
  r.read("kind", kind);
  s.window = s.comb.update;
  r.period("window", s.window);
  Ns tau = 0;
  r.period("tau", tau);
  s.tau = seconds(tau);
  if (kind == "instant") {
    s.kind = PowerSensor::Kind::instant;
  } else if (kind == "exponential") {
    s.kind = PowerSensor::Kind::exponential;
    if (s.tau <= 0) r.say("tau", "an exponential sensor needs `tau`");
  } else if (kind != "boxcar" && kind != "mean") {
    r.say("kind", "`kind` is \"instant\", \"boxcar\", \"mean\" or \"exponential\"");
  }
  if (kind == "mean" && s.window < s.comb.update) {
    r.say("window", "the `window` of a running mean is at least its `update`");
  }
  r.read("gain", s.gain);
  r.read("offset", s.offset);
  r.read("quantum", s.quantum);
  check_quantum(r, s.quantum);
  r.done();
  return s;
}

std::optional<Counter> read_counter(TableReader& owner, const char* key, std::uint64_t seed,
                                    std::uint64_t device) {
  const toml::table* t = owner.table(key);
  if (t == nullptr) return std::nullopt;
  TableReader r(owner.problems(), *t, owner.title() + "." + key);
  Counter c;
  read_comb(r, seed, device, c.comb);
  r.read("gain", c.gain);
  r.read("quantum", c.quantum);
  r.read("start", c.start);
  r.period("sampled_window", c.window);
  check_quantum(r, c.quantum);
  unsigned bits = 64;
  r.read("bits", bits);
  if (bits < 8 || bits > 64) r.say("bits", "`bits` lies between 8 and 64");
  if (bits < 64) c.modulus = std::ldexp(c.quantum, static_cast<int>(bits));
  r.done();
  return c;
}

// Answers 0 for what it does not know.
double unit_seconds(const std::string& unit) {
  const auto one = parse_duration("1" + unit);
  return one ? seconds(*one) : 0;
}

void read_levels(TableReader& r, Power& out) {
  std::vector<Step> steps;
  bool repeat = true;
  r.read("repeat", repeat);
  const toml::array* levels = r.array("levels");
  double left = seconds(kLongest);
  if (levels == nullptr) return r.say("levels", "give `levels = [[seconds, watts], ...]`");
  for (const toml::node& n : *levels) {
    const toml::array* pair = n.as_array();
    const auto s = pair != nullptr && pair->size() == 2 ? (*pair)[0].value<double>() : std::nullopt;
    const auto w = s ? (*pair)[1].value<double>() : std::nullopt;
    if (!w || !(*s > 1e-9) || !(*s <= left)) {
      return r.wrong(n, "levels", "a list of [seconds, watts], of ten years at most");
    }
    left -= *s;
    steps.push_back({std::llround(*s * 1e9), *w});
  }
  if (steps.empty()) return r.say("levels", "`levels` has at least one step");
  out.steps = Steps(std::move(steps), repeat);
}

void read_trace_power(TableReader& r, const fs::path& folder, Power& out) {
  std::string file, time = "time", unit = "s", power = "power";
  bool repeat = true;
  r.read("file", file);
  r.read("time", time);
  r.read("unit", unit);
  r.read("column", power);
  r.read("repeat", repeat);
  if (unit_seconds(unit) == 0) return r.say("unit", "`unit` is ns, us, ms, s, min or h");
  Result<std::vector<Step>> steps = read_trace(folder / file, time, unit_seconds(unit), power);
  if (!steps) return r.say("file", steps.error().detail);
  out.steps = Steps(std::move(*steps), repeat);
}

// "80GiB", or a number of bytes.
void read_bytes(TableReader& r, const char* key, unsigned long long& out) {
  const toml::node* n = r.find(key);
  if (n == nullptr) return;
  if (n->is_integer()) return r.read(key, out);
  double number = 0;
  char unit[4] = "";
  const std::string text = n->value_or(std::string());
  constexpr std::pair<const char*, int> kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
  if (std::sscanf(text.c_str(), "%lf %3s", &number, unit) == 2 && number > 0 && number < 1e9) {
    for (const auto& [name, shift] : kUnits) {
      if (std::string_view(name) == unit) {
        out = static_cast<unsigned long long>(std::ldexp(number, shift));
        return;
      }
    }
  }
  r.wrong(*n, key, "a size such as \"80GiB\", or a number of bytes");
}

void read_limit(TableReader& owner, Gpu& gpu) {
  const toml::table* t = owner.table("limit");
  if (t == nullptr) return;
  TableReader r(owner.problems(), *t, owner.title() + ".limit");
  Limit limit{0, 0, 0};
  r.read("min", limit.min);
  r.read("max", limit.max);
  limit.standard = limit.max;
  r.read("default", limit.standard);
  if (!(0 < limit.min && limit.min <= limit.standard && limit.standard <= limit.max)) {
    r.say("min", "a limit needs 0 < min <= default <= max");
  }
  r.done();
  gpu.limit = limit;
}

void read_clocks(TableReader& r, Gpu& gpu) {
  if (const toml::array* a = r.array("sm_clocks")) {
    const auto low = a->size() == 2 ? (*a)[0].value<unsigned>() : std::nullopt;
    const auto high = low ? (*a)[1].value<unsigned>() : std::nullopt;
    if (!high || *low == 0 || *high < *low)
      return r.wrong(*a, "sm_clocks", "[lowest, highest] MHz");
    gpu.sm_clocks = {*low, *high};
  }
  if (const toml::array* a = r.array("memory_clocks")) {
    gpu.memory_clocks.clear();
    for (const toml::node& n : *a) gpu.memory_clocks.push_back(n.value_or(0U));
    std::sort(gpu.memory_clocks.rbegin(), gpu.memory_clocks.rend());
    if (gpu.memory_clocks.empty() || gpu.memory_clocks.back() == 0) {
      r.wrong(*a, "memory_clocks", "a list of MHz");
    }
  }
}

void read_processes(TableReader& owner, Gpu& gpu) {
  const toml::array* a = owner.array("processes");
  if (a == nullptr) return;
  for (const toml::node& n : *a) {
    const toml::table* t = n.as_table();
    if (t == nullptr) return owner.wrong(n, "processes", "a list of { pid = 4711, sm = 90 }");
    TableReader r(owner.problems(), *t, owner.title() + ".processes");
    GpuProcess& p = gpu.processes.emplace_back();
    r.read("pid", p.pid);
    r.read("sm", p.sm);
    if (p.pid == 0) r.say("pid", "a process needs a `pid` of 1 or more");
    if (p.sm > 100) r.say("sm", "`sm` is in per cent, 0 to 100");
    r.done();
  }
}

std::string drawn_uuid(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t a = mix(mix(seed ^ 0x475055) + index), b = mix(a);
  char text[48];
  std::snprintf(text, sizeof text, "GPU-%08x-%04x-%04x-%04x-%012llx",
                static_cast<unsigned>(a >> 32), static_cast<unsigned>(a >> 16 & 0xffff),
                static_cast<unsigned>(a & 0xffff), static_cast<unsigned>(b >> 48),
                static_cast<unsigned long long>(b & 0xffff'ffff'ffff));
  return text;
}

// What is not written differs from GPU to GPU.
void read_identity(TableReader& r, std::uint64_t seed, std::size_t index, Gpu& gpu) {
  r.read("model", gpu.model);
  gpu.uuid = drawn_uuid(seed, index);
  r.read("uuid", gpu.uuid);
  char pci[40];
  std::snprintf(pci, sizeof pci, "%08zx:%02zx:00.0", index / 15, 7 + 16 * (index % 15));
  gpu.pci = pci;
  r.read("pci", gpu.pci);
  gpu.minor = static_cast<unsigned>(index);
  r.read("minor", gpu.minor);
  gpu.serial = std::to_string(1'320'000'000'000 + static_cast<long long>(index));
  r.read("serial", gpu.serial);
  std::string architecture = "hopper";
  r.read("architecture", architecture);
  const auto* known = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const auto& a) { return architecture == a.first; });
  if (known == std::end(kArchitectures)) {
    r.say("architecture",
          "`architecture` is kepler, maxwell, pascal, volta, turing, ampere, ada, "
          "hopper or blackwell");
  } else {
    gpu.architecture = known->second;
  }
  std::string compute = "9.0";
  r.read("compute", compute);
  if (std::sscanf(compute.c_str(), "%3d.%3d", &gpu.compute[0], &gpu.compute[1]) != 2) {
    r.say("compute", "`compute` is written as \"9.0\"");
  }
  if (const toml::array* a = r.array("mig")) {
    for (const toml::node& n : *a) gpu.mig.push_back(n.value_or(std::string()));
    if (gpu.mig.size() > 8) r.say("mig", "a GPU has at most 8 MIG instances");
  }
}

}  // namespace

Result<std::vector<Step>> read_trace(const fs::path& file, const std::string& time, double unit_s,
                                     const std::string& power) {
  std::ifstream in(file);
  const auto fail = [&](std::string what) {
    return Error{Errc::invalid, 0, "cannot use the trace " + file.string() + ": " + what};
  };
  std::string line, cell;
  if (!std::getline(in, line)) return fail("it cannot be read or is empty");
  std::ptrdiff_t time_at = -1, power_at = -1, column = 0;
  for (std::istringstream cells(line); std::getline(cells, cell, ','); ++column) {
    while (!cell.empty() && (cell.back() == '\r' || cell.back() == ' ')) cell.pop_back();
    cell.erase(0,
               cell.find_first_not_of(' ') == std::string::npos ? 0 : cell.find_first_not_of(' '));
    if (cell == time) time_at = column;
    if (cell == power) power_at = column;
  }
  if (time_at < 0 || power_at < 0) {
    return fail("its first line names no columns `" + time + "` and `" + power + "`");
  }
  std::vector<Step> steps;
  double previous = 0, first = 0;
  for (std::size_t number = 2; std::getline(in, line); ++number) {
    double t = NAN, w = NAN;
    column = 0;
    for (std::istringstream cells(line); std::getline(cells, cell, ','); ++column) {
      if (column == time_at) t = std::strtod(cell.c_str(), nullptr) * unit_s;
      if (column == power_at) w = std::strtod(cell.c_str(), nullptr);
    }
    if (std::isnan(t) || std::isnan(w)) return fail("line " + std::to_string(number) + " is short");
    if (!steps.empty()) {
      if (!(t > previous)) return fail("time stands still at line " + std::to_string(number));
      if (!(t - first <= seconds(kLongest))) return fail("it is longer than ten years");
      steps.back().length = std::max<Ns>(1, std::llround((t - previous) * 1e9));
    } else {
      first = t;
    }
    steps.push_back({steps.empty() ? 1 : steps.back().length, w});
    previous = t;
  }
  if (steps.empty()) return fail("it holds no samples");
  if (steps.size() > 1) steps.back().length = steps[steps.size() - 2].length;
  return steps;
}

void read_power(TableReader& owner, const fs::path& folder, Power& out) {
  const toml::table* t = owner.table("power");
  if (t == nullptr)
    return owner.say("power", "give the true power: power = { kind = \"constant\", watts = 100 }");
  TableReader r(owner.problems(), *t, owner.title() + ".power");
  std::string kind = "constant";
  r.read("kind", kind);
  if (kind == "constant") {
    double watts = 0;
    r.read("watts", watts);
    out.steps = Steps::constant(watts);
  } else if (kind == "square") {
    double low = 0, high = 0, duty = 0.5;
    Ns period = 1'000'000'000, phase = 0;
    r.read("low", low);
    r.read("high", high);
    r.period("period", period);
    r.read("duty", duty);
    r.duration("phase", phase);
    if (!(duty >= 0 && duty <= 1)) return r.say("duty", "`duty` lies between 0 and 1");
    if (period > 0) out.steps = Steps::square(low, high, period, duty, phase);
  } else if (kind == "levels") {
    read_levels(r, out);
  } else if (kind == "trace") {
    read_trace_power(r, folder, out);
  } else if (kind == "follow") {
    out.follow = true;
    out.cores = static_cast<double>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
    r.read("idle", out.idle);
    r.read("max", out.max);
    r.read("cores", out.cores);
    if (!(out.cores > 0) || out.max < out.idle) r.say("max", "follow needs max >= idle, cores > 0");
    out.steps = Steps::constant(out.idle);
  } else if (kind == "driven") {
    out.follow = out.driven = true;
    r.read("idle", out.idle);
    r.read("max", out.max);
    if (out.max < out.idle) r.say("max", "driven needs max >= idle");
    out.steps = Steps::constant(out.idle);
  } else {
    r.say("kind",
          "`kind` is \"constant\", \"square\", \"levels\", \"trace\", \"follow\" or \"driven\"");
  }
  if (!(out.lowest() >= 0 && out.highest() <= 1e6)) {
    r.say("watts", "power lies between 0 and a million watts");
  }
  r.done();
}

void read_gpus(Problems& problems, const toml::table& table, const fs::path& folder,
               Scenario& out) {
  unsigned count = 1;
  for (unsigned i = 0; i < count && !problems.first; ++i) {
    TableReader r(problems, table, "[[gpu]]");
    r.read("count", count);
    if (count < 1 || count > 256) return r.say("count", "`count` lies between 1 and 256");
    for (const char* key : {"uuid", "pci", "minor", "serial", "mig"}) {
      if (count > 1 && table.contains(key)) {
        return r.say(key, std::string("`") + key + "` must differ: write one [[gpu]] for each");
      }
    }
    const std::size_t index = out.gpus.size();
    Gpu gpu;
    read_identity(r, out.seed, index, gpu);
    read_power(r, folder, gpu.power);
    read_limit(r, gpu);
    read_bytes(r, "memory", gpu.memory);
    read_clocks(r, gpu);
    read_processes(r, gpu);
    r.read("temperature", gpu.temperature);
    r.read("persistence", gpu.persistence);
    r.read("c2c", gpu.c2c);
    gpu.energy = read_counter(r, "energy", out.seed, index);
    gpu.module_energy = read_counter(r, "module_energy", out.seed, index);
    gpu.power_instant = read_sensor(r, "power_instant", out.seed, index);
    gpu.power_average = read_sensor(r, "power_average", out.seed, index);
    gpu.power_usage = read_sensor(r, "power_usage", out.seed, index);
    gpu.module_power = read_sensor(r, "module_power", out.seed, index);
    gpu.memory_power = read_sensor(r, "memory_power", out.seed, index);
    r.done();
    out.gpus.push_back(std::move(gpu));
  }
}

void read_zone(Problems& problems, const toml::table& table, const fs::path& folder,
               Scenario& out) {
  TableReader r(problems, table, "[[zone]]");
  Zone zone;
  r.read("path", zone.path);
  r.read("name", zone.name);
  if (zone.path.empty() || zone.name.empty()) r.say("path", "a zone needs `path` and `name`");
  if (zone.path.find('/') != std::string::npos || zone.path.find(':') == std::string::npos) {
    r.say("path", "`path` is written as \"intel-rapl:0\" or \"intel-rapl:0:2\"");
  }
  for (const Zone& z : out.zones) {
    if (z.path == zone.path) r.say("path", "`" + zone.path + "` is there twice");
  }
  zone.counter.comb.update = 1'000'000;
  read_comb(r, out.seed, 1000 + out.zones.size(), zone.counter.comb);
  double quantum_uj = 1, start_uj = 1e9;
  r.read("quantum_uj", quantum_uj);
  r.read("start_uj", start_uj);
  if (!(quantum_uj >= 1e-3)) r.say("quantum_uj", "`quantum_uj` is at least a thousandth");
  r.read("range_uj", zone.range_uj);
  r.read("gain", zone.counter.gain);
  r.read("enabled", zone.enabled);
  zone.has_range = zone.range_uj > 0;
  zone.counter.quantum = quantum_uj * 1e-6;
  zone.counter.start = start_uj * 1e-6;
  // The register wraps after its last value, one quantum past the range that sysfs names.
  if (zone.has_range) {
    zone.counter.modulus = (static_cast<double>(zone.range_uj) + quantum_uj) * 1e-6;
  }
  std::string mode = "0444", mirror;
  r.read("mode", mode);
  zone.mode = static_cast<unsigned>(std::strtoul(mode.c_str(), nullptr, 8));
  if (zone.mode > 0777) r.say("mode", "`mode` is octal, such as \"0400\"");
  r.read("mirror", mirror);
  for (std::size_t i = 0; i < out.zones.size() && !mirror.empty(); ++i) {
    if (out.zones[i].path == mirror) zone.mirror = static_cast<int>(i);
  }
  if (!mirror.empty() && zone.mirror < 0) r.say("mirror", "`mirror` names a zone written above");
  if (mirror.empty()) {
    read_power(r, folder, zone.power);
  } else if (zone.mirror >= 0 && out.zones[static_cast<std::size_t>(zone.mirror)].mirror >= 0) {
    r.say("mirror", "`mirror` names a zone that is itself a mirror");
  }
  r.done();
  out.zones.push_back(std::move(zone));
}

}  // namespace zeus::sim
