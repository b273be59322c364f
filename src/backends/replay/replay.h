#pragma once

#include "zeus/device.h"
#include "zeus/recording.h"
#include "zeus/sensor.h"

namespace zeus::replay {

/// The machine of a recording, without its domains, played from now on by `clock`.
Machine play(Recording recording, const std::string& file, const Clock& clock);

}  // namespace zeus::replay
