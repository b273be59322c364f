#include "net/discovery.h"

#include "fuzz/fuzz.h"

// What a daemon says of itself.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeus::fuzz::require;
  const auto read = zeus::net::parse_discovery(zeus::fuzz::text_of(data, size));
  if (!read) {
    require(read.error().code == zeus::Errc::malformed && !read.error().detail.empty());
    return 0;
  }
  // Said again as our own daemon says it, it is the same; what it left out becomes a default.
  auto expected = *read;
  expected.protocol = expected.protocol.value_or(zeus::net::kProtocol);
  for (auto& gpu : expected.gpus) {
    gpu.cumulative_energy_available = gpu.cumulative_energy_available == true;
  }
  const auto again = zeus::net::parse_discovery(zeus::net::to_json(*read));
  require(again && *again == expected);
  return 0;
}
