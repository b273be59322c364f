#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace zeus::report {

/// Columns of text, each as wide as its widest cell (in characters, not bytes). Numbers go right.
class Table {
 public:
  enum class Align : unsigned char { left, right };
  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}

  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const noexcept { return rows_.empty(); }

  /// Every row on a line of its own behind `indent`; no space at the end of a line.
  std::string text(std::string_view indent = "  ") const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// These words on lines of at most `columns` characters, with a space between; never cut.
std::vector<std::string> wrapped(const std::vector<std::string>& words, std::size_t columns);
/// The same of a text at its spaces.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

/// A field of a CSV file (RFC 4180): quoted only where it must be.
std::string csv_field(std::string_view text);

/// Characters of a UTF-8 text.
std::size_t width(std::string_view text) noexcept;

}  // namespace zeus::report
