#include "backends/zeusd/remote.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backends/zeusd/knobs.h"
#include "backends/zeusd/session.h"
#include "backends/zeusd/sources.h"

namespace zeus::zeusd {
namespace {

using Kind = DeviceInfo::Kind;
using net::Discovery;

/// Lower case, as sysfs has it: daemons take it from vendor libraries.
std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c; });
  return text;
}

class Builder {
 public:
  explicit Builder(SessionPtr session) : session_(std::move(session)) {}

  Result<Machine> run() {
    const Discovery& d = session_->discovery();
    for (const Discovery::Gpu& g : d.gpus) part_.devices.push_back({identify(g), {}, {}});
    for (const Discovery::Cpu& c : d.cpus) part_.devices.push_back({identify(c), {}, {}});
    if (session_->may(Group::gpu_read)) {
      add_gpu_sensors();
    } else {
      refuse(Group::gpu_read);
    }
    if (session_->may(Group::cpu_read)) {
      add_cpu_sensors();
    } else {
      refuse(Group::cpu_read);
    }
    if (session_->may(Group::gpu_control)) add_gpu_knobs();
    if (!session_->may(Group::gpu_read) && !session_->may(Group::cpu_read)) {
      return session_->why_not(d.enables(Group::gpu_read) ? Group::gpu_read : Group::cpu_read);
    }
    std::erase_if(part_.devices, [](const Device& device) {
      return device.info.kind == Kind::cpu && device.sensors.empty();
    });
    if (d.simulation) part_.simulation = Simulation{*d.simulation, {}, {}};
    part_.owned.push_back(session_);
    return std::move(part_);
  }

 private:
  void told_by(DeviceInfo& info) const {
    const std::string& version = session_->discovery().version;
    info.backend = "zeusd";
    info.facts.emplace_back("zeusd", version.empty() ? "names no version" : version);
  }

  DeviceInfo identify(const Discovery::Gpu& gpu) const {
    DeviceInfo info;
    info.kind = Kind::gpu;
    info.model = gpu.name;
    info.index = gpu.id;
    info.pci = lower(gpu.pci_address);
    info.id = !gpu.uuid.empty()   ? gpu.uuid
              : !info.pci.empty() ? info.pci
                                  : "gpu-" + std::to_string(gpu.id);
    told_by(info);
    if (by_index(gpu)) info.facts.emplace_back("identity", "index");
    return info;
  }
  static bool by_index(const Discovery::Gpu& gpu) {
    return gpu.uuid.empty() && gpu.pci_address.empty();
  }
  DeviceInfo identify(const Discovery::Cpu& cpu) const {
    DeviceInfo info;
    info.kind = Kind::cpu;
    info.index = cpu.id;
    info.id = "package-" + std::to_string(cpu.id);
    told_by(info);
    return info;
  }

  void refuse(Group group) { part_.problems.push_back({"zeusd", session_->why_not(group)}); }

  /// The route for these devices, and what it answers now.
  struct Probe {
    std::shared_ptr<RouteSource> source;
    std::vector<Reading> readings;
    Errc whole = Errc::ok;
  };
  Probe probe(Route route, std::vector<std::size_t> places) {
    Probe p{std::make_shared<RouteSource>(session_, route, std::move(places)), {}};
    p.readings.resize(p.source->slots());
    p.whole = p.source->read(p.readings);
    if (p.whole != Errc::ok) {
      for (Reading& r : p.readings) r.error = p.whole;
    }
    part_.owned.push_back(p.source);
    return p;
  }

