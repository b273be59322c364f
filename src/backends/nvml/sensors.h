#pragma once

#include "backends/nvml/session.h"

namespace zeus::nvml {

/// Adds to `device` every sensor that this GPU answers for, asking each call once; what asks and
/// what is missing goes to `part`. `limit_mw` is the greatest power limit that can be set; 0 if
/// unknown. A call that is not supported is never made again.
void add_sensors(const SessionPtr& session, unsigned index, unsigned limit_mw, Device& device,
                 Machine& part);

}  // namespace zeus::nvml
