#pragma once

#include "backends/zeusd/session.h"
#include "device/backend.h"

namespace zeus::zeusd {

/// Adds to `device`, the GPU at `place` of the daemon's list, the knobs that the daemon turns. What
/// a knob stood at must be readable, so that it can be put back: without the right to read there is
/// no power limit and no persistence mode.
void add_knobs(const SessionPtr& session, std::size_t place, Device& device, Machine& part);

}  // namespace zeus::zeusd
