#pragma once

#include "backends/nvml/session.h"

namespace zeus::nvml {

/// Sets `device.processes` where the driver has the calls for it. Whether they work shows on
/// asking: under MIG they do not.
void add_processes(const SessionPtr& session, unsigned index, Device& device, Machine& part);

}  // namespace zeus::nvml
