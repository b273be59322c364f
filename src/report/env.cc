#include "report/env.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/numbers.h"
#include "report/origin.h"
#include "report/table.h"

namespace zeus::report {
namespace {

using enum Table::Align;

bool tells(const Device& d, Quantity quantity) noexcept {
  return std::any_of(d.sensors.begin(), d.sensors.end(),
                     [quantity](const Sensor& s) { return s.info.quantity == quantity; });
}

constexpr std::size_t kColumns = 100;
constexpr std::size_t kTitle = 21;  // "knobs can be turned  "

std::vector<std::string> sensors(const Device& d) {
  std::vector<std::string> names;
  for (const Sensor& s : d.sensors) names.push_back(printable(s.info.name));
  return names;
}

/// "power_limit 200..700 W", "sm_clock 210..1980 MHz", "persistence off/on".
std::string range(const KnobInfo& k) {
  if (k.quantity == Quantity::state && k.min == 0 && k.max == 1) return k.name + " off/on";
  const bool clock = k.quantity == Quantity::clock;
  const double scale = clock ? 1e-6 : 1;
  std::string out = fmt::format("{} {:g}", k.name, k.min * scale);
  if (k.max != k.min) out += fmt::format("..{:g}", k.max * scale);
  const std::string_view symbol = clock ? "MHz" : unit(k.quantity);
  return symbol.empty() ? out : fmt::format("{} {}", out, symbol);
}

std::vector<std::string> knobs(const Device& d) {
  std::vector<std::string> out;
  for (const KnobInfo& k : d.knobs) out.push_back(range(k) + (&k == &d.knobs.back() ? "" : ","));
  return out;
}

/// "gpu 0-3,7": devices of one kind in the order of their numbers.
std::string numbered(const std::vector<const DeviceInfo*>& alike) {
  std::string out = to_string(alike.front()->kind);
  char before = ' ';
  for (std::size_t i = 0; i < alike.size(); ++i) {
    const std::size_t first = i;
    while (i + 1 < alike.size() && alike[i + 1]->index == alike[i]->index + 1) ++i;
    out += std::exchange(before, ',') + std::to_string(alike[first]->index);
    if (i > first) out += '-' + std::to_string(alike[i]->index);
  }
  return out;
}

/// Devices alike stand together: eight GPUs of a node are told once.
std::string abilities(const std::vector<Device>& devices) {
  struct Group {
    std::vector<const DeviceInfo*> devices;
    std::vector<std::string> sensors, knobs;
  };
  std::vector<Group> groups;
  for (const Device& d : devices) {
    Group own{{&d.info}, sensors(d), knobs(d)};
    if (own.sensors.empty() && own.knobs.empty()) continue;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.devices.front()->kind == d.info.kind && g.sensors == own.sensors &&
             g.knobs == own.knobs;
    });
    if (same == groups.end()) {
      groups.push_back(std::move(own));
    } else {
      same->devices.push_back(&d.info);
    }
  }
  std::size_t widest = 0;
  for (const Group& g : groups) widest = std::max(widest, width(numbered(g.devices)));
  Table table({left, left, left});
  for (const Group& g : groups) {
    std::string name = numbered(g.devices);
    for (const auto& [what, words] : {std::pair{"sensors", &g.sensors}, {"knobs", &g.knobs}}) {
      std::string title = what;
      for (std::string& line : wrapped(*words, kColumns - widest - 13)) {
        table.row({std::exchange(name, {}), std::exchange(title, {}), std::move(line)});
      }
    }
  }
  return table.text();
}

/// A row for each backend: "nvml  driver 550.54.15, cuda 12.4".
void add_facts(Table& table, const Environment& env) {
  std::vector<std::pair<std::string, std::vector<std::string>>> backends;
  for (const Device& d : env.devices) {
    for (const auto& [name, value] : d.info.facts) {
      if (name == "simulated" && env.host.simulation) continue;
      auto at = std::find_if(backends.begin(), backends.end(),
                             [&](const auto& b) { return b.first == d.info.backend; });
      if (at == backends.end()) at = backends.insert(at, {d.info.backend, {}});
      const std::string fact = printable(name + ' ' + value) + ',';
      if (std::find(at->second.begin(), at->second.end(), fact) == at->second.end()) {
        at->second.push_back(fact);
      }
    }
  }
  for (auto& [backend, facts] : backends) {
    facts.back().pop_back();
    std::string name = printable(backend);
    for (std::string& line : wrapped(facts, kColumns - kTitle)) {
      table.row({std::exchange(name, {}), std::move(line)});
    }
  }
}

