#pragma once

#include <string>

#include "report/run.h"
#include "report/text.h"

namespace zeus::report {

/// What must be said of numbers that were not measured here and now on a real machine: a line each
/// for a replay and for a simulation. Empty where there is neither.
std::string origin(const Host& host, Style style);

/// "run.zeus, recorded on node1 at 2026-01-31T12:00:00.000000Z".
std::string to_text(const Replay& replay);

}  // namespace zeus::report
