#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "bind.h"
#include "device/backend.h"
#include "report/names.h"
#include "zeus/lease.h"
#include "zeus/profile.h"

namespace zeus::python {
namespace {

using Environ = std::map<std::string, std::string>;
using Kind = DeviceInfo::Kind;

Environment environment_of(const Environ& environ) {
  return [environ](const char* name) -> std::optional<std::string> {
    const auto at = environ.find(name);
    return at == environ.end() ? std::nullopt : std::optional(at->second);
  };
}

/// The machine at an address, or the one of a program in this environment; its GPUs are those that
/// a CUDA program would see there, in its order.
MachinePtr open_machine(const std::optional<std::string>& address, const Environ& environ,
                        bool all_gpus) {
  const nb::gil_scoped_release without;
  const Environment environment = environment_of(environ);
  Machine machine = [&] {
    if (!address) return get(zeus::open(environment));
    Address where = get(Address::parse(*address));
    where.token = environment("ZEUSD_TOKEN").value_or("");
    return get(zeus::open(where));
  }();
  if (!all_gpus) {
    const Selection visible = visible_gpus(machine, environment);
    keep_only(machine, Kind::gpu, visible);
    machine.problems.insert(machine.problems.end(), visible.problems.begin(),
                            visible.problems.end());
  }
  apply(get(ProfileBook::load(environment)), machine);
  return std::make_shared<const Machine>(std::move(machine));
}

/// A device of a machine that lives on with it.
struct DeviceHandle {
  MachinePtr machine;
  const Device* device;

  const Sensor* find(const std::string& name) const {
    for (const Sensor& s : device->sensors) {
      if (s.info.name == name) return &s;
    }
    return nullptr;
  }

  const Sensor& sensor(const std::string& name) const {
    if (const Sensor* found = find(name)) return *found;
    throw missing("has no sensor " + name, name);
  }

  /// What was said of a sensor or knob when the machine was opened; null: nothing.
  const Error* why_not(const std::string& name) const {
    for (const Problem& p : machine->problems) {
      if (p.where.find(device->info.id) != std::string::npos &&
          p.where.find(name) != std::string::npos) {
        return &p.error;
      }
    }
    return nullptr;
  }

  Failure missing(const std::string& what, const std::string& name) const {
    const std::string sentence = device->info.model + " (" + device->info.id + ") " + what;
    const Error* why = why_not(name);
    if (why == nullptr) return Failure({Errc::unsupported, 0, sentence});
    return Failure({why->code, why->vendor, sentence + ": " + why->detail});
  }

