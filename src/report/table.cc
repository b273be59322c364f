#include "report/table.h"

#include <algorithm>
#include <utility>

namespace zeus::report {

std::size_t width(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string Table::text(std::string_view indent) const {
  std::vector<std::size_t> widths(columns_.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], width(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line(indent);
    bool first = true;
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      if (widths[i] == 0) continue;  // Nobody has anything to say in this column.
      if (!std::exchange(first, false)) line += "  ";
      const std::string space(widths[i] - width(row[i]), ' ');
      line += columns_[i] == Align::right ? space + row[i] : row[i] + space;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace zeus::report
