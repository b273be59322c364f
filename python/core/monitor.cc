#include "zeus/monitor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bind.h"

namespace zeus::python {
namespace {

/// One domain of energy and whose it is.
struct Domain {
  DomainId id;
  std::string name, device, sensor;
  bool root;
};

/// What one window read. Shares the subject with its monitor, and outlives it.
struct Record {
  Measurement measurement;
  std::shared_ptr<const std::vector<Domain>> domains;

  const DomainId& domain(std::size_t index) const {
    if (index >= domains->size()) {
      throw nb::index_error("there is no such domain of energy in this record");
    }
    return (*domains)[index].id;
  }
};

class MonitorHandle {
 public:
  MonitorHandle(Monitor monitor)  // NOLINT(google-explicit-constructor)
      : monitor_(std::move(monitor)) {
    auto domains = std::make_shared<std::vector<Domain>>();
    const auto& roots = monitor_.subject().domains.roots();
    for (const DomainId id : monitor_.subject().domains.all()) {
      const SensorInfo* sensor = sensor_of(monitor_.subject(), id);
      domains->push_back({id, to_string(id), owner(id), sensor->name,
                          std::find(roots.begin(), roots.end(), id) != roots.end()});
    }
    domains_ = std::move(domains);
  }

  static std::shared_ptr<MonitorHandle> open(const MachinePtr& machine,
                                             const std::optional<std::vector<std::string>>& devices,
                                             const std::string& follow, double period_s,
                                             bool align) {
    const nb::gil_scoped_release without;
    Machine watched = *machine;
    if (devices) {
      for (const auto kind : {DeviceInfo::Kind::gpu, DeviceInfo::Kind::cpu}) {
        Selection selection;
        for (const Device& d : machine->devices) {
          if (d.info.kind == kind && std::count(devices->begin(), devices->end(), d.info.id) != 0) {
            selection.ids.push_back(d.info.id);
          }
        }
        keep_only(watched, kind, selection);
      }
    }
    Monitor::Options options;
    if (follow == "power") options.follow = Monitor::Follow::power;
    if (follow == "all") options.follow = Monitor::Follow::all;
    if (period_s > 0) options.period = duration(std::min(period_s, 86'400.0));
    if (align) options.align = Monitor::Align::tick;
    return std::make_shared<MonitorHandle>(get(Monitor::open(std::move(watched), options)));
  }

  const std::shared_ptr<const std::vector<Domain>>& domains() const { return domains_; }

  Monitor::Window begin(const std::string& name) {
    Monitor::Window window = monitor_.begin(name);
    if (!window) throw std::bad_alloc();
    return window;
  }

  std::unique_ptr<Record> end(Monitor::Window window) {
    auto record = std::make_unique<Record>();
    record->domains = domains_;
    const Errc e = monitor_.end(std::move(window), record->measurement);
    if (e != Errc::ok) throw Failure({e, 0, "this window has ended already; begin another"});
    return record;
  }

  void mark() { monitor_.mark(); }

 private:
  std::string owner(DomainId id) const {
    for (const Device& d : monitor_.machine().devices) {
      for (const Sensor& s : d.sensors) {
        if (s.info.domain == id) return d.info.id;
      }
    }
    return {};
  }

  Monitor monitor_;
  std::shared_ptr<const std::vector<Domain>> domains_;
};

/// An open window; it keeps its monitor alive, and abandons the measurement where it is dropped.
struct WindowHandle {
  std::shared_ptr<MonitorHandle> monitor;
  Monitor::Window window;
};

WindowHandle begin(const std::shared_ptr<MonitorHandle>& monitor, const std::string& name) {
  const nb::gil_scoped_release without;
  return {monitor, monitor->begin(name)};
}

std::unique_ptr<Record> end(WindowHandle& handle) {
  const nb::gil_scoped_release without;
  return handle.monitor->end(std::move(handle.window));
}

/// The values of some domains as dictionaries, by caller's index: what is asked of every window.
class Tables {
 public:
  using Slots = std::vector<std::vector<std::pair<int, std::size_t>>>;
  explicit Tables(Slots slots) : slots_(std::move(slots)) {
    for (const auto& table : slots_) {
      for (const auto& [key, place] : table) keys_.push_back(nb::int_(key));
    }
  }

  /// Ends the window; (record, a dictionary a table, the reason of those of the first without a
  /// number: 0: there is none, n: Rn of all, -1: several).
  nb::tuple finish(WindowHandle& window) const {
    std::unique_ptr<Record> record = end(window);
    nb::list tables;
    int reason = 0;
    std::size_t key = 0;
    for (std::size_t t = 0; t < slots_.size(); ++t) {
      nb::dict table;
      for (const auto& [index, place] : slots_[t]) {
        const Estimate e = estimate(record->measurement, record->domain(place));
        table[keys_[key++]] = e.value;
        if (t == 0 && !(e.value > 0)) {
          const int code = static_cast<int>(e.refusal);
          reason = reason == 0 || reason == code ? (code == 0 ? -1 : code) : -1;
        }
      }
      tables.append(std::move(table));
    }
    return nb::make_tuple(std::move(record), std::move(tables), reason);
  }

 private:
  Slots slots_;
  std::vector<nb::int_> keys_;
};

nb::typed<nb::dict, std::string, double> budget(const Estimate& e) {
  nb::dict parts;
  parts["edges"] = e.budget.edges;
  parts["quantum"] = e.budget.quantum;
  parts["timing"] = e.budget.timing;
  parts["coverage"] = e.budget.coverage;
  parts["lag"] = e.budget.lag;
  parts["gain"] = e.budget.gain;
  parts["offset"] = e.budget.offset;
  return parts;
}

void bind_estimate(nb::module_& m) {
  nb::class_<Estimate>(m, "Estimate", "Joules with all that is known about their error (k = 1).")
      .def_ro("value_j", &Estimate::value, "NaN where there is no number.")
      .def_ro("u_abs_j", &Estimate::u_abs, "Standard uncertainty of the value.")
      .def_ro("u_cmp_j", &Estimate::u_cmp,
              "The same for comparing windows of one sensor: without gain and offset.")
      .def_ro("low_j", &Estimate::low, "Hard bound, whatever the load did; gain apart.")
      .def_ro("high_j", &Estimate::high)
      .def_ro("coverage", &Estimate::coverage, "Share of the time looked at; NaN: unknown.")
      .def_ro("update_s", &Estimate::update_s)
      .def_prop_ro("interval_j",
                   [](const Estimate& e) {
                     const auto [low, high] = e.interval();
                     return std::pair(low, high);
                   })
      .def_prop_ro("budget_j", &budget, "What the uncertainty is made of.")
      .def_prop_ro("flags",
                   [](const Estimate& e) {
                     std::vector<std::string> flags;
                     for (const std::string_view flag : names(e.flags)) flags.emplace_back(flag);
                     return flags;
                   })
      .def_prop_ro("method", [](const Estimate& e) { return e.method; })
      .def_prop_ro("quality", [](const Estimate& e) { return to_string(e.quality); })
      .def_prop_ro("quality_abs", [](const Estimate& e) { return to_string(e.quality_abs); })
      .def_prop_ro(
          "refusal",
          [](const Estimate& e) {
            return e.refusal == Refusal::none ? std::nullopt
                                              : std::optional<std::string>(to_string(e.refusal));
          },
          "Why there is no number.")
      .def("__repr__", [](const Estimate& e) {
        return "<zeus._core.Estimate " + std::to_string(e.value) + " J, u " +
               std::to_string(e.u_abs) + " J, quality " + to_string(e.quality) + ">";
      });
}

void bind_record(nb::module_& m) {
  nb::class_<Record>(m, "Record", "What one window read; it outlives its monitor.")
      .def_prop_ro("name", [](const Record& r) { return r.measurement.name; })
      .def_prop_ro(
          "wall_s",
          [](const Record& r) {
            return std::chrono::duration<double>(r.measurement.wall.time_since_epoch()).count();
          },
          "When it began, by the wall clock: a label.")
      .def_prop_ro(
          "begin_s", [](const Record& r) { return seconds(r.measurement.begin); },
          "When it began, by time.monotonic().")
      .def_prop_ro("end_s", [](const Record& r) { return seconds(r.measurement.end); })
      .def_prop_ro("seconds",
                   [](const Record& r) { return seconds(r.measurement.end - r.measurement.begin); })
      .def_prop_ro(
          "self_cost_s", [](const Record& r) { return seconds(r.measurement.self_cost); },
          "Time that begin and end spent reading.")
      .def(
          "estimate",
          [](const Record& r, std::size_t domain) {
            return estimate(r.measurement, r.domain(domain));
          },
          "domain"_a, "The energy of one domain, by its place in the monitor's list.")
      .def(
          "sum",
          [](const Record& r, const std::vector<std::size_t>& domains) {
            std::vector<DomainId> ids;
            for (const std::size_t d : domains) ids.push_back(r.domain(d));
            return estimate(r.measurement, ids);
          },
          "domains"_a, "The energy of several; refused where one holds another.")
      .def(
          "total", [](const Record& r) { return estimate(r.measurement, kNode); },
          "The whole machine, each joule once.");
}

}  // namespace

void bind_monitor(nb::module_& m) {
  bind_estimate(m);
  bind_record(m);
  nb::class_<Domain>(m, "Domain", "One domain of energy.")
      .def_ro("name", &Domain::name, "'gpu:0', 'package:1', 'dram:0'.")
      .def_ro("device", &Domain::device, "The id of its device.")
      .def_ro("sensor", &Domain::sensor)
      .def_ro("root", &Domain::root, "Whether the total contains it as a part of its own.")
      .def_prop_ro("unit", [](const Domain& d) { return d.id.unit; })
      .def_prop_ro("scope", [](const Domain& d) { return d.name.substr(0, d.name.find(':')); });
  nb::class_<WindowHandle>(m, "Window", "An open window; dropping it abandons the measurement.")
      .def("end", &end, "Ends it, once, and returns what was read.")
      .def_prop_ro("open", [](const WindowHandle& w) { return static_cast<bool>(w.window); });
  nb::class_<Tables>(m, "Tables", "The values of some domains as dictionaries.")
      .def(nb::init<Tables::Slots>(), "slots"_a, "A list of (key, domain's place) a table.")
      .def(
          "finish", &Tables::finish, "window"_a,
          nb::sig("def finish(self, window: Window) -> tuple[Record, list[dict[int, float]], int]"),
          "Ends a window: its record, its values, and why values of the first table are no "
          "numbers: 0: all are, n: the reason Rn of all that are not, -1: several reasons.");
  nb::class_<MonitorHandle>(m, "Monitor", "Measures the energy of windows; from any thread.")
      .def_static(
          "open", &MonitorHandle::open, "machine"_a, nb::kw_only(), "devices"_a = nb::none(),
          "follow"_a = "needed", "period_s"_a = 0.0, "align"_a = false,
          "Watches every energy counter, and the power of devices that have none. `devices`: "
          "the ids of the GPUs and packages that are meant; None: all.")
      .def_prop_ro("domains", [](const MonitorHandle& h) { return *h.domains(); })
      .def("begin", &begin, "name"_a, "Begins a window.")
      .def("mark", &MonitorHandle::mark, "Notes that an iteration of a periodic load begins now.");
}

}  // namespace zeus::python
