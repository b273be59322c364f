#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace zeus::zeusd {

/// Tells the service manager about us, where there is one: "READY=1", "WATCHDOG=1", "STATUS=...".
/// Does nothing elsewhere.
void notify(std::string_view message);

/// How often the service manager wants to hear of us, if at all.
std::optional<std::chrono::microseconds> watchdog_period();

}  // namespace zeus::zeusd
