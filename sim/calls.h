#pragma once

// The entry points of the simulated libraries, by number, and the short names by which a fault
// names whole families of them.

#include <array>
#include <cstddef>
#include <string_view>

namespace zeus::sim {

struct Call {
  std::string_view symbol;  ///< As the linker knows it, or a part of one: "field:power".
  std::string_view family;  ///< As a scenario may name it.
};

inline constexpr std::array kCalls = std::to_array<Call>({
    {"nvmlInit", "init"},
    {"nvmlInit_v2", "init"},
    {"nvmlInitWithFlags", "init"},
    {"nvmlShutdown", "shutdown"},
    {"nvmlSystemGetDriverVersion", "version"},
    {"nvmlSystemGetNVMLVersion", "version"},
    {"nvmlSystemGetCudaDriverVersion", "version"},
    {"nvmlSystemGetCudaDriverVersion_v2", "version"},
    {"nvmlDeviceGetCount", "count"},
    {"nvmlDeviceGetCount_v2", "count"},
    {"nvmlDeviceGetHandleByIndex", "handle"},
    {"nvmlDeviceGetHandleByIndex_v2", "handle"},
    {"nvmlDeviceGetHandleByUUID", "handle"},
    {"nvmlDeviceGetHandleBySerial", "handle"},
    {"nvmlDeviceGetHandleByPciBusId", "handle"},
    {"nvmlDeviceGetHandleByPciBusId_v2", "handle"},
    {"nvmlDeviceGetName", "name"},
    {"nvmlDeviceGetUUID", "uuid"},
    {"nvmlDeviceGetSerial", "serial"},
    {"nvmlDeviceGetIndex", "index"},
    {"nvmlDeviceGetMinorNumber", "index"},
    {"nvmlDeviceGetPciInfo", "pci"},
    {"nvmlDeviceGetPciInfo_v2", "pci"},
    {"nvmlDeviceGetPciInfo_v3", "pci"},
    {"nvmlDeviceGetArchitecture", "architecture"},
    {"nvmlDeviceGetBrand", "architecture"},
    {"nvmlDeviceGetCudaComputeCapability", "architecture"},
    {"nvmlDeviceGetC2cModeInfoV", "architecture"},
    {"nvmlDeviceGetTotalEnergyConsumption", "energy"},
    {"field:energy", "energy"},
    {"nvmlDeviceGetPowerUsage", "power"},
    {"field:power", "power"},
    {"nvmlDeviceGetFieldValues", "fields"},
    {"nvmlDeviceGetPowerManagementMode", "limit"},
    {"nvmlDeviceGetEnforcedPowerLimit", "limit"},
    {"nvmlDeviceGetPowerManagementLimit", "limit"},
    {"nvmlDeviceGetPowerManagementLimitConstraints", "limit"},
    {"nvmlDeviceGetPowerManagementDefaultLimit", "limit"},
    {"nvmlDeviceSetPowerManagementLimit", "set_limit"},
    {"nvmlDeviceGetTemperature", "temperature"},
    {"nvmlDeviceGetTemperatureV", "temperature"},
    {"nvmlDeviceGetClockInfo", "clocks"},
    {"nvmlDeviceGetMaxClockInfo", "clocks"},
    {"nvmlDeviceGetSupportedMemoryClocks", "clocks"},
    {"nvmlDeviceGetSupportedGraphicsClocks", "clocks"},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", "throttle"},
    {"nvmlDeviceGetCurrentClocksEventReasons", "throttle"},
    {"nvmlDeviceSetGpuLockedClocks", "set_clocks"},
    {"nvmlDeviceResetGpuLockedClocks", "set_clocks"},
    {"nvmlDeviceSetMemoryLockedClocks", "set_clocks"},
    {"nvmlDeviceResetMemoryLockedClocks", "set_clocks"},
    {"nvmlDeviceGetPersistenceMode", "persistence"},
    {"nvmlDeviceSetPersistenceMode", "set_persistence"},
    {"nvmlDeviceGetUtilizationRates", "utilization"},
    {"nvmlDeviceGetMemoryInfo", "memory"},
    {"nvmlDeviceGetMemoryInfo_v2", "memory"},
    {"nvmlDeviceGetPowerState", "state"},
    {"nvmlDeviceGetPerformanceState", "state"},
    {"nvmlDeviceGetComputeRunningProcesses_v3", "processes"},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", "processes"},
    {"nvmlDeviceGetProcessUtilization", "processes"},
    {"nvmlDeviceGetMigMode", "mig"},
    {"nvmlDeviceGetMaxMigDeviceCount", "mig"},
    {"nvmlDeviceGetMigDeviceHandleByIndex", "mig"},
    {"nvmlDeviceIsMigDeviceHandle", "mig"},
    {"nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "mig"},
    {"nvmlDeviceGetGpuInstanceId", "mig"},
    {"nvmlDeviceGetComputeInstanceId", "mig"},
    {"file:read", "read"},
});
static_assert(kCalls.size() <= 128);

/// Number of a symbol; does not compile if there is none.
consteval std::size_t call(std::string_view symbol) {
  for (std::size_t i = 0; i < kCalls.size(); ++i) {
    if (kCalls[i].symbol == symbol) return i;
  }
  throw "no such entry point";
}

/// A set of entry points, plain data that processes share.
struct CallSet {
  unsigned long long bits[2] = {};
  constexpr void add(std::size_t i) { bits[i / 64] |= 1ULL << i % 64; }
  constexpr bool has(std::size_t i) const { return (bits[i / 64] >> i % 64 & 1) != 0; }
  constexpr bool empty() const { return (bits[0] | bits[1]) == 0; }
};

/// All entry points of that symbol or family, or "all"; empty if the name means nothing.
constexpr CallSet calls_named(std::string_view name) {
  CallSet set;
  for (std::size_t i = 0; i < kCalls.size(); ++i) {
    if (name == "all" || name == kCalls[i].symbol || name == kCalls[i].family) set.add(i);
  }
  return set;
}

}  // namespace zeus::sim
