#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "support/gpus.h"
#include "zeus/device.h"

namespace zeus::fuzz {

/// Four GPUs, one of them cut in two, and two sockets.
inline const Machine& machine() {
  static const Machine all = [] {
    Machine m = test::four_gpus();
    m.devices[2] = test::gpu(
        2, "GPU-11112222-0000-4000-8000-000000000002", "H200",
        {"MIG-aaaa1111-0000-4000-8000-000000000001", "MIG-aaaa2222-0000-4000-8000-000000000002"});
    for (const std::uint16_t n : {std::uint16_t{0}, std::uint16_t{1}}) {
      Device d;
      d.info.kind = DeviceInfo::Kind::cpu;
      d.info.backend = "rapl";
      d.info.id = "package-" + std::to_string(n);
      d.info.index = n;
      m.devices.push_back(std::move(d));
    }
    return m;
  }();
  return all;
}

inline bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

/// What holds for every choice among the devices of a kind.
inline void check(const Selection& s, DeviceInfo::Kind kind) {
  std::vector<std::string> seen;
  for (const std::string& id : s.ids) {
    const Device* d = machine().find(id);
    require(d != nullptr && d->info.kind == kind);
    require(!contains(seen, id));
    seen.push_back(id);
  }
  for (const std::string& id : s.shared) require(contains(s.ids, id));
  for (const Problem& p : s.problems) {
    require(!p.where.empty() && p.error.code != Errc::ok && !p.error.detail.empty());
  }
  require(!s.source.empty());

  Machine kept = machine();
  keep_only(kept, kind, s);
  std::vector<std::string> left;
  for (const Device& d : kept.devices) {
    if (d.info.kind == kind) left.push_back(d.info.id);
    for (const Sensor& sensor : d.sensors) {
      require(sensor.info.shared == contains(s.shared, d.info.id));
    }
  }
  require(left == s.ids);
}

}  // namespace zeus::fuzz
