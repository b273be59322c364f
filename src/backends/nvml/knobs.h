#pragma once

#include "backends/nvml/session.h"

namespace zeus::nvml {

/// The power limits that can be set, in milliwatts; zeros where the GPU has none.
struct LimitRange {
  unsigned min = 0, max = 0, standard = 0;
};
LimitRange limit_range(Session& session, unsigned index);

/// Adds to `device` the knobs that this GPU has: "power_limit", "sm_clock", "memory_clock",
/// "persistence". NVML cannot tell whether it may be set: a right that is missing shows on turning.
void add_knobs(const SessionPtr& session, unsigned index, const LimitRange& limits, Device& device,
               Machine& part);

}  // namespace zeus::nvml
