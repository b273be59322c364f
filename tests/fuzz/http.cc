#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "net/head.h"

// Requests as they come from a socket, in pieces of any size. The first byte of an input says in
// which.

namespace {

using zeus::fuzz::require;
using zeus::net::Head;

constexpr std::size_t kHead = 512, kHeaders = 8, kBody = 256;

/// One request that was accepted.
struct Accepted {
  std::string target, host, authorization, origin, protocol;
  zeus::net::Method method{};
  int version = 0;
  bool keep = false;
  friend bool operator==(const Accepted&, const Accepted&) = default;
};

struct Heard {
  std::vector<Accepted> accepted;
  bool refused = false;
};

/// Reads as a connection does: what was not used is given again with the next piece behind it.
Heard hear(std::string_view bytes, std::size_t piece) {
  Heard heard;
  std::string buffer;
  auto head = std::make_unique<Head>(kHead, kHeaders, kBody);
  std::size_t of_this = 0;
  while (!bytes.empty() || !buffer.empty()) {
    boost::beast::error_code ec;
    const std::size_t before = buffer.size();
    const bool in_head = !head->is_header_done();
    const std::size_t used = buffer.empty() ? 0 : head->feed(buffer, ec);
    require(used <= before);
    buffer.erase(0, used);
    of_this += in_head ? used : 0;
    if (ec && ec != boost::beast::http::error::need_more) {
      heard.refused = true;
      return heard;
    }
    require(of_this <= kHead && (used > 0 || buffer.size() <= kHead + piece));
    if (head->is_done()) {
      if (head->twice || head->coded) {
        heard.refused = true;
        return heard;
      }
      heard.accepted.push_back({head->target, head->host, head->authorization, head->origin,
                                head->protocol, head->method, head->version, head->keep_alive()});
      head = std::make_unique<Head>(kHead, kHeaders, kBody);
      of_this = 0;
      continue;
    }
    if (used > 0 && !buffer.empty()) continue;
    if (bytes.empty()) return heard;
    buffer += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  return heard;
}

std::string line(std::string_view name, const std::string& value) {
  return value.empty() ? std::string() : std::string(name) + ": " + value + "\r\n";
}

/// The same request in our own words.
std::string again(const Accepted& a) {
  const char* const method = a.method == zeus::net::Method::get    ? "GET "
                             : a.method == zeus::net::Method::post ? "POST "
                                                                   : "PUT ";
  return method + a.target + (a.version == 11 ? " HTTP/1.1\r\n" : " HTTP/1.0\r\n") +
         line("Host", a.host) + line("Authorization", a.authorization) + line("Origin", a.origin) +
         line("Zeus-Protocol", a.protocol) + line("Connection", a.keep ? "keep-alive" : "close") +
         "\r\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = zeus::fuzz::text_of(data + 1, size - 1);
  const Heard whole = hear(bytes, size);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{1} + data[0]}) {
    const Heard parts = hear(bytes, piece);
    require(parts.accepted == whole.accepted);
  }
  for (const Accepted& a : whole.accepted) {
    const std::string text = again(a);
    require(a.target.find_first_of(" \r\n") == std::string::npos);
    for (const std::string* value : {&a.host, &a.authorization, &a.origin, &a.protocol}) {
      require(value->find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    }
    if (text.size() > kHead) continue;  // A line that it lacked, or more blanks than it had.
    const Heard told = hear(text, 1 + text.size() / 2);
    require(!told.refused && told.accepted.size() == 1 && told.accepted.front() == a);
  }
  return 0;
}
