#include <algorithm>
#include <iterator>
#include <utility>

#include "device/backend.h"

// A machine as its daemon serves it, and as this process sees it, made one.

namespace zeus {
namespace {

using Kind = DeviceInfo::Kind;

bool same(const DeviceInfo& a, const DeviceInfo& b) {
  return a.kind == b.kind && (a.id == b.id || (!a.pci.empty() && a.pci == b.pci));
}

bool has_kind(const Machine& machine, Kind kind) {
  return std::any_of(machine.devices.begin(), machine.devices.end(),
                     [kind](const Device& d) { return d.info.kind == kind; });
}

/// What the daemon serves of a device takes the place of the same here. Its domains are numbered as
/// this process counts.
void take(Device& local, Device&& served) {
  for (Sensor& s : served.sensors) {
    if (s.info.domain.scope == Scope::gpu) s.info.domain.unit = local.info.index;
    std::erase_if(local.sensors, [&s](const Sensor& own) {
      return own.info.quantity == s.info.quantity && own.info.domain == s.info.domain;
    });
  }
  for (const KnobInfo& k : served.knobs) {
    std::erase_if(local.knobs, [&k](const KnobInfo& own) { return own.name == k.name; });
  }
  local.sensors.insert(local.sensors.begin(), std::make_move_iterator(served.sensors.begin()),
                       std::make_move_iterator(served.sensors.end()));
  local.knobs.insert(local.knobs.end(), std::make_move_iterator(served.knobs.begin()),
                     std::make_move_iterator(served.knobs.end()));
  std::move(served.info.facts.begin(), served.info.facts.end(),
            std::back_inserter(local.info.facts));
}

/// The daemon's answer stands in the place of what these backends say is missing here.
void drop_problems(Machine& local, Kind kind, std::span<const Backend> of) {
  std::erase_if(local.problems, [&](const Problem& p) {
    return std::any_of(of.begin(), of.end(), [&](const Backend& b) {
      const bool same_name = p.where.substr(0, p.where.find(' ')) == b.name;
      return b.kind == kind && same_name &&
             (p.error.code == Errc::denied || p.error.code == Errc::absent);
    });
  });
}

}  // namespace

Machine joined(Machine served, Machine local, std::span<const Backend> of) {
  const bool sees_gpus = has_kind(local, Kind::gpu);
  for (const Kind kind : {Kind::gpu, Kind::cpu}) {
    if (has_kind(served, kind)) drop_problems(local, kind, of);
  }
  std::size_t hidden = 0;
  for (Device& d : served.devices) {
    const auto own = std::find_if(local.devices.begin(), local.devices.end(),
                                  [&d](const Device& l) { return same(l.info, d.info); });
    if (own != local.devices.end()) {
      take(*own, std::move(d));
    } else if (d.info.kind == Kind::gpu && sees_gpus) {
      ++hidden;
    } else {
      local.devices.push_back(std::move(d));
    }
  }
  if (hidden > 0) {
    local.problems.push_back(
        {"zeusd",
         {Errc::absent, 0,
          "the daemon serves " + std::to_string(hidden) +
              " GPUs more, which this process does not see and which are left out; --host zeusd: "
              "opens all of them"}});
  }
  std::stable_partition(local.devices.begin(), local.devices.end(),
                        [](const Device& d) { return d.info.kind == Kind::gpu; });
  std::move(served.problems.begin(), served.problems.end(), std::back_inserter(local.problems));
  std::move(served.owned.begin(), served.owned.end(), std::back_inserter(local.owned));
  if (served.simulation) local.simulation = std::move(served.simulation);
  local.domains = tree_of(local.devices);
  return local;
}

}  // namespace zeus
