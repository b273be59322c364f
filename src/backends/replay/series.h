#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/replay/wire.h"

namespace zeus::replay {

using Numbers = std::vector<std::int64_t>;

/// A series is at most so long, so that a few bytes cannot ask for endless memory.
inline constexpr std::size_t kMostValues = 4096;

/// Appends whole numbers of any size in as few bits as a simple code needs: what is left of each
/// after a prediction from those before it, in the code of R. F. Rice ("Some practical universal
/// noiseless coding techniques", JPL 79-22). How many there are is for the caller to remember.
void put_series(std::string& out, const Numbers& values);

/// Takes off `n` numbers that put_series() wrote; fails `in` where that is not possible.
Numbers take_series(Bytes& in, std::size_t n);

}  // namespace zeus::replay
