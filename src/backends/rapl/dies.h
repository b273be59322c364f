#pragma once

#include <string>
#include <vector>

#include "backends/rapl/processor.h"
#include "backends/rapl/zones.h"

namespace zeus::rapl {

/// A zone of a die, or of a socket.
struct Top {
  const Zone* zone;
  TopName name;
};

/// One top zone that shows the very counter of another.
struct Mirror {
  const Zone* zone;
  const Zone* of;
  std::string why;  ///< How we know.
};

/// Dies of one socket whose zones all repeat the counter of the socket. Zen 1 and Zen 2 do that
/// with every die; on Intel's multi-die parts each die has a counter of its own, and they add up.
/// Where the vendor does not settle it, readings do: a counter that twice lies between two readings
/// of another, give or take one update, is that other.
std::vector<Mirror> find_mirrors(const std::vector<Top>& tops, const Processor& cpu);

/// Pairs of sockets whose counters are equal bit for bit, which two real ones never are for long.
std::vector<Mirror> find_equal_sockets(const std::vector<Top>& tops);

}  // namespace zeus::rapl
