#include "net/path.h"

#include <filesystem>
#include <string>

#include "fuzz/fuzz.h"

// Paths of requests.

namespace {

/// Every byte but the slashes as an escape.
std::string escaped(std::string_view path) {
  std::string out;
  for (const char c : path) {
    char escape[4];
    std::snprintf(escape, sizeof escape, "%%%02x", static_cast<unsigned char>(c));
    out += c == '/' ? std::string("/") : std::string(escape);
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeus::fuzz::require;
  const std::string_view raw = zeus::fuzz::text_of(data, size);
  const auto path = zeus::net::decode_path(raw);
  if (!path) {
    // Written otherwise it is no better.
    require(raw.find('%') != std::string_view::npos || !zeus::net::decode_path(escaped(raw)));
    return 0;
  }
  require(path->front() == '/' && path->find("//") == std::string::npos);
  require(path->find_first_of("\\?#") == std::string::npos);
  for (const char c : *path) require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  for (const auto& segment : std::filesystem::path(*path)) {
    require(segment != "." && segment != "..");
  }
  require(raw.find('%') != std::string_view::npos || *path == raw);
  require(zeus::net::decode_path(escaped(*path)) == path);
  return 0;
}