std::string rights(const Environment& env) {
  if (env.host.simulation) return "yes (simulated)";
  return env.euid == 0 ? "yes (root)" : "no: run as root, or through zeusd";
}

bool any_knob(const Environment& env) {
  return std::any_of(env.devices.begin(), env.devices.end(),
                     [](const Device& d) { return !d.knobs.empty(); });
}

/// "boxcar 25 of 100 ms": how a sensor makes its readings.
std::string shape(const SensorProfile& p) {
  const double update = seconds(p.update) * 1e3, window = seconds(p.window) * 1e3;
  switch (p.kind) {
    case SensorKind::boxcar:
      return window > 0 ? fmt::format("mean of {:g} in {:g} ms", window, update)
                        : fmt::format("mean, each {:g} ms", update);
    case SensorKind::running: return fmt::format("mean of {:g} ms, each {:g} ms", window, update);
    case SensorKind::exponential:
      return fmt::format("first order, {:g} ms, each {:g} ms", seconds(p.tau) * 1e3, update);
    default: return fmt::format("{}, each {:g} ms", zeus::to_string(p.kind), update);
  }
}

/// "x 0.954, -1.2 W, u 1 % (unit)": what is taken off its readings, and what that leaves.
std::string gain(const SensorProfile& p) {
  std::string out;
  if (p.gain != 1 || p.offset_w != 0) out = fmt::format("x {:g}, {:+g} W, ", p.gain, p.offset_w);
  if (!p.gain_u) return out + "u unknown";
  return out + fmt::format("u {:.2g} % ({})", 100 * *p.gain_u, zeus::to_string(p.gain_class));
}

/// The sensors of energy and power, what is known about them, and below from whom. Devices alike
/// are told once.
std::string profiles(const std::vector<Device>& devices) {
  Table table({left, left, left, left, left});
  std::vector<std::string> told, sources;
  for (const Device& d : devices) {
    for (const Sensor& s : d.sensors) {
      const SensorProfile& p = s.info.profile;
      if (s.info.quantity != Quantity::energy && s.info.quantity != Quantity::power) continue;
      const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", d.info.model, s.info.name, p.id,
                                          shape(p), gain(p), p.source);
      if (std::find(told.begin(), told.end(), key) != told.end()) continue;
      told.push_back(key);
      auto source = std::find(sources.begin(), sources.end(), p.source);
      if (source == sources.end()) source = sources.insert(source, p.source);
      table.row({fmt::format("{} {}", to_string(d.info.kind), d.info.index), printable(s.info.name),
                 shape(p), gain(p), fmt::format("[{}]", source - sources.begin() + 1)});
    }
  }
  Table from({left, left});
  for (std::size_t i = 0; i < sources.size(); ++i) {
    std::string number = fmt::format("[{}]", i + 1);
    const std::string text = sources[i].empty() ? "nobody" : printable(sources[i]);
    for (std::string& line : wrapped(text, kColumns - 9)) {
      from.row({std::exchange(number, {}), std::move(line)});
    }
  }
  return table.text() + from.text();
}

Json profile_json(const SensorProfile& p) {
  return {{"kind", zeus::to_string(p.kind)},
          {"window_s", seconds(p.window)},
          {"delay_s", seconds(p.delay)},
          {"tau_s", seconds(p.tau)},
          {"tau_u_s", seconds(p.tau_u)},
          {"coverage", p.coverage ? Json(*p.coverage) : Json(nullptr)},
          {"gain", p.gain},
          {"offset_w", p.offset_w},
          {"gain_u", p.gain_u ? Json(*p.gain_u) : Json(nullptr)},
          {"offset_u_w", p.offset_u_w},
          {"gain_class", zeus::to_string(p.gain_class)},
          {"power_min_w", p.power_min_w},
          {"power_max_w", p.power_max_w},
          {"source", p.source}};
}

