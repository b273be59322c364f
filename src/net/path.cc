#include "net/path.h"

#include "net/percent.h"

namespace zeus::net {
namespace {

bool is_plain(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0 || begins_with_control(text)) return false;
    if (text[0] == '\\' || text[0] == '?' || text[0] == '#') return false;
    text.remove_prefix(length);
  }
  return true;
}

/// No segment that a file system would walk by: "", "." or "..". Only the last may be empty.
bool stays_where_it_is(std::string_view path) {
  while (true) {
    path.remove_prefix(1);  // The slash.
    const std::size_t end = path.find('/');
    const std::string_view segment = path.substr(0, end);
    if (segment == "." || segment == "..") return false;
    if (end == std::string_view::npos) return true;
    if (segment.empty()) return false;
    path.remove_prefix(end);
  }
}

}  // namespace

std::optional<std::string> decode_path(std::string_view raw) {
  if (raw.empty() || raw.front() != '/') return std::nullopt;
  auto path = percent_decode(raw);
  if (!path || !is_plain(*path) || !stays_where_it_is(*path)) return std::nullopt;
  return path;
}

}  // namespace zeus::net