  const KnobInfo& knob(const std::string& name) const {
    for (const KnobInfo& k : device->knobs) {
      if (k.name == name) return k;
    }
    throw missing("has no " + name + " that can be set", name);
  }
};

/// A source is read up to the slot of the sensor.
std::uint64_t read_raw(const Sensor& sensor) {
  std::vector<Reading> readings(std::size_t{sensor.slot} + 1);
  const Errc e = sensor.source->read(readings);
  const Reading& mine = readings.back();
  const Errc failed = e != Errc::ok ? e : mine.error;
  if (failed == Errc::ok) return mine.raw;
  throw Failure({failed, 0,
                 "cannot read the sensor " + sensor.info.name + ": " + report::to_string(failed) +
                     (failed == Errc::denied ? "; run as root or through zeusd" : "")});
}

std::string describe(const DeviceHandle& d) {
  return "<zeus._core.Device " + d.device->info.id + " '" + d.device->info.model + "'>";
}

void bind_device(nb::module_& m) {
  nb::class_<DeviceHandle>(m, "Device", "What one device can report, and what can be set on it.")
      .def("__repr__", &describe)
      .def_prop_ro("kind",
                   [](const DeviceHandle& d) { return report::to_string(d.device->info.kind); })
      .def_prop_ro("backend", [](const DeviceHandle& d) { return d.device->info.backend; })
      .def_prop_ro("model", [](const DeviceHandle& d) { return d.device->info.model; })
      .def_prop_ro(
          "id", [](const DeviceHandle& d) { return d.device->info.id; },
          "Stable across reboots: a UUID, a PCI address, 'package-0'.")
      .def_prop_ro(
          "index", [](const DeviceHandle& d) { return d.device->info.index; },
          "As the vendor counts: nvidia-smi's index, the socket's number.")
      .def_prop_ro("pci", [](const DeviceHandle& d) { return d.device->info.pci; })
      .def_prop_ro("lost", [](const DeviceHandle& d) { return d.device->info.lost; })
      .def_prop_ro("partitioned", [](const DeviceHandle& d) { return d.device->info.partitioned; })
      .def_prop_ro("facts",
                   [](const DeviceHandle& d) {
                     nb::dict facts;
                     for (const auto& [key, value] : d.device->info.facts) {
                       facts[nb::str(key.c_str())] = value;
                     }
                     return nb::typed<nb::dict, std::string, std::string>(std::move(facts));
                   })
      .def_prop_ro(
          "sensors",
          [](const DeviceHandle& d) {
            std::vector<std::string> names;
            for (const Sensor& s : d.device->sensors) names.push_back(s.info.name);
            return names;
          },
          "The names of what can be read.")
      .def_prop_ro(
          "knobs",
          [](const DeviceHandle& d) {
            std::vector<std::string> names;
            for (const KnobInfo& k : d.device->knobs) names.push_back(k.name);
            return names;
          },
          "The names of what can be set.")
      .def(
          "sensor_info",
          [](const DeviceHandle& d, const std::string& name) {
            const SensorInfo& s = d.sensor(name).info;
            nb::dict info;
            info["quantity"] = to_string(s.quantity);
            info["unit"] = unit(s.quantity);
            info["scale"] = s.scale;
            info["domain"] = to_string(s.domain);
            info["scope"] = to_string(s.domain).substr(0, to_string(s.domain).find(':'));
            info["kind"] = to_string(s.profile.kind);
            info["update_s"] = seconds(s.profile.update);
            info["profile"] = s.profile.id;
            info["source"] = s.profile.source;
            return nb::typed<nb::dict, std::string, nb::object>(std::move(info));
          },
          "name"_a, "What is known of a sensor.")
      .def(
          "why_not",
          [](const DeviceHandle& d, const std::string& name) {
            const Error* why = d.why_not(name);
            return why == nullptr ? std::string() : why->detail;
          },
          "name"_a, "Why a sensor or knob is missing; empty where nobody said.")
      .def(
          "read_raw",
          [](const DeviceHandle& d, const std::string& name) {
            const Sensor& s = d.sensor(name);
            const nb::gil_scoped_release without;
            return read_raw(s);
          },
          "name"_a, "One vendor call: the value in units of the sensor's scale.")
      .def(
          "read",
          [](const DeviceHandle& d, const std::string& name) {
            const Sensor& s = d.sensor(name);
            const nb::gil_scoped_release without;
            return static_cast<double>(read_raw(s)) * s.info.scale;
          },
          "name"_a, "One vendor call: the value in SI (J, W, degC, Hz).")
      .def(
          "knob_range",
          [](const DeviceHandle& d, const std::string& name) {
            const KnobInfo& k = d.knob(name);
            return std::tuple(k.min, k.max, k.standard);
          },
          "name"_a, "(lowest, highest, the vendor's own) in SI.")
      .def(
          "get_knob",
          [](const DeviceHandle& d, const std::string& name) {
            const KnobInfo& k = d.knob(name);
            const nb::gil_scoped_release without;
            const Setting now = get(k.knob->get());
            return std::pair(now.low, now.high);
          },
          "name"_a, "(low, high) in SI, equal for a knob with one value.")
      .def(
          "set_knob",
          [](const DeviceHandle& d, const std::string& name, double low,
             std::optional<double> high) {
            const KnobInfo& k = d.knob(name);
            const nb::gil_scoped_release without;
            check(k.knob->set(Setting(low, high.value_or(low))));
            check(k.knob->keep());
          },
          "name"_a, "low"_a, "high"_a = nb::none(),
          "Sets a knob for good: nobody puts it back. See Machine.lease for the other way.")
      .def(
          "choices",
          [](const DeviceHandle& d, const std::string& name, double memory_hz) {
            const KnobInfo& k = d.knob(name);
            const nb::gil_scoped_release without;
            return get(k.knob->choices(memory_hz));
          },
          "name"_a, "memory_hz"_a = 0.0, "The values that a knob takes, where they are a list.");
}

/// A knob that goes back when this is closed or dropped.
struct LeaseHandle {
  MachinePtr machine;  // The knob is its.
  std::optional<Lease> lease;

