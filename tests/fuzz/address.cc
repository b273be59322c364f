#include <string>

#include "fuzz/fuzz.h"
#include "zeus/device.h"

// Addresses of machines.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeus::fuzz::require;
  using Scheme = zeus::Address::Scheme;
  const auto text = zeus::fuzz::text_of(data, size);
  const auto address = zeus::Address::parse(text);
  if (!address) {
    require(address.error().code == zeus::Errc::invalid);
    require(address.error().detail.find(text) != std::string::npos);
    return 0;
  }
  constexpr const char* kNames[] = {"local", "sim", "replay", "zeusd"};
  require(kNames[static_cast<int>(address->scheme)] + (':' + address->rest) == text);
  require((address->scheme == Scheme::local) == address->rest.empty());
  return 0;
}
