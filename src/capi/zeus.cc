#include "zeus/zeus.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "zeus/device.h"
#include "zeus/monitor.h"
#include "zeus/profile.h"

using zeus::DomainId;

namespace {

thread_local std::string last_error;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

zeus_status fail(zeus::Error error) {
  last_error = std::move(error.detail);
  return static_cast<zeus_status>(error.code);
}
zeus_status invalid(const char* why) { return fail({zeus::Errc::invalid, 0, why}); }

/// Copies as much of `value` as the caller's structure holds; its first member is its size.
template <class T>
zeus_status give(const T& value, T* out) {
  if (out == nullptr || out->size < sizeof(std::size_t)) {
    return invalid("cannot answer: the structure's size is not set");
  }
  const std::size_t size = std::min(out->size, sizeof(T));
  std::memcpy(out, &value, size);
  out->size = size;
  return ZEUS_OK;
}

/// The caller's options, whatever version of the header he was compiled with.
zeus_options taken(const zeus_options* options) {
  zeus_options mine{};
  if (options != nullptr) std::memcpy(&mine, options, std::min(options->size, sizeof mine));
  return mine;
}

std::string sentence(const zeus::Problem& p) { return p.where + ": " + p.error.detail; }

zeus::Environment environment_of(const zeus_options& options) {
  return [get = options.environment](const char* name) -> std::optional<std::string> {
    const char* value = get(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
}

/// Without an address, the machine of a program in the caller's environment.
zeus::Result<zeus::Machine> open_machine(const char* address, const zeus_options& options) {
  const bool asks = options.environment != nullptr;
  if (address == nullptr && asks) return zeus::open(environment_of(options));
  auto where = zeus::Address::parse(address == nullptr ? "local:" : address);
  if (!where) return where.error();
  if (asks) where->token = environment_of(options)("ZEUSD_TOKEN").value_or("");
  return zeus::open(*where);
}

/// Drops the devices that the caller did not ask for, and adds what his tables know of the others.
zeus::Status choose(zeus::Machine& machine, const zeus_options& options) {
  using Kind = zeus::DeviceInfo::Kind;
  for (const auto& [kind, list] : {std::pair(Kind::gpu, options.gpus), {Kind::cpu, options.cpus}}) {
    if (list == nullptr) continue;
    const auto chosen = zeus::named_devices(machine, kind, list);
    if (!chosen) return chosen.error();
    zeus::keep_only(machine, kind, *chosen);
  }
  if (options.gpus == nullptr && options.environment != nullptr) {
    const auto chosen = zeus::visible_gpus(machine, environment_of(options));
    machine.problems.insert(machine.problems.end(), chosen.problems.begin(), chosen.problems.end());
    zeus::keep_only(machine, Kind::gpu, chosen);
  }
  if (options.environment != nullptr) {
    const auto book = zeus::ProfileBook::load(environment_of(options));
    if (!book) return book.error();
    zeus::apply(*book, machine);
  }
  return zeus::ok();
}

}  // namespace

struct zeus_monitor {
  explicit zeus_monitor(zeus::Monitor m) : monitor(std::move(m)) {
    for (const DomainId id : monitor.subject().domains.all()) {
      const auto* sensor = zeus::sensor_of(monitor.subject(), id);
      domains.push_back({zeus::to_string(id), sensor->name, owner(id)});
    }
    for (const zeus::Problem& p : monitor.machine().problems) problems.push_back(sentence(p));
  }

  const zeus::DeviceInfo* owner(DomainId id) const {
    for (const zeus::Device& d : monitor.machine().devices) {
      for (const zeus::Sensor& s : d.sensors) {
        if (s.info.domain == id) return &d.info;
      }
    }
    return nullptr;
  }

  struct Domain {
    std::string name, sensor;
    const zeus::DeviceInfo* device;
  };
  zeus::Monitor monitor;
  std::vector<Domain> domains;
  std::vector<std::string> problems;
};

struct zeus_record {
  zeus::Measurement measurement;
};

extern "C" {

zeus_status zeus_open(const char* address, const zeus_options* options, zeus_monitor** out) try {
  if (out == nullptr) return invalid("cannot open a machine: there is nowhere to put it");
  *out = nullptr;
  const zeus_options mine = taken(options);
  auto machine = open_machine(address, mine);
  if (!machine) return fail(machine.error());
  if (auto chosen = choose(*machine, mine); !chosen) return fail(chosen.error());
  zeus::Monitor::Options how;
  if (mine.period_s > 0) {
    // A day is as good as never, and fits.
    how.period = std::chrono::duration_cast<zeus::Duration>(
        std::chrono::duration<double>(std::min(mine.period_s, 86'400.0)));
  }
  if (mine.align_to_ticks != 0) how.align = zeus::Monitor::Align::tick;
  auto monitor = zeus::Monitor::open(std::move(*machine), how);
  if (!monitor) return fail(monitor.error());
  *out = new zeus_monitor(std::move(*monitor));
  return ZEUS_OK;
} catch (const std::exception& e) {
  return fail({zeus::Errc::busy, 0, std::string("cannot open a machine: ") + e.what()});
}

void zeus_close(zeus_monitor* monitor) { delete monitor; }
const char* zeus_error(void) { return last_error.c_str(); }

size_t zeus_domain_count(const zeus_monitor* monitor) { return monitor->domains.size(); }

zeus_status zeus_domain(const zeus_monitor* monitor, size_t index, zeus_domain_info* out) {
  if (index >= monitor->domains.size()) return invalid("there is no such domain");
  const auto& d = monitor->domains[index];
  const auto& roots = monitor->monitor.subject().domains.roots();
  const DomainId id = monitor->monitor.subject().domains.all()[index];
  const bool root = std::find(roots.begin(), roots.end(), id) != roots.end();
  return give({sizeof(zeus_domain_info), d.name.c_str(), d.device->id.c_str(),
               d.device->model.c_str(), d.sensor.c_str(), root ? 1 : 0},
              out);
}

const char* zeus_problem(const zeus_monitor* monitor, size_t index) {
  return index < monitor->problems.size() ? monitor->problems[index].c_str() : nullptr;
}

const char* zeus_simulation(const zeus_monitor* monitor) {
  const auto& simulation = monitor->monitor.machine().simulation;
  return simulation ? simulation->scenario.c_str() : nullptr;
}

// A zeus_window is a Monitor::Window's own pointer: beginning one allocates nothing.
zeus_window* zeus_begin(zeus_monitor* monitor, const char* name) {
  return static_cast<zeus_window*>(monitor->monitor.begin(name == nullptr ? "" : name).detach());
}

zeus_status zeus_end(zeus_monitor* monitor, zeus_window* window, zeus_record* record) {
  auto mine = zeus::Monitor::Window::attach(window);
  if (!mine || record == nullptr) return invalid("cannot end a window: it or its record is null");
  return static_cast<zeus_status>(monitor->monitor.end(std::move(mine), record->measurement));
}

void zeus_mark(zeus_monitor* monitor) { monitor->monitor.mark(); }
void zeus_abandon(zeus_window* window) { (void)zeus::Monitor::Window::attach(window); }
zeus_record* zeus_record_new(void) { return new (std::nothrow) zeus_record; }
void zeus_record_free(zeus_record* record) { delete record; }

double zeus_seconds(const zeus_record* record) {
  const auto& m = record->measurement;
  return std::chrono::duration<double>(m.end - m.begin).count();
}

zeus_status zeus_energy(const zeus_record* record, size_t domain, zeus_estimate* out) {
  const auto& m = record->measurement;
  if (!m.subject) return invalid("the record is empty: end a window into it first");
  const auto& all = m.subject->domains.all();
  if (domain != ZEUS_TOTAL && domain >= all.size()) return invalid("there is no such domain");
  const zeus::Estimate e = zeus::estimate(m, domain == ZEUS_TOTAL ? zeus::kNode : all[domain]);
  const auto interval = e.interval();
  const auto& b = e.budget;
  const auto letter = [](zeus::Quality q) {
    return q == zeus::Quality::refused ? 'R' : *to_string(q);
  };
  return give({sizeof(zeus_estimate),
               e.value,
               e.u_abs,
               e.u_cmp,
               e.low,
               e.high,
               static_cast<uint32_t>(e.flags),
               letter(e.quality),
               letter(e.quality_abs),
               static_cast<int>(e.refusal),
               interval[0],
               interval[1],
               e.coverage,
               b.edges,
               b.quantum,
               b.timing,
               b.coverage,
               b.lag,
               b.gain,
               b.offset},
              out);
}

const char* zeus_version(void) { return ZEUS_VERSION; }

}  // extern "C"
