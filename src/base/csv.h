#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeus {

/// Walks over the lines of a table in text: empty lines and lines that begin with # are skipped.
class CsvLines {
 public:
  explicit CsvLines(std::string_view text) noexcept : rest_(text) {}

  /// The next line without its end (LF or CR LF); nothing past the last.
  std::optional<std::string_view> next() noexcept;
  std::size_t number() const noexcept { return number_; }  ///< Of that line, from 1.

 private:
  std::string_view rest_;
  std::size_t number_ = 0;
};

/// The cells of one line, without the blanks around them. A cell that holds a comma or a quote
/// stands in double quotes, a quote inside of it twice (RFC 4180, but a line end ends the row).
/// Nothing where quotes do not match.
std::optional<std::vector<std::string>> csv_cells(std::string_view line);

/// One cell as it must be written, so that csv_cells reads the same again. Line ends become blanks.
std::string csv_cell(std::string_view value);

/// A finite decimal number and nothing else.
std::optional<double> parse_real(std::string_view text) noexcept;

}  // namespace zeus
