#include "net/event_stream.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "net/power_event.h"

// Server-sent events, whole and split, and the samples in them.

namespace {

using zeus::fuzz::require;

struct Seen {
  std::vector<std::string> events;
  std::uint64_t comments = 0, skipped = 0;
  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen fed(std::string_view text, std::size_t piece) {
  zeus::net::EventStream stream;
  Seen seen;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    stream.feed(text.substr(at, piece), [&](const auto& e) {
      require(e.data.size() <= zeus::net::EventStream::kMost);
      seen.events.push_back(std::string(e.type) + '\0' + std::string(e.data));
    });
  }
  seen.comments = stream.comments();
  seen.skipped = stream.skipped();
  return seen;
}

/// What the walker takes from a document, the document itself has.
void check(std::string_view text) {
  const auto event = zeus::net::parse_power_event(text);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!event || !json.is_object()) return;
  const auto holds = [&](const char* key, std::uint64_t value) {
    return json.contains(key) && json[key] == value;
  };
  require(holds("gpu_id", event->id) || holds("cpu_id", event->id));
  require(holds("power_mw", event->power_mw) || holds("cpu_mw", event->power_mw));
  require(holds("timestamp_ms", event->timestamp_ms));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = zeus::fuzz::text_of(data, size);
  const Seen whole = fed(text, size + 1);
  for (const std::size_t piece : {1u, 2u, 3u, 7u}) require(fed(text, piece) == whole);
  for (const std::string& e : whole.events) check(std::string_view(e).substr(e.find('\0') + 1));
  check(text);
  return 0;
}
