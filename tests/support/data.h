#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/source_folder.h"

namespace zeus::test {

/// The folder of recorded data: ZEUS_DATA, or shared/data beside the repository where that exists.
inline std::optional<std::filesystem::path> data() {
  const char* named = std::getenv("ZEUS_DATA");
  const std::filesystem::path folder =
      named != nullptr ? named : (source_folder() / ".." / "shared" / "data").lexically_normal();
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return std::nullopt;
  return folder;
}

/// The numbers of one column of a CSV file with a header, `delimiter` apart; nothing if there is no
/// such column.
inline std::vector<double> column(const std::filesystem::path& file, std::string_view name,
                                  char delimiter = ',') {
  std::ifstream in(file);
  std::string line;
  const auto cells = [&] {
    std::vector<std::string> row;
    if (line.ends_with('\r')) line.pop_back();
    std::istringstream text(line);
    for (std::string cell; std::getline(text, cell, delimiter);) row.push_back(cell);
    return row;
  };
  if (!std::getline(in, line)) return {};
  const auto header = cells();
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) return {};
  const auto index = static_cast<std::size_t>(found - header.begin());
  std::vector<double> values;
  while (std::getline(in, line)) {
    const auto row = cells();
    if (index < row.size()) values.push_back(std::stod(row[index]));
  }
  return values;
}

}  // namespace zeus::test
