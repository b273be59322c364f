#pragma once

#include <string>

#include "zeus/device.h"

namespace zeus::zeusd {

/// The machine that the daemon at `where` serves: net/endpoint.h says how that is written. A daemon
/// that does not answer, or lets us read nothing, is an error; what it does not serve is a Problem.
Result<Machine> open_remote(const std::string& where, const std::string& token);

}  // namespace zeus::zeusd