Json sensor_json(const SensorInfo& s) {
  return {{"name", s.name},
          {"quantity", zeus::to_string(s.quantity)},
          {"unit", unit(s.quantity)},
          {"domain", zeus::to_string(s.domain)},
          {"resolution", s.scale},
          {"update_s", seconds(s.profile.update)},
          {"lineage", s.lineage},
          {"profile_id", s.profile.id},
          {"profile", profile_json(s.profile)}};
}

Json knob_json(const KnobInfo& k) {
  return {{"name", k.name},
          {"unit", unit(k.quantity)},
          {"min", k.min},
          {"max", k.max},
          {"standard", k.standard}};
}

}  // namespace

const char* how(const Device& d) noexcept {
  if (d.info.lost) return "none";
  if (tells(d, Quantity::energy)) return "counter";
  return tells(d, Quantity::power) ? "integrated" : "none";
}

std::string to_text(const Environment& env, Style style) {
  std::string out = origin(env.host, style);
  Table about({left, left});
  about.row({"zeus", env.version});
  about.row({"machine", fmt::format("{} ({}, {})", printable(env.host.address),
                                    printable(env.host.hostname), printable(env.host.kernel))});
  add_facts(about, env);
  about.row({"user", fmt::format("uid {}", env.euid)});
  if (any_knob(env)) about.row({"knobs can be turned", rights(env)});
  out += about.text("");

  Table devices({left, left, left, left, left});
  if (!env.devices.empty()) devices.row({"device", "model", "energy", "pci", "id"});
  for (const Device& d : env.devices) {
    devices.row({fmt::format("{} {}", to_string(d.info.kind), d.info.index),
                 printable(d.info.model) + (d.info.lost ? " LOST" : ""), how(d),
                 printable(d.info.pci), printable(d.info.id)});
    if (!d.info.partitioned) continue;
    devices.row({"", "partitioned: readings are the card's"});
    for (const std::string& p : d.info.partitions) devices.row({"", "  " + printable(p)});
  }
  out += bold("devices", style) + '\n';
  out += devices.empty() ? "  none that tells energy\n" : devices.text();
  if (const std::string able = abilities(env.devices); !able.empty()) {
    out += bold("what they have", style) + '\n' + able;
  }
  if (style.verbose) {
    out += bold("how well they measure", style) + '\n' + profiles(env.devices);
  }
  std::vector<DeviceInfo> infos;
  for (const Device& d : env.devices) infos.push_back(d.info);
  for (const auto& [kind, s] : env.selections) {
    out += to_text(kind == "gpu" ? "GPUs to be measured" : kind, s, infos);
  }
  out += to_text(env.problems, style);
  for (const auto& [word, why] : env.unmet) {
    out += fmt::format("{}: {}: {}\n", bold("required and missing", style), word, printable(why));
  }
  return out;
}

Json to_json(const Environment& env) {
  Json out = {{"schema", "zeus.env/1"},
              {"zeus", env.version},
              {"host", to_json(env.host)},
              {"permissions",
               {{"euid", env.euid},
                {"knobs", !env.host.replay && (env.host.simulation || env.euid == 0)}}}};
  out["devices"] = Json::array();
  for (const Device& d : env.devices) {
    Json device = to_json(d.info);
    device["energy"] = how(d);
    device["sensors"] = Json::array();
    for (const Sensor& s : d.sensors) device["sensors"].push_back(sensor_json(s.info));
    device["knobs"] = Json::array();
    for (const KnobInfo& k : d.knobs) device["knobs"].push_back(knob_json(k));
    out["devices"].push_back(std::move(device));
  }
  out["problems"] = Json::array();
  for (const Problem& p : env.problems) out["problems"].push_back(to_json(p));
  out["selection"] = Json::object();
  for (const auto& [kind, s] : env.selections) out["selection"][kind] = to_json(s);
  out["unmet"] = Json::array();
  for (const auto& [word, why] : env.unmet) {
    out["unmet"].push_back({{"required", word}, {"reason", why}});
  }
  return out;
}

}  // namespace zeus::report
