#pragma once

#include <string>

#include "backends/nvml/abi.h"
#include "base/library.h"
#include "device/backend.h"

namespace zeus::nvml {

/// What a return code means to a caller. Codes that NVIDIA adds later are `malformed`.
Errc to_errc(abi::Return r) noexcept;

/// The functions of NVML that we call, each under the newest name that the library has.
struct Api {
  explicit Api(const Host& host) : lib(host.libraries, {"libnvidia-ml.so.1", "libnvidia-ml.so"}) {}

  /// "CALL on SUBJECT failed: Not Supported (NVML code 3)", in the driver's own words.
  Error failed(std::string_view call, std::string_view subject, abi::Return r) const;
  std::string words(abi::Return r) const;  ///< "Not Supported (NVML code 3)".

  Library lib;
  Optional<const char*()> sim_session{lib, "zeus_sim_session"};  // Only a simulated library has it.
  Required<abi::Init> init{lib, {"nvmlInit_v2", "nvmlInit"}};
  Required<abi::Init> shutdown{lib, "nvmlShutdown"};
  Required<abi::GetCount> count{lib, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}};
  Required<abi::GetHandle> handle{lib,
                                  {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"}};
  Optional<abi::GetHandleByText> handle_by_uuid{lib, "nvmlDeviceGetHandleByUUID"};
  Optional<abi::ErrorString> error_string{lib, "nvmlErrorString"};

  Optional<abi::GetSystemString> driver_version{lib, "nvmlSystemGetDriverVersion"};
  Optional<abi::GetSystemString> nvml_version{lib, "nvmlSystemGetNVMLVersion"};
  Optional<abi::GetCudaVersion> cuda_version{
      lib, {"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"}};
  Required<abi::GetString> name{lib, "nvmlDeviceGetName"};
  Required<abi::GetString> uuid{lib, "nvmlDeviceGetUUID"};
  // Older versions fill the same structure up to, but without, the long address.
  Optional<abi::GetPci> pci{
      lib, {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"}};
  Optional<abi::GetUnsigned> architecture{lib, "nvmlDeviceGetArchitecture"};
  Optional<abi::GetSignedPair> compute{lib, "nvmlDeviceGetCudaComputeCapability"};
  Optional<abi::GetPair> mig_mode{lib, "nvmlDeviceGetMigMode"};
  Optional<abi::GetUnsigned> mig_count{lib, "nvmlDeviceGetMaxMigDeviceCount"};
  Optional<abi::GetChild> mig_child{lib, "nvmlDeviceGetMigDeviceHandleByIndex"};

  Optional<abi::GetFields> fields{lib, "nvmlDeviceGetFieldValues"};
  Optional<abi::GetEnergy> energy{lib, "nvmlDeviceGetTotalEnergyConsumption"};
  Optional<abi::GetUnsigned> power{lib, "nvmlDeviceGetPowerUsage"};
  Optional<abi::GetTemperatureV> temperature_v{lib, "nvmlDeviceGetTemperatureV"};
  Optional<abi::GetTemperature> temperature{lib, "nvmlDeviceGetTemperature"};
  Optional<abi::GetClock> clock{lib, "nvmlDeviceGetClockInfo"};
  Optional<abi::GetUtilization> utilization{lib, "nvmlDeviceGetUtilizationRates"};
  Optional<abi::GetMemory2> memory_v2{lib, "nvmlDeviceGetMemoryInfo_v2"};
  Optional<abi::GetMemory> memory{lib, "nvmlDeviceGetMemoryInfo"};
  Optional<abi::GetUnsigned64> throttle{
      lib, {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}};

  // Version 1 fills a shorter structure.
  Optional<abi::GetProcesses> processes{
      lib, {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"}};
  Optional<abi::GetProcessUtilization> process_utilization{lib, "nvmlDeviceGetProcessUtilization"};

  Optional<abi::GetUnsigned> limit{lib, "nvmlDeviceGetPowerManagementLimit"};
  Optional<abi::GetUnsigned> default_limit{lib, "nvmlDeviceGetPowerManagementDefaultLimit"};
  Optional<abi::GetPair> limit_range{lib, "nvmlDeviceGetPowerManagementLimitConstraints"};
  Optional<abi::SetUnsigned> set_limit{lib, "nvmlDeviceSetPowerManagementLimit"};
  Optional<abi::GetUnsigned> persistence{lib, "nvmlDeviceGetPersistenceMode"};
  Optional<abi::SetUnsigned> set_persistence{lib, "nvmlDeviceSetPersistenceMode"};
  Optional<abi::GetClocks> memory_clocks{lib, "nvmlDeviceGetSupportedMemoryClocks"};
  Optional<abi::GetClocksAt> sm_clocks{lib, "nvmlDeviceGetSupportedGraphicsClocks"};
  Optional<abi::SetRange> lock_sm_clock{lib, "nvmlDeviceSetGpuLockedClocks"};
  Optional<abi::Reset> unlock_sm_clock{lib, "nvmlDeviceResetGpuLockedClocks"};
  Optional<abi::SetRange> lock_memory_clock{lib, "nvmlDeviceSetMemoryLockedClocks"};
  Optional<abi::Reset> unlock_memory_clock{lib, "nvmlDeviceResetMemoryLockedClocks"};
};

}  // namespace zeus::nvml
