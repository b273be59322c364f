#include "base/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace zeus {
namespace {

constexpr std::string_view kBlanks = " \t";

std::string_view trimmed(std::string_view text) noexcept {
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// Takes a cell in quotes from the front of `line`, and what follows up to the next comma.
std::optional<std::string> quoted(std::string_view& line) {
  std::string cell;
  for (std::size_t i = 1; i < line.size(); ++i) {
    if (line[i] != '"') {
      cell += line[i];
    } else if (i + 1 < line.size() && line[i + 1] == '"') {
      cell += line[i++];
    } else {
      line.remove_prefix(i + 1);
      const auto comma = std::min(line.find(','), line.size());
      if (!trimmed(line.substr(0, comma)).empty()) return std::nullopt;
      line.remove_prefix(comma);
      return cell;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string_view> CsvLines::next() noexcept {
  while (!rest_.empty()) {
    const auto end = std::min(rest_.find('\n'), rest_.size());
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++number_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && line.front() != '#') return line;
  }
  return std::nullopt;
}

std::optional<std::vector<std::string>> csv_cells(std::string_view line) {
  std::vector<std::string> cells;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    if (line.starts_with('"')) {
      auto cell = quoted(line);
      if (!cell) return std::nullopt;
      cells.push_back(std::move(*cell));
    } else {
      const auto comma = std::min(line.find(','), line.size());
      const std::string_view cell = trimmed(line.substr(0, comma));
      if (cell.find('"') != std::string_view::npos) return std::nullopt;
      cells.emplace_back(cell);
      line.remove_prefix(comma);
    }
    if (line.empty()) return cells;
    line.remove_prefix(1);  // The comma.
  }
}

std::string csv_cell(std::string_view value) {
  if (value.find_first_of(",\"\r\n") == std::string_view::npos && trimmed(value) == value) {
    return std::string(value);
  }
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"') out += '"';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out + '"';
}

std::optional<double> parse_real(std::string_view text) noexcept {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, ec] = std::from_chars(text.data(), last, value);
  if (ec != std::errc{} || end != last || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace zeus
