#include "node.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <initializer_list>
#include <utility>

#include "device/backend.h"

namespace zeus::zeusd {
namespace {

constexpr double kMilli = 1e-3, kMicro = 1e-6;

const Sensor* find(const Device& device, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    for (const Sensor& s : device.sensors) {
      if (s.info.name == name) return &s;
    }
  }
  return nullptr;
}

std::optional<Channel> channel(Feed* feed, const Sensor* sensor, double unit) {
  if (sensor == nullptr) return std::nullopt;
  return Channel{feed, sensor->slot, sensor->info.scale / unit, sensor->info};
}

const KnobInfo* knob(const Device& device, std::string_view name) {
  for (const KnobInfo& k : device.knobs) {
    if (k.name == name) return &k;
  }
  return nullptr;
}

/// The number in "intel-rapl:1": what sysfs calls it, and therefore the wire.
std::optional<unsigned> zone_number(const DeviceInfo& info) {
  for (const auto& [name, value] : info.facts) {
    if (name != "zone") continue;
    const auto colon = value.rfind(':');
    unsigned number = 0;
    const char* const end = value.data() + value.size();
    if (colon != std::string::npos &&
        std::from_chars(value.data() + colon + 1, end, number).ptr == end) {
      return number;
    }
  }
  return std::nullopt;
}

/// A knob as one more thing to be read: shared by all who ask, and waited for by nobody else.
class KnobSource final : public Source {
 public:
  KnobSource(Knob& knob, double scale) : knob_(knob), scale_(scale) {}
  Errc read(std::span<Reading> out) noexcept override {
    try {
      const auto now = knob_.get();
      if (!now) return now.error().code;
      out[0].raw = static_cast<std::uint64_t>(std::llround(now->low / scale_));
      return Errc::ok;
    } catch (const std::exception&) {
      return Errc::busy;  // No memory for the words of an error.
    }
  }

 private:
  Knob& knob_;
  double scale_;
};

}  // namespace

std::uint64_t Channel::on_wire(const Value& value) const noexcept {
  if (scale == 1) return value.count;
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(value.count) * scale));
}

Node::Node(Machine machine, Readers& readers, bool gpus, bool cpus) : machine_(std::move(machine)) {
  for (const Device& d : machine_.devices) {
    if (gpus && d.info.kind == DeviceInfo::Kind::gpu) add_gpu(d, readers);
    if (cpus && d.info.kind == DeviceInfo::Kind::cpu) add_cpu(d, readers);
  }
  const auto by_id = [](const auto& a, const auto& b) { return a.id < b.id; };
  std::sort(gpus_.begin(), gpus_.end(), by_id);
  std::sort(cpus_.begin(), cpus_.end(), by_id);
}

void Node::add_gpu(const Device& device, Readers& readers) {
  Gpu gpu;
  gpu.id = device.info.index;
  gpu.device = &device;
  gpu.pci = device.info.pci;
  const Sensor* power = find(device, {"power_instant", "power", "power_average",
                                      "module_power_instant", "module_power_average"});
  const Sensor* energy = find(device, {"energy", "module_energy"});
  if (power != nullptr) gpu.power = channel(readers.feed(device, *power), power, kMilli);
  if (energy != nullptr) gpu.energy = channel(readers.feed(device, *energy), energy, kMilli);
  gpu.power_limit = knob(device, "power_limit");
  gpu.persistence = knob(device, "persistence");
  gpu.sm_clock = knob(device, "sm_clock");
  gpu.memory_clock = knob(device, "memory_clock");
  gpu.limit = read_knob(device, gpu.power_limit, kMilli, readers);
  gpu.persistent = read_knob(device, gpu.persistence, 1, readers);
  gpus_.push_back(std::move(gpu));
}

std::optional<Channel> Node::read_knob(const Device& device, const KnobInfo* knob, double scale,
                                       Readers& readers) {
  if (knob == nullptr) return std::nullopt;
  knobs_.push_back(std::make_unique<KnobSource>(*knob->knob, scale));
  Device alone;
  alone.info = device.info;
  alone.sensors.push_back(
      {{.name = knob->name, .quantity = knob->quantity, .scale = scale}, knobs_.back().get(), 0});
  return channel(readers.feed(alone, alone.sensors.front()), &alone.sensors.front(), scale);
}

void Node::add_cpu(const Device& device, Readers& readers) {
  const Sensor* package = find(device, {"package"});
  if (package == nullptr) return;
  const Sensor* dram = find(device, {"dram"});
  Cpu cpu;
  cpu.id = zone_number(device.info).value_or(device.info.index);
  cpu.device = &device;
  cpu.guarded = std::find(device.info.facts.begin(), device.info.facts.end(),
                          std::pair<std::string, std::string>("counters", "world-readable")) ==
                device.info.facts.end();
  cpu.package = channel(readers.feed(device, *package), package, kMicro);
  if (dram != nullptr) cpu.dram = channel(readers.feed(device, *dram), dram, kMicro);
  cpus_.push_back(std::move(cpu));
}

std::vector<Feed*> Node::gpu_feeds() const {
  std::vector<Feed*> feeds;
  for (const Gpu& g : gpus_) {
    for (const auto* channel : {&g.power, &g.energy, &g.limit, &g.persistent}) {
      if (*channel) feeds.push_back((*channel)->feed);
    }
  }
  std::sort(feeds.begin(), feeds.end());
  feeds.erase(std::unique(feeds.begin(), feeds.end()), feeds.end());
  return feeds;
}

const Gpu* Node::gpu(unsigned id) const noexcept {
  const auto it =
      std::find_if(gpus_.begin(), gpus_.end(), [id](const Gpu& g) { return g.id == id; });
  return it == gpus_.end() ? nullptr : &*it;
}

const Cpu* Node::cpu(unsigned id) const noexcept {
  const auto it =
      std::find_if(cpus_.begin(), cpus_.end(), [id](const Cpu& c) { return c.id == id; });
  return it == cpus_.end() ? nullptr : &*it;
}

}  // namespace zeus::zeusd
