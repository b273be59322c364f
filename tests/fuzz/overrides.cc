#include "overrides.h"

#include <string>

#include "fuzz/fuzz.h"
#include "words.h"

// Files of overrides, and the commands in them. Nothing is run.

namespace {

using zeus::fuzz::require;

void check_words(std::string_view text) {
  const auto words = zeus::zeusd::split_command(text);
  if (!words) {
    require(words.error().code == zeus::Errc::invalid && !words.error().detail.empty());
    return;
  }
  require(!words->empty());
  // Quoted as a shell would have it, the words come back.
  std::string quoted;
  for (const std::string& word : *words) {
    quoted += " '";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    quoted += "'";
  }
  const auto again = zeus::zeusd::split_command(quoted);
  require(again && *again == *words);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = zeus::fuzz::text_of(data, size);
  check_words(text);
  const auto overrides = zeus::zeusd::Overrides::parse(text, "x.toml");
  if (!overrides) {
    const std::string& why = overrides.error().detail;
    require(overrides.error().code == zeus::Errc::invalid);
    require(why.rfind("cannot use the overrides x.toml: ", 0) == 0 && why.size() < 1000);
    return 0;
  }
  require(overrides->empty() == overrides->operations().empty());
  for (const auto operation : overrides->operations()) {
    require(text.find(to_string(operation)) != std::string_view::npos ||
            text.find('\\') != std::string_view::npos);
    const auto seconds = overrides->timeout(operation).count();
    require(overrides->has(operation) && seconds >= 1 && seconds <= 86'400);
  }
  return 0;
}
