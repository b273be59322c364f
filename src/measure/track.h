#pragma once

#include "zeus/measurement.h"

namespace zeus {

/// The greatest power that a sensor of unknown range is believed, when only a rate is needed.
inline constexpr double kUnknownPowerW = 1e4;

/// Takes one more sample of a sensor into its track: the only place where counters are subtracted
/// and power is integrated, for every backend. A failed sample counts as a failure and changes
/// nothing else: the stretch between its neighbours only gets longer.
///
/// `longest` is the greatest distance of two polls that still counts as having watched: a level
/// held for longer, as a counter that could have wrapped unseen, is a gap.
void follow(Track& track, const SensorInfo& info, Sample next, Duration longest) noexcept;

}  // namespace zeus
