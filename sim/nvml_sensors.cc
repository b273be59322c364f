// libnvidia-ml.so.1 of a simulated machine: what changes over time, and what can be set.

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "sim/nvml_call.h"

namespace zeus::sim {
namespace {

unsigned milliwatts(double watts) { return static_cast<unsigned>(std::lround(watts * 1e3)); }

// Sensor values in mW or mJ; a fault may put another number in their place.
abi::Return power(const Ref& r, const Verdict& v, const std::optional<PowerSensor>& s,
                  unsigned& out) {
  if (!s) return abi::kNotSupported;
  out = v.value ? static_cast<unsigned>(*v.value)
                : milliwatts(std::max(0.0, s->read(r.m.truth(r.index), r.now)));
  return abi::kSuccess;
}

abi::Return energy(const Ref& r, const Verdict& v, const std::optional<Counter>& c,
                   unsigned long long& out) {
  if (!c) return abi::kNotSupported;
  out = v.value ? *v.value : r.m.gpu_counter(r.index, *c, r.now);
  return abi::kSuccess;
}

[[maybe_unused]] void serve(const Ref& r, abi::FieldValue& f) {
  const auto index = static_cast<int>(r.index);
  const bool is_energy = f.field == abi::kFieldTotalEnergy || f.field == abi::kFieldEnergy;
  const bool is_power = f.field == abi::kFieldPowerAverage || f.field == abi::kFieldPowerInstant;
  const unsigned scope = r.m.scenario().nvml->scopes ? f.scope : abi::kScopeGpu;
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  f.timestamp = wall.tv_sec * 1'000'000LL + wall.tv_nsec / 1000;
  f.latency = 0;
  f.value = {};
  f.type = abi::kUnsigned;
  f.result = abi::kNotSupported;
  if (is_energy) {
    const Verdict v = r.m.consult(call("field:energy"), Fault::Target::gpu, index);
    f.type = abi::kUnsignedLongLong;
    const bool module = f.field == abi::kFieldEnergy && scope == abi::kScopeModule;
    if (!module && scope != abi::kScopeGpu) return;
    f.result = v.code != 0 ? v.code
                           : energy(r, v, module ? r.gpu.module_energy : r.gpu.energy, f.value.u64);
  } else if (is_power) {
    const Verdict v = r.m.consult(call("field:power"), Fault::Target::gpu, index);
    const bool average = f.field == abi::kFieldPowerAverage;
    if (v.code != 0) {
      f.result = v.code;
    } else if (scope == abi::kScopeGpu) {
      f.result = power(r, v, average ? r.gpu.power_average : r.gpu.power_instant, f.value.u32);
    } else if (scope == abi::kScopeModule) {
      f.result = power(r, v, r.gpu.module_power, f.value.u32);
    } else if (scope == abi::kScopeMemory && average) {
      f.result = power(r, v, r.gpu.memory_power, f.value.u32);
    }
  } else if (f.field >= 187 && f.field <= 192 && scope == abi::kScopeGpu && r.gpu.limit) {
    const double set = r.m.limit_watts(r.index);  // 187 min, 188 max, 189 default, 190 and 192 set.
    f.value.u32 = milliwatts(f.field == 187   ? r.gpu.limit->min
                             : f.field == 188 ? r.gpu.limit->max
                             : f.field == 189 ? r.gpu.limit->standard
                                              : set);
    f.result = abi::kSuccess;
  }
}

// A list that is asked for its length first.
abi::Return list(unsigned* count, unsigned* out, unsigned n, auto&& entry) {
  if (count == nullptr) return abi::kInvalidArgument;
  const unsigned room = *count;
  *count = n;
  if (room < n || out == nullptr) return abi::kInsufficientSize;
  for (unsigned i = 0; i < n; ++i) out[i] = entry(i);
  return abi::kSuccess;
}

abi::Return control(const Machine& m) {
  switch (m.scenario().nvml->control) {
    case Nvml::Control::everyone: return abi::kSuccess;
    case Nvml::Control::nobody: return abi::kNoPermission;
    case Nvml::Control::root: break;
  }
  return geteuid() == 0 ? abi::kSuccess : abi::kNoPermission;
}

unsigned clock_of(const Ref& r, abi::ClockType type) {
  const DeviceState& d = r.m.state().device(r.index);
  const bool memory = type == abi::kClockMemory;
  const std::uint64_t lock = (memory ? d.memory_lock : d.sm_lock).load();
  const auto low = static_cast<unsigned>(lock >> 32), high = static_cast<unsigned>(lock);
  if (memory) return lock != 0 ? high : r.gpu.memory_clocks.front();
  const double wanted = r.m.wanted_watts(r.index, r.now);
  double mhz = r.m.load(r.index, r.now) > 0 ? r.gpu.sm_clocks.high : r.gpu.sm_clocks.low;
  if (wanted > r.m.limit_watts(r.index)) mhz *= r.m.limit_watts(r.index) / wanted;
  const auto running = std::max(r.gpu.sm_clocks.low, static_cast<unsigned>(mhz));
  return lock != 0 ? std::clamp(running, low, high) : running;
}

abi::Return lock_clocks(const Ref& r, std::atomic<std::uint64_t> DeviceState::*lock, unsigned low,
                        unsigned high) {
  if (const abi::Return e = control(r.m); e != abi::kSuccess) return e;
  if (low > high) return abi::kInvalidArgument;
  (r.m.state().device(r.index).*lock).store(std::uint64_t{low} << 32 | high);
  return abi::kSuccess;
}

abi::Return throttle_reasons(const Ref& r, const Verdict& v, unsigned long long* out) {
  constexpr unsigned long long kIdle = 1, kPowerCap = 4;
  const bool capped = r.m.wanted_watts(r.index, r.now) > r.m.limit_watts(r.index);
  const bool idle = r.m.load(r.index, r.now) <= 0;
  return give(out, v.value.value_or(capped ? kPowerCap : idle ? kIdle : 0));
}

abi::Return temperature(const Ref& r, const Verdict& v, int sensor, unsigned& out) {
  if (sensor != abi::kTemperatureGpu) return abi::kInvalidArgument;
  out = v.value ? static_cast<unsigned>(*v.value)
                : r.gpu.temperature + static_cast<unsigned>(40 * r.m.load(r.index, r.now));
  return abi::kSuccess;
}

abi::Return limit_in(std::size_t call, abi::Device d, unsigned* out, auto&& get) {
  return on_device(call, d, [&](const Ref& r, const Verdict& v) -> abi::Return {
    if (!r.gpu.limit) return abi::kNotSupported;
    return give(out, v.value ? static_cast<unsigned>(*v.value) : milliwatts(get(r)));
  });
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Each function is first declared through the type by which the backend calls it.
abi::GetUnsigned nvmlDeviceGetPowerUsage, nvmlDeviceGetEnforcedPowerLimit,
    nvmlDeviceGetPowerManagementLimit, nvmlDeviceGetPowerManagementDefaultLimit,
    nvmlDeviceGetPowerManagementMode, nvmlDeviceGetPersistenceMode, nvmlDeviceGetPowerState,
    nvmlDeviceGetPerformanceState;
abi::GetEnergy nvmlDeviceGetTotalEnergyConsumption;
abi::GetPair nvmlDeviceGetPowerManagementLimitConstraints;
abi::SetUnsigned nvmlDeviceSetPowerManagementLimit, nvmlDeviceSetPersistenceMode;
abi::SetRange nvmlDeviceSetGpuLockedClocks, nvmlDeviceSetMemoryLockedClocks;
abi::Reset nvmlDeviceResetGpuLockedClocks, nvmlDeviceResetMemoryLockedClocks;
abi::GetTemperature nvmlDeviceGetTemperature;
abi::GetClock nvmlDeviceGetClockInfo, nvmlDeviceGetMaxClockInfo;
abi::GetClocks nvmlDeviceGetSupportedMemoryClocks;
abi::GetClocksAt nvmlDeviceGetSupportedGraphicsClocks;
abi::GetUnsigned64 nvmlDeviceGetCurrentClocksThrottleReasons;
abi::GetUtilization nvmlDeviceGetUtilizationRates;
abi::GetMemory nvmlDeviceGetMemoryInfo;
abi::GetMemory2 nvmlDeviceGetMemoryInfo_v2;

abi::Return nvmlDeviceGetTotalEnergyConsumption(abi::Device d, unsigned long long* out) {
  return on_device(call("nvmlDeviceGetTotalEnergyConsumption"), d,
                   [&](const Ref& r, const Verdict& v) -> abi::Return {
                     if (out == nullptr) return abi::kInvalidArgument;
                     return energy(r, v, r.gpu.energy, *out);
                   });
}
abi::Return nvmlDeviceGetPowerUsage(abi::Device d, unsigned* out) {
  return on_device(call("nvmlDeviceGetPowerUsage"), d,
                   [&](const Ref& r, const Verdict& v) -> abi::Return {
                     if (out == nullptr) return abi::kInvalidArgument;
                     return power(r, v, r.gpu.power_usage, *out);
                   });
}
abi::Return nvmlDeviceGetPowerManagementMode(abi::Device d, unsigned* out) {
  return number(call("nvmlDeviceGetPowerManagementMode"), d, out,
                [](const Ref& r) { return r.gpu.limit ? abi::kEnabled : abi::kDisabled; });
}
abi::Return nvmlDeviceGetEnforcedPowerLimit(abi::Device d, unsigned* out) {
  return limit_in(call("nvmlDeviceGetEnforcedPowerLimit"), d, out,
                  [](const Ref& r) { return r.m.limit_watts(r.index); });
}
abi::Return nvmlDeviceGetPowerManagementLimit(abi::Device d, unsigned* out) {
  return limit_in(call("nvmlDeviceGetPowerManagementLimit"), d, out,
                  [](const Ref& r) { return r.m.limit_watts(r.index); });
}
abi::Return nvmlDeviceGetPowerManagementDefaultLimit(abi::Device d, unsigned* out) {
  return limit_in(call("nvmlDeviceGetPowerManagementDefaultLimit"), d, out,
                  [](const Ref& r) { return r.gpu.limit->standard; });
}
abi::Return nvmlDeviceGetPowerManagementLimitConstraints(abi::Device d, unsigned* low,
                                                         unsigned* high) {
  return on_device(call("nvmlDeviceGetPowerManagementLimitConstraints"), d,
                   [&](const Ref& r, const Verdict&) -> abi::Return {
                     if (!r.gpu.limit) return abi::kNotSupported;
                     const abi::Return e = give(low, milliwatts(r.gpu.limit->min));
                     return e != abi::kSuccess ? e : give(high, milliwatts(r.gpu.limit->max));
                   });
}
abi::Return nvmlDeviceSetPowerManagementLimit(abi::Device d, unsigned milliwatt) {
  return on_device(
      call("nvmlDeviceSetPowerManagementLimit"), d,
      [&](const Ref& r, const Verdict&) -> abi::Return {
        if (!r.gpu.limit) return abi::kNotSupported;
        if (const abi::Return e = control(r.m); e != abi::kSuccess) return e;
        if (milliwatt < milliwatts(r.gpu.limit->min) || milliwatt > milliwatts(r.gpu.limit->max)) {
          return abi::kInvalidArgument;
        }
        r.m.set_limit(r.index, milliwatt * 1e-3);
        return abi::kSuccess;
      });
}

abi::Return nvmlDeviceGetTemperature(abi::Device d, int sensor, unsigned* out) {
  return on_device(call("nvmlDeviceGetTemperature"), d,
                   [&](const Ref& r, const Verdict& v) -> abi::Return {
                     if (out == nullptr) return abi::kInvalidArgument;
                     return temperature(r, v, sensor, *out);
                   });
}
abi::Return nvmlDeviceGetClockInfo(abi::Device d, abi::ClockType type, unsigned* out) {
  return number(call("nvmlDeviceGetClockInfo"), d, out,
                [&](const Ref& r) { return clock_of(r, type); });
}
abi::Return nvmlDeviceGetMaxClockInfo(abi::Device d, abi::ClockType type, unsigned* out) {
  return number(call("nvmlDeviceGetMaxClockInfo"), d, out, [&](const Ref& r) {
    return type == abi::kClockMemory ? r.gpu.memory_clocks.front() : r.gpu.sm_clocks.high;
  });
}
abi::Return nvmlDeviceGetSupportedMemoryClocks(abi::Device d, unsigned* count, unsigned* out) {
  return on_device(call("nvmlDeviceGetSupportedMemoryClocks"), d,
                   [&](const Ref& r, const Verdict&) {
                     return list(count, out, static_cast<unsigned>(r.gpu.memory_clocks.size()),
                                 [&](unsigned i) { return r.gpu.memory_clocks[i]; });
                   });
}
abi::Return nvmlDeviceGetSupportedGraphicsClocks(abi::Device d, unsigned memory, unsigned* count,
                                                 unsigned* out) {
  return on_device(call("nvmlDeviceGetSupportedGraphicsClocks"), d,
                   [&](const Ref& r, const Verdict&) -> abi::Return {
                     const auto& known = r.gpu.memory_clocks;
                     if (std::find(known.begin(), known.end(), memory) == known.end()) {
                       return abi::kNotFound;
                     }
                     constexpr unsigned kStep = 15;  // MHz, falling
                     const auto [low, high] = r.gpu.sm_clocks;
                     return list(count, out, (high - low) / kStep + 1,
                                 [&](unsigned i) { return high - i * kStep; });
                   });
}
abi::Return nvmlDeviceGetCurrentClocksThrottleReasons(abi::Device d, unsigned long long* out) {
  return on_device(call("nvmlDeviceGetCurrentClocksThrottleReasons"), d,
                   [&](const Ref& r, const Verdict& v) { return throttle_reasons(r, v, out); });
}
abi::Return nvmlDeviceSetGpuLockedClocks(abi::Device d, unsigned low, unsigned high) {
  return on_device(call("nvmlDeviceSetGpuLockedClocks"), d, [&](const Ref& r, const Verdict&) {
    return lock_clocks(r, &DeviceState::sm_lock, low, high);
  });
}
abi::Return nvmlDeviceResetGpuLockedClocks(abi::Device d) {
  return on_device(call("nvmlDeviceResetGpuLockedClocks"), d, [&](const Ref& r, const Verdict&) {
    return lock_clocks(r, &DeviceState::sm_lock, 0, 0);
  });
}
abi::Return nvmlDeviceSetMemoryLockedClocks(abi::Device d, unsigned low, unsigned high) {
  return on_device(call("nvmlDeviceSetMemoryLockedClocks"), d, [&](const Ref& r, const Verdict&) {
    return lock_clocks(r, &DeviceState::memory_lock, low, high);
  });
}
abi::Return nvmlDeviceResetMemoryLockedClocks(abi::Device d) {
  return on_device(call("nvmlDeviceResetMemoryLockedClocks"), d, [&](const Ref& r, const Verdict&) {
    return lock_clocks(r, &DeviceState::memory_lock, 0, 0);
  });
}
abi::Return nvmlDeviceGetPersistenceMode(abi::Device d, unsigned* out) {
  return number(call("nvmlDeviceGetPersistenceMode"), d, out, [](const Ref& r) {
    return r.m.state().device(r.index).persistence ? abi::kEnabled : abi::kDisabled;
  });
}
abi::Return nvmlDeviceSetPersistenceMode(abi::Device d, unsigned mode) {
  return on_device(call("nvmlDeviceSetPersistenceMode"), d,
                   [&](const Ref& r, const Verdict&) -> abi::Return {
                     if (const abi::Return e = control(r.m); e != abi::kSuccess) return e;
                     if (mode > 1) return abi::kInvalidArgument;
                     r.m.state().device(r.index).persistence = mode != 0;
                     return abi::kSuccess;
                   });
}
abi::Return nvmlDeviceGetUtilizationRates(abi::Device d, abi::Utilization* out) {
  return on_device(call("nvmlDeviceGetUtilizationRates"), d, [&](const Ref& r, const Verdict&) {
    const double load = r.m.load(r.index, r.now);
    return give(out, {static_cast<unsigned>(std::lround(100 * load)),
                      static_cast<unsigned>(std::lround(50 * load))});
  });
}
abi::Return nvmlDeviceGetMemoryInfo(abi::Device d, abi::Memory* out) {
  return on_device(call("nvmlDeviceGetMemoryInfo"), d, [&](const Ref& r, const Verdict&) {
    const unsigned long long used = r.gpu.memory / 64;
    return give(out, {r.gpu.memory, r.gpu.memory - used, used});
  });
}
abi::Return nvmlDeviceGetMemoryInfo_v2(abi::Device d, abi::Memory2* out) {
  return on_device(call("nvmlDeviceGetMemoryInfo_v2"), d,
                   [&](const Ref& r, const Verdict&) -> abi::Return {
                     if (out == nullptr) return abi::kInvalidArgument;
                     if (out->version != abi::kMemoryVersion2) return abi::kArgumentVersionMismatch;
                     const unsigned long long part = r.gpu.memory / 128;
                     *out = {out->version, r.gpu.memory, part, r.gpu.memory - 2 * part, part};
                     return abi::kSuccess;
                   });
}
abi::Return nvmlDeviceGetPowerState(abi::Device d, unsigned* out) {
  return number(call("nvmlDeviceGetPowerState"), d, out,
                [](const Ref& r) { return r.m.load(r.index, r.now) > 0 ? 0U : 8U; });
}
abi::Return nvmlDeviceGetPerformanceState(abi::Device d, unsigned* out) {
  return number(call("nvmlDeviceGetPerformanceState"), d, out,
                [](const Ref& r) { return r.m.load(r.index, r.now) > 0 ? 0U : 8U; });
}
#ifndef ZEUS_SIM_OLD
abi::GetFields nvmlDeviceGetFieldValues;
abi::GetTemperatureV nvmlDeviceGetTemperatureV;
abi::GetUnsigned64 nvmlDeviceGetCurrentClocksEventReasons;

abi::Return nvmlDeviceGetFieldValues(abi::Device d, int count, abi::FieldValue* values) {
  return on_device(call("nvmlDeviceGetFieldValues"), d,
                   [&](const Ref& r, const Verdict&) -> abi::Return {
                     if (count < 1 || values == nullptr) return abi::kInvalidArgument;
                     for (int i = 0; i < count; ++i) serve(r, values[i]);
                     return abi::kSuccess;
                   });
}
abi::Return nvmlDeviceGetTemperatureV(abi::Device d, abi::Temperature* out) {
  return on_device(call("nvmlDeviceGetTemperatureV"), d,
                   [&](const Ref& r, const Verdict& v) -> abi::Return {
                     if (out == nullptr) return abi::kInvalidArgument;
                     if (out->version != abi::kTemperatureVersion1) {
                       return abi::kArgumentVersionMismatch;
                     }
                     unsigned celsius = 0;
                     const abi::Return e = temperature(r, v, out->sensor, celsius);
                     out->celsius = static_cast<int>(celsius);
                     return e;
                   });
}
abi::Return nvmlDeviceGetCurrentClocksEventReasons(abi::Device d, unsigned long long* out) {
  return on_device(call("nvmlDeviceGetCurrentClocksEventReasons"), d,
                   [&](const Ref& r, const Verdict& v) { return throttle_reasons(r, v, out); });
}
#endif

}  // extern "C"
#pragma GCC visibility pop

}  // namespace zeus::sim