  Lease& held() {
    if (!lease) throw Failure({Errc::invalid, 0, "this lease has ended; take another"});
    return *lease;
  }
};

std::unique_ptr<LeaseHandle> take(const MachinePtr& machine, const std::string& device,
                                  const std::string& knob, double low, std::optional<double> high,
                                  const std::string& journal) {
  const nb::gil_scoped_release without;
  Lease lease = get(Lease::take(*machine, device, knob, Setting(low, high.value_or(low)),
                                std::filesystem::path(journal)));
  return std::make_unique<LeaseHandle>(LeaseHandle{machine, std::move(lease)});
}

void bind_lease(nb::module_& m) {
  nb::class_<LeaseHandle>(m, "Lease", "A knob turned for a while; it goes back when this ends.")
      .def_prop_ro("former",
                   [](LeaseHandle& l) {
                     const Setting former = l.held().former();
                     return std::pair(former.low, former.high);
                   })
      .def(
          "turn",
          [](LeaseHandle& l, double low, std::optional<double> high) {
            const nb::gil_scoped_release without;
            check(l.held().turn(Setting(low, high.value_or(low))));
          },
          "low"_a, "high"_a = nb::none())
      .def("release",
           [](LeaseHandle& l) {
             const nb::gil_scoped_release without;
             if (!l.lease) return;
             auto lease = std::exchange(l.lease, std::nullopt);
             check(lease->release());
           })
      .def("__enter__", [](nb::object self) { return self; })
      .def(
          "__exit__",
          [](LeaseHandle& l, const nb::object&, const nb::object&, const nb::object&) {
            const nb::gil_scoped_release without;
            if (!l.lease) return;
            auto lease = std::exchange(l.lease, std::nullopt);
            check(lease->release());
          },
          "type"_a.none(), "value"_a.none(), "traceback"_a.none());
}

}  // namespace

void bind_machine(nb::module_& m) {
  bind_device(m);
  bind_lease(m);
  nb::class_<Machine>(m, "Machine", "Everything found at an address.")
      .def_prop_ro("devices",
                   [](const MachinePtr& machine) {
                     std::vector<DeviceHandle> devices;
                     for (const Device& d : machine->devices) devices.push_back({machine, &d});
                     return devices;
                   })
      .def_prop_ro(
          "problems",
          [](const MachinePtr& machine) {
            std::vector<std::tuple<std::string, std::string, std::string>> problems;
            for (const Problem& p : machine->problems) {
              problems.emplace_back(p.where, report::to_string(p.error.code), p.error.detail);
            }
            return problems;
          },
          "What is missing and why: (where, code, sentence).")
      .def_prop_ro(
          "simulation",
          [](const MachinePtr& machine) {
            return machine->simulation ? std::optional(machine->simulation->scenario)
                                       : std::nullopt;
          },
          "The scenario's name where the machine is simulated.")
      .def_prop_ro(
          "session",
          [](const MachinePtr& machine) {
            return machine->simulation ? std::optional(machine->simulation->session) : std::nullopt;
          },
          "The folder of a simulated machine, for `zeus sim truth --session`.")
      .def("lease", &take, "device"_a, "knob"_a, "low"_a, "high"_a = nb::none(), nb::kw_only(),
           "journal"_a, "Turns a knob until the lease ends. `journal`: a folder of this user.");
  m.def("open", &open_machine, "address"_a.none(), "environ"_a, nb::kw_only(), "all_gpus"_a = false,
        "Opens a machine: at an address ('local:', 'sim:h100x8', 'zeusd:node1'), or that of a "
        "program in `environ`.");
}

}  // namespace zeus::python
