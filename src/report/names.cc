#include "report/names.h"

namespace zeus::report {

const char* to_string(Errc code) noexcept {
  switch (code) {
    case Errc::ok: return "ok";
    case Errc::absent: return "absent";
    case Errc::denied: return "denied";
    case Errc::unsupported: return "unsupported";
    case Errc::lost: return "lost";
    case Errc::busy: return "busy";
    case Errc::invalid: return "invalid";
    case Errc::malformed: return "malformed";
  }
  return "malformed";
}

const char* to_string(DeviceInfo::Kind kind) noexcept {
  switch (kind) {
    case DeviceInfo::Kind::gpu: return "gpu";
    case DeviceInfo::Kind::cpu: return "cpu";
    case DeviceInfo::Kind::board: return "board";
  }
  return "board";
}

}  // namespace zeus::report
