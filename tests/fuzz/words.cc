#include <string>

#include "fuzz/fuzz.h"
#include "options.h"

// The words of a command that no shell takes apart.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeus::fuzz::require;
  const auto words = zeus::cli::split_words(zeus::fuzz::text_of(data, size));
  if (!words) {
    require(words.error().code == zeus::Errc::invalid && !words.error().detail.empty());
    return 0;
  }
  require(!words->empty() && !words->front().empty());
  // Quoted as a shell would have it, the words come back.
  std::string quoted;
  for (const std::string& word : *words) {
    quoted += " '";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    quoted += "'";
  }
  const auto again = zeus::cli::split_words(quoted);
  require(again && *again == *words);
  return 0;
}
