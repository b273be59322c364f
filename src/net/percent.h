#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

// Text from the wire: taken out of its percent escapes, and told from what is no text.

namespace zeus::net {

/// Every escape replaced once by its byte; what that gives is not looked at again. Nothing if a
/// percent sign is not followed by two hexadecimal digits. RFC 3986 2.1.
std::optional<std::string> percent_decode(std::string_view text);

/// The length of the well-formed character at the beginning of `text`, 1 to 4; 0 if there is none.
/// Unicode 15 table 3-7.
std::size_t utf8_length(std::string_view text) noexcept;
bool is_utf8(std::string_view text) noexcept;
/// `text` with every byte that belongs to no character replaced by U+FFFD.
std::string to_utf8(std::string_view text);

/// A byte or, in UTF-8, a C1 control at the beginning of `text` that steers a terminal.
bool begins_with_control(std::string_view text) noexcept;

/// `text` for a message: at most about `limit` bytes, "..." where more was there, and '?' for
/// whatever cannot be printed.
std::string shown(std::string_view text, std::size_t limit = 64);

}  // namespace zeus::net
