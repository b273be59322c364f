#include "backends/nvml/api.h"

namespace zeus::nvml {

Errc to_errc(abi::Return r) noexcept {
  switch (r) {
    case abi::kSuccess: return Errc::ok;
    case abi::kInvalidArgument: return Errc::invalid;
    case abi::kNoPermission: return Errc::denied;
    case abi::kNotSupported:
    case abi::kNotFound:
    case abi::kFunctionNotFound:
    case abi::kArgumentVersionMismatch: return Errc::unsupported;
    case abi::kTimeout:
    case abi::kInUse:
    case abi::kMemory:
    case abi::kNoData:
    case abi::kNotReady: return Errc::busy;
    case abi::kUninitialized:
    case abi::kDriverNotLoaded:
    case abi::kGpuIsLost:
    case abi::kResetRequired:
    case abi::kLibRmVersionMismatch:
    case abi::kUnknown: return Errc::lost;
    default: return Errc::malformed;
  }
}

std::string Api::words(abi::Return r) const {
  const char* said = error_string ? error_string(r) : nullptr;
  return (said == nullptr ? std::string("unknown error") : std::string(said)) + " (NVML code " +
         std::to_string(r) + ')';
}

Error Api::failed(std::string_view call, std::string_view subject, abi::Return r) const {
  return {to_errc(r), r,
          std::string(call) + " on " + std::string(subject) + " failed: " + words(r)};
}

}  // namespace zeus::nvml
