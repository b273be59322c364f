#include "report/env.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "report/table.h"

namespace zeus::report {
namespace {

using enum Table::Align;

bool tells(const Device& d, Quantity quantity) noexcept {
  return std::any_of(d.sensors.begin(), d.sensors.end(),
                     [quantity](const Sensor& s) { return s.info.quantity == quantity; });
}

std::string sensors(const Device& d) {
  std::vector<std::string> names;
  for (const Sensor& s : d.sensors) names.push_back(s.info.name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::string knobs(const Device& d) {
  std::vector<std::string> names;
  for (const KnobInfo& k : d.knobs) {
    names.push_back(fmt::format("{} {:g}..{:g} {}", k.name, k.min, k.max, unit(k.quantity)));
    if (names.back().ends_with(' ')) names.back().pop_back();
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string rights(const Environment& env) {
  if (env.host.simulation) return "yes (simulated)";
  return env.euid == 0 ? "yes (root)" : "no: run as root, or through zeusd";
}

bool any_knob(const Environment& env) {
  return std::any_of(env.devices.begin(), env.devices.end(),
                     [](const Device& d) { return !d.knobs.empty(); });
}

Json sensor_json(const SensorInfo& s) {
  return {{"name", s.name},
          {"quantity", zeus::to_string(s.quantity)},
          {"unit", unit(s.quantity)},
          {"domain", zeus::to_string(s.domain)},
          {"resolution", s.scale},
          {"update_s", std::chrono::duration<double>(s.profile.update).count()},
          {"lineage", s.lineage},
          {"profile_id", s.profile.id}};
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
  std::string out = simulated(env.host.simulation, style);
  Table about({left, left});
  about.row({"zeus", env.version});
  about.row({"machine", fmt::format("{} ({}, {})", printable(env.host.address),
                                    printable(env.host.hostname), printable(env.host.kernel))});
  std::vector<std::pair<std::string, std::string>> facts;
  for (const Device& d : env.devices) {
    for (const auto& fact : d.info.facts) {
      const std::pair<std::string, std::string> named{d.info.backend + ' ' + fact.first,
                                                      fact.second};
      if (std::find(facts.begin(), facts.end(), named) == facts.end()) facts.push_back(named);
    }
  }
  for (const auto& [name, value] : facts) about.row({printable(name), printable(value)});
  about.row({"user", fmt::format("uid {}", env.euid)});
  if (any_knob(env)) about.row({"knobs can be turned", rights(env)});
  out += about.text("");

  Table devices({left, left, left, left, left});
  for (const Device& d : env.devices) {
    const std::string state = d.info.lost          ? " LOST"
                              : d.info.partitioned ? " (partitioned: readings are the card's)"
                                                   : "";
    devices.row({fmt::format("{} {}", to_string(d.info.kind), d.info.index),
                 printable(d.info.model) + state, how(d), sensors(d), printable(d.info.pci)});
    devices.row({"", printable(d.info.id), "", knobs(d)});
    for (const std::string& p : d.info.partitions) devices.row({"", "  " + printable(p)});
  }
  out += bold("devices", style) + '\n';
  out += devices.empty() ? "  none that tells energy\n" : devices.text();
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
               {{"euid", env.euid}, {"knobs", env.host.simulation.has_value() || env.euid == 0}}}};
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
