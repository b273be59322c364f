#include "fuzz/selections.h"

// Devices as people name them: "0,2", "GPU-8932f937", "0000:41:00.0", "all".

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeus::fuzz::require;
  const auto text = zeus::fuzz::text_of(data, size);
  for (const auto kind : {zeus::DeviceInfo::Kind::gpu, zeus::DeviceInfo::Kind::cpu}) {
    const auto s = zeus::named_devices(zeus::fuzz::machine(), kind, text);
    if (!s) {
      require(s.error().code == zeus::Errc::invalid && !s.error().detail.empty());
      continue;
    }
    zeus::fuzz::check(*s, kind);
    std::string list;
    for (const std::string& id : s->ids) list += (list.empty() ? "" : ",") + id;
    const auto again = zeus::named_devices(zeus::fuzz::machine(), kind, list);
    require(again && again->ids == s->ids);  // What is chosen can be said by its ids.
  }
  return 0;
}
