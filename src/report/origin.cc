#include "report/origin.h"

#include <fmt/format.h>

namespace zeus::report {

std::string to_text(const Replay& replay) {
  return fmt::format("{}, recorded on {} at {}", printable(replay.file), printable(replay.hostname),
                     iso8601(replay.recorded));
}

std::string origin(const Host& host, Style style) {
  std::string out;
  if (host.replay) {
    out = fmt::format("{} from {}: no number here is of now\n", bold("REPLAYED", style),
                      to_text(*host.replay));
  }
  return out + simulated(host.simulation, style);
}

}  // namespace zeus::report