  void add_gpu_sensors() {
    const auto& gpus = session_->discovery().gpus;
    std::vector<std::size_t> all, counting;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      all.push_back(i);
      if (gpus[i].cumulative_energy_available.value_or(true)) counting.push_back(i);
    }
    if (!counting.empty()) add_route(Route::gpu_energy, counting);
    if (!all.empty()) add_route(Route::gpu_power, all);
  }

  void add_route(Route route, const std::vector<std::size_t>& places) {
    const Probe p = probe(route, places);
    for (unsigned slot = 0; slot < places.size(); ++slot) {
      Device& device = part_.devices[places[slot]];
      const SensorInfo info = describe(route, session_->discovery().gpus[places[slot]], device);
      // What the daemon says no GPU has, no GPU is asked for again.
      const Errc error = p.readings[slot].error;
      if (error == Errc::ok || error == Errc::busy) {
        device.sensors.push_back({info, p.source.get(), slot});
      } else {
        missing(device, info.name, error);
      }
    }
  }

  SensorInfo describe(Route route, const Discovery::Gpu& gpu, const Device& device) const {
    const bool energy = route == Route::gpu_energy;
    SensorInfo info;
    info.name = energy ? "energy" : "power_instant";
    info.quantity = energy ? Quantity::energy : Quantity::power;
    info.scale = 1e-3;
    info.domain = {Scope::gpu, gpu.id};
    info.lineage = "nvidia-board:" + device.info.id;
    info.by_index = by_index(gpu);
    // As if it were read there: the daemon adds nothing but its own time.
    info.profile.id = energy ? "nvml:energy" : "nvml:186:scope0";
    info.profile.update = std::chrono::milliseconds(100);
    if (energy) info.profile.kind = SensorKind::counter;
    info.profile.gain_u = 0.047;  // The spread of cards that nobody calibrated (SC'24 survey).
    return info;
  }

  void add_cpu_sensors() {
    const auto& cpus = session_->discovery().cpus;
    if (cpus.empty()) {
      part_.problems.push_back(
          {"zeusd",
           {Errc::absent, 0,
            "zeusd at " + session_->endpoint().text() +
                " serves cpu-read but has found no power counters of CPUs; its log says why"}});
      return;
    }
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < cpus.size(); ++i) all.push_back(i);
    const Probe p = probe(Route::cpu_energy, all);
    for (std::size_t i = 0; i < cpus.size(); ++i) {
      Device& device = part_.devices[session_->discovery().gpus.size() + i];
      add_cpu(device, p, static_cast<unsigned>(2 * i), "package", Scope::package, 1000);
      if (cpus[i].dram_available) {
        add_cpu(device, p, static_cast<unsigned>(2 * i + 1), "dram", Scope::dram, 300);
      }
    }
  }

  void add_cpu(Device& device, const Probe& p, unsigned slot, const std::string& name, Scope scope,
               double power_max_w) {
    const Errc error = p.readings[slot].error;
    if (error != Errc::ok && error != Errc::busy) return missing(device, name, error);
    SensorInfo info;
    info.name = name;
    info.quantity = Quantity::energy;
    info.scale = 1e-6;
    info.wrap = 0;  // The daemon follows wraps; a fall means that it was started anew.
    info.domain = {scope, device.info.index};
    info.lineage = "rapl:" + name + ':' + std::to_string(device.info.index);
    info.profile.id = "rapl:" + name;
    info.profile.kind = SensorKind::counter;
    info.profile.coverage = 1;
    info.profile.power_max_w = power_max_w;
    info.profile.update = std::chrono::milliseconds(guarded() ? 100 : 1);
    device.sensors.push_back({std::move(info), p.source.get(), slot});
  }

  /// Our daemon tells no more than ten values a second to peers that could not read the counter
  /// themselves (CVE-2020-8694).
  bool guarded() const {
    const bool local = session_->endpoint().transport == net::Endpoint::Transport::unix_socket;
    return !session_->discovery().version.empty() && !(local && ::geteuid() == 0);
  }

  void missing(const Device& device, const std::string& name, Errc error) {
    part_.problems.push_back(
        {"zeusd " + device.info.id + ' ' + name,
         {error, 0,
          "cannot read the " + name + " of " + device.info.id + " through zeusd at " +
              session_->endpoint().text() + ": " + why(error) + "; the daemon's log says more"}});
  }
  static const char* why(Errc error) {
    switch (error) {
      case Errc::unsupported: return "this device has none";
      case Errc::denied: return "the daemon may not";
      case Errc::absent: return "the daemon does not know that route";
      case Errc::malformed: return "the answer cannot be read";
      default: return "the device or the daemon fails";
    }
  }

  void add_gpu_knobs() {
    const auto& gpus = session_->discovery().gpus;
    const auto held = std::make_shared<Held>(session_);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (by_index(gpus[i])) continue;  // It might be another one by the time it is put back.
      add_knobs(session_, held, i, part_.devices[i], part_);
      limit_power(part_.devices[i]);
    }
  }
  /// Transients pass the limit by a fifth.
  static void limit_power(Device& device) {
    for (const KnobInfo& k : device.knobs) {
      if (k.name != "power_limit") continue;
      for (Sensor& s : device.sensors) s.info.profile.power_max_w = k.max * 1.2;
    }
  }

  SessionPtr session_;
  Machine part_;
};

}  // namespace

Result<Machine> open_remote(const std::string& where, const std::string& token) {
  auto session = Session::open(where, token);
  if (!session) return session.error();
  return Builder(std::move(*session)).run();
}

}  // namespace zeus::zeusd
