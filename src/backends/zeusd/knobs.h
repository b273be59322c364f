#pragma once

#include "backends/zeusd/held.h"
#include "device/backend.h"

namespace zeus::zeusd {

/// Adds to `device`, the GPU at `place` of the daemon's list, the knobs that the daemon turns. What
/// a knob stood at must be readable, so that it can be put back: without the right to read there is
/// no power limit and no persistence mode. All knobs of a process share one lease, `held`.
void add_knobs(const SessionPtr& session, const std::shared_ptr<Held>& held, std::size_t place,
               Device& device, Machine& part);

}  // namespace zeus::zeusd
