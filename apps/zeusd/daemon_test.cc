#include "daemon.h"

#include <gtest/gtest.h>

namespace zeus::zeusd {
namespace {

using zeus::net::Method;

/// What section 4.1 of the wire asks of a path, where it is not one of ours alone.
std::optional<Group> group_of(const std::string& path) {
  if (path.starts_with("/gpu/set_") || path.starts_with("/gpu/reset_")) return Group::gpu_control;
  if (path == "/gpu/release" || path == "/gpu/acquire") return Group::gpu_control;
  if (path.starts_with("/gpu/")) return Group::gpu_read;
  if (path.starts_with("/cpu/")) return Group::cpu_read;
  if (path.starts_with("/lease/")) return Group::gpu_control;
  return std::nullopt;
}

TEST(Daemon, EveryRouteHasAGroupOrIsOpenOrAsksForAToken) {
  Readers readers;
  const Node node(Machine{}, readers, true, true);
  const Access access({{Group::gpu_control, Group::gpu_read, Group::cpu_read}});
  Guard guard;
  const Daemon daemon({"0", 10}, {node, readers, access, guard});

  std::vector<std::string> open, token;
  std::size_t grouped = 0;
  for (const auto& [path, entry] : daemon.routes()) {
    EXPECT_TRUE(entry.place.known) << path;
    EXPECT_EQ(entry.place.group, group_of(path)) << path;
    EXPECT_NE(entry.route, nullptr) << path;
    if (entry.place.group) {
      EXPECT_FALSE(entry.place.open) << path;
      ++grouped;
    } else {
      (entry.place.open ? open : token).push_back(path);
    }
    // What changes a GPU is no GET, which browsers and crawlers send at will.
    const bool changes = entry.place.group == Group::gpu_control && path != "/lease/list";
    EXPECT_EQ(entry.method, changes ? Method::post : Method::get) << path;
  }
  EXPECT_EQ(open, (std::vector<std::string>{"/discover", "/healthz", "/time"}));
  EXPECT_EQ(token, (std::vector<std::string>{"/auth/whoami", "/metrics"}));
  EXPECT_EQ(grouped, 6U + 7U + 2U + 3U + 4U);  // GPU reads, writes and hold, CPU reads, leases.
}

}  // namespace
}  // namespace zeus::zeusd
