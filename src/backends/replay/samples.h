#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/replay/wire.h"
#include "zeus/measurement.h"

// Samples as bytes: docs/reference/record-format.md, "Samples".

namespace zeus::replay {

/// The samples of one sensor in one block, kMostValues at most.
struct Column {
  std::uint32_t sensor = 0;
  std::vector<Sample> samples{};
};

/// Columns that follow each other share their times where their sensors were read together.
std::string pack_columns(std::span<const Column> columns);
/// False where the bytes cannot be read, or name a sensor that is not one of `sensors`.
bool unpack_columns(std::string_view bytes, std::size_t sensors, std::vector<Column>& columns);

/// Samples of any number, of several sensors one after the other.
void put_run(std::string& out, std::span<const Sample> samples);
/// Fails `in` where that is not possible.
std::vector<Sample> take_run(Bytes& in);

}  // namespace zeus::replay
