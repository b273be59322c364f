#include "backends/nvml/sensors.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "backends/nvml/fields.h"

namespace zeus::nvml {
namespace {

using std::chrono::milliseconds;

/// One value of a call. Raw values beyond `most` are garbage.
struct Level {
  const char* name;
  Quantity quantity;
  double scale;
  std::uint64_t most;
};

/// A call of its own that yields `Slots` raw values. `ask` gets them by one vendor call.
template <std::size_t Slots>
class Call final : public Source {
 public:
  using Values = std::array<std::uint64_t, Slots>;
  using Ask = abi::Return (*)(const Api& api, abi::Device device, Values& out) noexcept;

  Call(SessionPtr session, unsigned index, Ask how, const std::array<Level, Slots>& levels)
      : session_(std::move(session)), index_(index), ask_(how), levels_(levels) {}

  abi::Return ask(Values& out) noexcept {
    return session_->call(index_, [&](abi::Device d) { return ask_(session_->api, d, out); });
  }
  Errc read(std::span<Reading> out) noexcept override {
    Values values{};
    const auto r = ask(values);
    if (r != abi::kSuccess) return to_errc(r);
    for (std::size_t i = 0; i < std::min(out.size(), Slots); ++i) {
      out[i].raw = values[i];
      out[i].error = judge(levels_[i].quantity, values[i], levels_[i].most);
    }
    return Errc::ok;
  }

