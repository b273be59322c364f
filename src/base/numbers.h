#pragma once

#include <chrono>
#include <limits>

#include "zeus/sensor.h"

namespace zeus {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline double seconds(Duration d) noexcept { return std::chrono::duration<double>(d).count(); }

}  // namespace zeus
