#pragma once

#include "zeus/device.h"
#include "zeus/result.h"

namespace zeus::report {

const char* to_string(Errc code) noexcept;  ///< "absent", "denied" ...
const char* to_string(DeviceInfo::Kind kind) noexcept;

}  // namespace zeus::report