 private:
  SessionPtr session_;
  unsigned index_;
  Ask ask_;
  std::array<Level, Slots> levels_;
};

using One = std::array<std::uint64_t, 1>;
using Two = std::array<std::uint64_t, 2>;
constexpr std::uint64_t kGarbage = ~std::uint64_t{0};

template <class T>
abi::Return put(abi::Return r, T value, One& out) noexcept {
  out[0] = static_cast<std::uint64_t>(value);
  return r;
}

abi::Return ask_energy(const Api& api, abi::Device d, One& out) noexcept {
  unsigned long long mj = 0;
  const auto r = api.energy(d, &mj);
  return put(r, mj, out);
}

abi::Return ask_power(const Api& api, abi::Device d, One& out) noexcept {
  unsigned mw = 0;
  const auto r = api.power(d, &mw);
  return put(r, mw, out);
}

abi::Return ask_temperature(const Api& api, abi::Device d, One& out) noexcept {
  abi::Temperature t{abi::kTemperatureVersion1, abi::kTemperatureGpu, 0};
  const auto r = api.temperature_v(d, &t);
  return put(r, t.celsius, out);  // Below zero it is garbage: it becomes a very great number.
}

abi::Return ask_old_temperature(const Api& api, abi::Device d, One& out) noexcept {
  unsigned celsius = 0;
  const auto r = api.temperature(d, abi::kTemperatureGpu, &celsius);
  return put(r, celsius, out);
}

template <abi::ClockType Which>
abi::Return ask_clock(const Api& api, abi::Device d, One& out) noexcept {
  unsigned mhz = 0;
  const auto r = api.clock(d, Which, &mhz);
  return put(r, mhz, out);
}

abi::Return ask_utilization(const Api& api, abi::Device d, Two& out) noexcept {
  abi::Utilization u{};
  const auto r = api.utilization(d, &u);
  out = {u.gpu, u.memory};
  return r;
}

abi::Return ask_memory(const Api& api, abi::Device d, One& out) noexcept {
  abi::Memory2 m{};
  m.version = abi::kMemoryVersion2;
  const auto r = api.memory_v2(d, &m);
  return put(r, m.used <= m.total ? m.used : kGarbage, out);
}

// Counts what the driver keeps for itself as used.
abi::Return ask_old_memory(const Api& api, abi::Device d, One& out) noexcept {
  abi::Memory m{};
  const auto r = api.memory(d, &m);
  return put(r, m.used <= m.total ? m.used : kGarbage, out);
}

abi::Return ask_throttle(const Api& api, abi::Device d, One& out) noexcept {
  unsigned long long reasons = 0;
  const auto r = api.throttle(d, &reasons);
  return put(r, reasons, out);
}

constexpr std::array<Level, 1> kTemperature{{{"temperature", Quantity::temperature, 1, 250}}};
constexpr std::array<Level, 1> kSmClock{{{"sm_clock", Quantity::clock, 1e6, 100'000}}};
constexpr std::array<Level, 1> kMemoryClock{{{"memory_clock", Quantity::clock, 1e6, 100'000}}};
constexpr std::array<Level, 1> kMemory{{{"memory_used", Quantity::memory, 1, kGarbage - 1}}};
constexpr std::array<Level, 1> kThrottle{
    {{"throttle_reasons", Quantity::throttle, 1, kGarbage - 1}}};
constexpr std::array<Level, 2> kUtilization{
    {{"gpu_utilization", Quantity::utilization, 1e-2, 100},
     {"memory_utilization", Quantity::utilization, 1e-2, 100}}};

class Adder {
 public:
  Adder(const SessionPtr& session, unsigned index, unsigned limit_mw, Device& device, Machine& part)
      : session_(session), index_(index), limit_mw_(limit_mw), device_(device), part_(part) {}

  void run() {
    const Api& api = session_->api;
    const FieldsFound fields = find_fields(*session_, index_, most_mw());
    add_fields(fields);
    if (!has(Quantity::energy)) add_counter(fields.module_only);
    if (!has(Quantity::power) && api.power) {
      add<1>(ask_power, {{{"power", Quantity::power, 1e-3, most_mw()}}});
    }
    for (const Problem& p : fields.refused) problem(p.where, p.error);
    if (!has(Quantity::energy)) tell_no_counter();

    if (!(api.temperature_v && add(ask_temperature, kTemperature)) && api.temperature) {
      add(ask_old_temperature, kTemperature);
    }
    if (api.clock) {
      add(ask_clock<abi::kClockSm>, kSmClock);
      add(ask_clock<abi::kClockMemory>, kMemoryClock);
    }
    if (api.utilization) add(ask_utilization, kUtilization);
    if (!(api.memory_v2 && add(ask_memory, kMemory)) && api.memory) add(ask_old_memory, kMemory);
    if (api.throttle) add(ask_throttle, kThrottle);
  }

 private:
  /// Beyond half as much again as the greatest limit, a power is garbage.
  std::uint64_t most_mw() const {
    return limit_mw_ == 0 ? kPowerEverMw : std::uint64_t{limit_mw_} * 3 / 2;
  }

  void add_fields(const FieldsFound& found) {
    if (found.slots.empty()) return;
    const auto source = std::make_shared<Fields>(session_, index_, found.slots);
    part_.owned.push_back(source);
    for (unsigned slot = 0; slot < found.slots.size(); ++slot) {
      const Field& f = found.slots[slot];
      SensorInfo info = describe(f.name, f.quantity, 1e-3, f.domain);
      info.profile.id = "nvml:" + std::to_string(f.field) + ":scope" + std::to_string(f.scope);
      // The GPU's field where it counts the whole module: a sensor of its own.
      if (f.domain == Scope::module && f.scope == abi::kScopeGpu) info.profile.id += ":module";
      if (f.field == abi::kFieldPowerAverage) info.profile.window = std::chrono::seconds(1);
      device_.sensors.push_back({std::move(info), source.get(), slot});
    }
  }

  void add_counter(bool module) {
    if (!session_->api.energy) return;
    add<1>(ask_energy,
           {{{module ? "module_energy" : "energy", Quantity::energy, 1e-3, kEnergyEverMj}}},
           module ? Scope::module : Scope::gpu);
  }

  /// False where the call does not work here.
  template <std::size_t Slots>
  bool add(abi::Return (*ask)(const Api&, abi::Device, std::array<std::uint64_t, Slots>&) noexcept,
           const std::array<Level, Slots>& levels, Scope domain = Scope::gpu) {
    auto source = std::make_shared<Call<Slots>>(session_, index_, ask, levels);
    typename Call<Slots>::Values values{};
    if (const auto r = source->ask(values); r != abi::kSuccess) {
      const Errc e = to_errc(r);
      if (e != Errc::unsupported && e != Errc::invalid) {
        problem(levels[0].name, {e, r, session_->api.words(r)});
      }
      return false;
    }
    for (unsigned slot = 0; slot < Slots; ++slot) {
      const Level& level = levels[slot];
      device_.sensors.push_back(
          {describe(level.name, level.quantity, level.scale, domain), source.get(), slot});
    }
    part_.owned.push_back(std::move(source));
    return true;
  }

  SensorInfo describe(const char* name, Quantity quantity, double scale, Scope scope) const {
    SensorInfo info;
    info.name = name;
    info.quantity = quantity;
    info.scale = scale;
    info.domain = {scope, static_cast<std::uint16_t>(index_)};
    info.lineage = "nvidia-board:" + device_.info.id;
    info.profile.id = std::string("nvml:") + name;
    info.profile.update = milliseconds(100);
    const bool electric = quantity == Quantity::energy || quantity == Quantity::power;
    if (electric && scope == Scope::gpu) {
      info.profile.power_max_w = limit_mw_ * 1.2e-3;  // Transients pass the limit by a fifth.
      info.profile.gain_u = 0.047;  // The spread of cards that nobody calibrated (SC'24 survey).
    }
    return info;
  }

  bool has(Quantity quantity) const {
    return std::any_of(device_.sensors.begin(), device_.sensors.end(), [quantity](const auto& s) {
      return s.info.quantity == quantity && s.info.domain.scope != Scope::memory;
    });
  }

  void tell_no_counter() {
    const std::string gpu = device_.info.model + " (" + device_.info.id + ") ";
    problem("energy",
            {Errc::unsupported, abi::kNotSupported,
             has(Quantity::power)
                 ? gpu + "has no energy counter; its energy is integrated from samples of its power"
                 : gpu + "tells neither energy nor power through NVML; on a Jetson or a vGPU guest "
                         "that is so by design"});
  }

  void problem(const std::string& what, Error error) {
    part_.problems.push_back({"nvml " + device_.info.id + ' ' + what, std::move(error)});
  }

  const SessionPtr& session_;
  unsigned index_;
  unsigned limit_mw_;
  Device& device_;
  Machine& part_;
};

}  // namespace

void add_sensors(const SessionPtr& session, unsigned index, unsigned limit_mw, Device& device,
                 Machine& part) {
  Adder(session, index, limit_mw, device, part).run();
}

}  // namespace zeus::nvml
