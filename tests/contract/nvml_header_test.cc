// What backends/nvml/abi.h restates, against NVIDIA's own header. Built only where that is found.

#include <gtest/gtest.h>
#include <nvml.h>

#include <cstddef>
#include <type_traits>

#include "backends/nvml/abi.h"

// Newer headers deprecate calls that older drivers need.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace zeus::nvml {
namespace {

/// Passed in the same way: pointers to things of one size, or numbers of one size and sign.
template <class A, class B>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using X = std::remove_pointer_t<A>;
    using Y = std::remove_pointer_t<B>;
    if constexpr (std::is_class_v<Y> && !requires { sizeof(Y); })
      return true;  // An opaque handle.
    else
      return std::is_const_v<X> == std::is_const_v<Y> && sizeof(X) == sizeof(Y);
  } else if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) {
    return false;
  } else {
    return sizeof(A) == sizeof(B);
  }
}

template <class Ours, class Theirs>
struct Same : std::false_type {};
template <class R, class... P, class S, class... Q>
requires(sizeof...(P) == sizeof...(Q)) struct Same<R(P...), S(Q...)>
    : std::bool_constant<alike<R, S>() && (true && ... && alike<P, Q>())> {
};

#define ZEUS_SAME(ours, theirs) static_assert(Same<abi::ours, decltype(theirs)>::value)
ZEUS_SAME(Init, nvmlInit_v2);
ZEUS_SAME(Init, nvmlShutdown);
ZEUS_SAME(InitWithFlags, nvmlInitWithFlags);
ZEUS_SAME(ErrorString, nvmlErrorString);
ZEUS_SAME(GetSystemString, nvmlSystemGetDriverVersion);
ZEUS_SAME(GetSystemString, nvmlSystemGetNVMLVersion);
ZEUS_SAME(GetCudaVersion, nvmlSystemGetCudaDriverVersion_v2);
ZEUS_SAME(GetCount, nvmlDeviceGetCount_v2);
ZEUS_SAME(GetHandle, nvmlDeviceGetHandleByIndex_v2);
ZEUS_SAME(GetHandleByText, nvmlDeviceGetHandleByUUID);
ZEUS_SAME(GetHandleByText, nvmlDeviceGetHandleByPciBusId_v2);
ZEUS_SAME(GetString, nvmlDeviceGetName);
ZEUS_SAME(GetString, nvmlDeviceGetUUID);
ZEUS_SAME(GetPci, nvmlDeviceGetPciInfo_v3);
ZEUS_SAME(GetUnsigned, nvmlDeviceGetArchitecture);
ZEUS_SAME(GetSignedPair, nvmlDeviceGetCudaComputeCapability);
ZEUS_SAME(GetPair, nvmlDeviceGetMigMode);
ZEUS_SAME(GetUnsigned, nvmlDeviceGetMaxMigDeviceCount);
ZEUS_SAME(GetChild, nvmlDeviceGetMigDeviceHandleByIndex);
ZEUS_SAME(GetParent, nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
ZEUS_SAME(GetFields, nvmlDeviceGetFieldValues);
ZEUS_SAME(GetEnergy, nvmlDeviceGetTotalEnergyConsumption);
ZEUS_SAME(GetUnsigned, nvmlDeviceGetPowerUsage);
ZEUS_SAME(GetTemperature, nvmlDeviceGetTemperature);
ZEUS_SAME(GetTemperatureV, nvmlDeviceGetTemperatureV);
ZEUS_SAME(GetClock, nvmlDeviceGetClockInfo);
ZEUS_SAME(GetUtilization, nvmlDeviceGetUtilizationRates);
ZEUS_SAME(GetMemory, nvmlDeviceGetMemoryInfo);
ZEUS_SAME(GetProcesses, nvmlDeviceGetComputeRunningProcesses_v3);
ZEUS_SAME(GetProcessUtilization, nvmlDeviceGetProcessUtilization);
ZEUS_SAME(GetMemory2, nvmlDeviceGetMemoryInfo_v2);
ZEUS_SAME(GetUnsigned64, nvmlDeviceGetCurrentClocksEventReasons);
ZEUS_SAME(GetUnsigned64, nvmlDeviceGetCurrentClocksThrottleReasons);
ZEUS_SAME(GetUnsigned, nvmlDeviceGetPowerManagementLimit);
ZEUS_SAME(GetUnsigned, nvmlDeviceGetPowerManagementDefaultLimit);
ZEUS_SAME(GetPair, nvmlDeviceGetPowerManagementLimitConstraints);
ZEUS_SAME(SetUnsigned, nvmlDeviceSetPowerManagementLimit);
ZEUS_SAME(GetUnsigned, nvmlDeviceGetPersistenceMode);
ZEUS_SAME(SetUnsigned, nvmlDeviceSetPersistenceMode);
ZEUS_SAME(GetClocks, nvmlDeviceGetSupportedMemoryClocks);
ZEUS_SAME(GetClocksAt, nvmlDeviceGetSupportedGraphicsClocks);
ZEUS_SAME(SetRange, nvmlDeviceSetGpuLockedClocks);
ZEUS_SAME(SetRange, nvmlDeviceSetMemoryLockedClocks);
ZEUS_SAME(Reset, nvmlDeviceResetGpuLockedClocks);
ZEUS_SAME(Reset, nvmlDeviceResetMemoryLockedClocks);
#undef ZEUS_SAME

TEST(NvmlHeader, HasTheLayoutsThatWeRestate) {
  EXPECT_EQ(sizeof(abi::FieldValue), sizeof(nvmlFieldValue_t));
  EXPECT_EQ(offsetof(abi::FieldValue, field), offsetof(nvmlFieldValue_t, fieldId));
  EXPECT_EQ(offsetof(abi::FieldValue, scope), offsetof(nvmlFieldValue_t, scopeId));
  EXPECT_EQ(offsetof(abi::FieldValue, timestamp), offsetof(nvmlFieldValue_t, timestamp));
  EXPECT_EQ(offsetof(abi::FieldValue, latency), offsetof(nvmlFieldValue_t, latencyUsec));
  EXPECT_EQ(offsetof(abi::FieldValue, type), offsetof(nvmlFieldValue_t, valueType));
  EXPECT_EQ(offsetof(abi::FieldValue, result), offsetof(nvmlFieldValue_t, nvmlReturn));
  EXPECT_EQ(offsetof(abi::FieldValue, value), offsetof(nvmlFieldValue_t, value));
  EXPECT_EQ(sizeof(abi::Value), sizeof(nvmlValue_t));

  EXPECT_EQ(sizeof(abi::PciInfo), sizeof(nvmlPciInfo_t));
  EXPECT_EQ(offsetof(abi::PciInfo, bus_id_legacy), offsetof(nvmlPciInfo_t, busIdLegacy));
  EXPECT_EQ(offsetof(abi::PciInfo, domain), offsetof(nvmlPciInfo_t, domain));
  EXPECT_EQ(offsetof(abi::PciInfo, bus), offsetof(nvmlPciInfo_t, bus));
  EXPECT_EQ(offsetof(abi::PciInfo, device), offsetof(nvmlPciInfo_t, device));
  EXPECT_EQ(offsetof(abi::PciInfo, device_id), offsetof(nvmlPciInfo_t, pciDeviceId));
  EXPECT_EQ(offsetof(abi::PciInfo, subsystem_id), offsetof(nvmlPciInfo_t, pciSubSystemId));
  EXPECT_EQ(offsetof(abi::PciInfo, bus_id), offsetof(nvmlPciInfo_t, busId));

  EXPECT_EQ(sizeof(abi::Temperature), sizeof(nvmlTemperature_v1_t));
  EXPECT_EQ(offsetof(abi::Temperature, version), offsetof(nvmlTemperature_v1_t, version));
  EXPECT_EQ(offsetof(abi::Temperature, sensor), offsetof(nvmlTemperature_v1_t, sensorType));
  EXPECT_EQ(offsetof(abi::Temperature, celsius), offsetof(nvmlTemperature_v1_t, temperature));
  EXPECT_EQ(abi::kTemperatureVersion1, nvmlTemperature_v1);

  EXPECT_EQ(sizeof(abi::Utilization), sizeof(nvmlUtilization_t));
  EXPECT_EQ(offsetof(abi::Utilization, gpu), offsetof(nvmlUtilization_t, gpu));
  EXPECT_EQ(offsetof(abi::Utilization, memory), offsetof(nvmlUtilization_t, memory));
  EXPECT_EQ(sizeof(abi::Memory), sizeof(nvmlMemory_t));
  EXPECT_EQ(offsetof(abi::Memory, total), offsetof(nvmlMemory_t, total));
  EXPECT_EQ(offsetof(abi::Memory, free), offsetof(nvmlMemory_t, free));
  EXPECT_EQ(offsetof(abi::Memory, used), offsetof(nvmlMemory_t, used));
  EXPECT_EQ(sizeof(abi::Memory2), sizeof(nvmlMemory_v2_t));
  EXPECT_EQ(offsetof(abi::Memory2, version), offsetof(nvmlMemory_v2_t, version));
  EXPECT_EQ(offsetof(abi::Memory2, total), offsetof(nvmlMemory_v2_t, total));
  EXPECT_EQ(offsetof(abi::Memory2, reserved), offsetof(nvmlMemory_v2_t, reserved));
  EXPECT_EQ(offsetof(abi::Memory2, free), offsetof(nvmlMemory_v2_t, free));
  EXPECT_EQ(offsetof(abi::Memory2, used), offsetof(nvmlMemory_v2_t, used));
  EXPECT_EQ(abi::kMemoryVersion2, nvmlMemory_v2);

  EXPECT_EQ(sizeof(abi::ProcessUtilization), sizeof(nvmlProcessUtilizationSample_t));
  EXPECT_EQ(offsetof(abi::ProcessUtilization, pid), offsetof(nvmlProcessUtilizationSample_t, pid));
  EXPECT_EQ(offsetof(abi::ProcessUtilization, timestamp_us),
            offsetof(nvmlProcessUtilizationSample_t, timeStamp));
  EXPECT_EQ(offsetof(abi::ProcessUtilization, sm),
            offsetof(nvmlProcessUtilizationSample_t, smUtil));
  EXPECT_EQ(sizeof(abi::ProcessInfo), sizeof(nvmlProcessInfo_t));
  EXPECT_EQ(offsetof(abi::ProcessInfo, pid), offsetof(nvmlProcessInfo_t, pid));
  EXPECT_EQ(offsetof(abi::ProcessInfo, memory), offsetof(nvmlProcessInfo_t, usedGpuMemory));
}

TEST(NvmlHeader, HasTheNumbersThatWeRestate) {
  EXPECT_EQ(abi::kSuccess, NVML_SUCCESS);
  EXPECT_EQ(abi::kUninitialized, NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(abi::kInvalidArgument, NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(abi::kNotSupported, NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(abi::kNoPermission, NVML_ERROR_NO_PERMISSION);
  EXPECT_EQ(abi::kNotFound, NVML_ERROR_NOT_FOUND);
  EXPECT_EQ(abi::kInsufficientSize, NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_EQ(abi::kDriverNotLoaded, NVML_ERROR_DRIVER_NOT_LOADED);
  EXPECT_EQ(abi::kTimeout, NVML_ERROR_TIMEOUT);
  EXPECT_EQ(abi::kLibraryNotFound, NVML_ERROR_LIBRARY_NOT_FOUND);
  EXPECT_EQ(abi::kFunctionNotFound, NVML_ERROR_FUNCTION_NOT_FOUND);
  EXPECT_EQ(abi::kGpuIsLost, NVML_ERROR_GPU_IS_LOST);
  EXPECT_EQ(abi::kResetRequired, NVML_ERROR_RESET_REQUIRED);
  EXPECT_EQ(abi::kOperatingSystem, NVML_ERROR_OPERATING_SYSTEM);
  EXPECT_EQ(abi::kLibRmVersionMismatch, NVML_ERROR_LIB_RM_VERSION_MISMATCH);
  EXPECT_EQ(abi::kInUse, NVML_ERROR_IN_USE);
  EXPECT_EQ(abi::kMemory, NVML_ERROR_MEMORY);
  EXPECT_EQ(abi::kNoData, NVML_ERROR_NO_DATA);
  EXPECT_EQ(abi::kArgumentVersionMismatch, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  EXPECT_EQ(abi::kNotReady, NVML_ERROR_NOT_READY);
  EXPECT_EQ(abi::kUnknown, NVML_ERROR_UNKNOWN);

  EXPECT_EQ(abi::kDouble, NVML_VALUE_TYPE_DOUBLE);
  EXPECT_EQ(abi::kUnsigned, NVML_VALUE_TYPE_UNSIGNED_INT);
  EXPECT_EQ(abi::kUnsignedLong, NVML_VALUE_TYPE_UNSIGNED_LONG);
  EXPECT_EQ(abi::kUnsignedLongLong, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
  EXPECT_EQ(abi::kSignedLongLong, NVML_VALUE_TYPE_SIGNED_LONG_LONG);
  EXPECT_EQ(abi::kSigned, NVML_VALUE_TYPE_SIGNED_INT);

  EXPECT_EQ(abi::kFieldTotalEnergy, unsigned{NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION});
  EXPECT_EQ(abi::kFieldPowerAverage, unsigned{NVML_FI_DEV_POWER_AVERAGE});
  EXPECT_EQ(abi::kFieldPowerInstant, unsigned{NVML_FI_DEV_POWER_INSTANT});
  EXPECT_EQ(abi::kFieldEnergy, unsigned{NVML_FI_DEV_ENERGY});
  EXPECT_EQ(abi::kScopeGpu, NVML_POWER_SCOPE_GPU);
  EXPECT_EQ(abi::kScopeModule, NVML_POWER_SCOPE_MODULE);
  EXPECT_EQ(abi::kScopeMemory, NVML_POWER_SCOPE_MEMORY);

  EXPECT_EQ(abi::kTemperatureGpu, NVML_TEMPERATURE_GPU);
  EXPECT_EQ(abi::kClockGraphics, NVML_CLOCK_GRAPHICS);
  EXPECT_EQ(abi::kClockSm, NVML_CLOCK_SM);
  EXPECT_EQ(abi::kClockMemory, NVML_CLOCK_MEM);
  EXPECT_EQ(abi::kDisabled, unsigned{NVML_FEATURE_DISABLED});
  EXPECT_EQ(abi::kEnabled, unsigned{NVML_FEATURE_ENABLED});
  EXPECT_EQ(abi::kUuidLength, unsigned{NVML_DEVICE_UUID_V2_BUFFER_SIZE});
  EXPECT_EQ(abi::kNameLength, unsigned{NVML_DEVICE_NAME_V2_BUFFER_SIZE});
  EXPECT_EQ(abi::kVersionLength, unsigned{NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE});
}

}  // namespace
}  // namespace zeus::nvml
