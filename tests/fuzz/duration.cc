#include <string>

#include "fuzz/fuzz.h"
#include "options.h"
#include "sim/toml_reader.h"

// Durations as the command line and scenarios write them.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeus::fuzz::require;
  const auto text = zeus::fuzz::text_of(data, size);
  const auto ours = zeus::cli::parse_duration(text);
  const auto theirs = zeus::sim::parse_duration(text);
  require(ours || (ours.error().code == zeus::Errc::invalid && !ours.error().detail.empty()));
  if (ours) {
    require(ours->count() >= 0);
    const auto again = zeus::cli::parse_duration(std::to_string(ours->count()) + "ns");
    require(again && (ours->count() >= std::int64_t{1} << 53 || *again == *ours));
    // A number alone is in the unit that the option says.
    const auto hours = zeus::cli::parse_duration(text, 3600);
    require(!hours || *hours >= *ours);
  }
  require(!ours || !theirs || ours->count() == *theirs);
  return 0;
}
