#include "report/table.h"

#include <algorithm>
#include <utility>

namespace zeus::report {

std::size_t width(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::vector<std::string> wrapped(const std::vector<std::string>& words, std::size_t columns) {
  std::vector<std::string> lines;
  for (const std::string& word : words) {
    if (lines.empty() || width(lines.back()) + 1 + width(word) > columns) {
      lines.push_back(word);
    } else {
      lines.back() += ' ' + word;
    }
  }
  return lines;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const auto space = text.find(' ');
    words.emplace_back(text.substr(0, space));
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
  }
  return wrapped(words, columns);
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
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
