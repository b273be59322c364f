#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

// What both ends of the daemon's wire agree on. Upstream's wire has no version: a daemon or client
// that names none is taken for upstream's.

namespace zeus::net {

/// Version of the wire, sent by both sides in a header. Raised when an old peer would be misled.
inline constexpr int kProtocol = 1;
inline constexpr std::string_view kProtocolHeader = "Zeus-Protocol";

inline constexpr std::string_view kSocketPath = "/run/zeusd/zeusd.sock";
inline constexpr std::uint16_t kPort = 4938;

/// What a client may be allowed to do: the daemon's API groups, and the scopes of a token.
enum class Group : std::uint8_t { gpu_control, gpu_read, cpu_read };
inline constexpr std::array kGroups = {Group::gpu_control, Group::gpu_read, Group::cpu_read};

constexpr std::string_view to_string(Group group) noexcept {
  constexpr std::string_view kNames[] = {"gpu-control", "gpu-read", "cpu-read"};
  return kNames[static_cast<std::size_t>(group)];
}

constexpr std::optional<Group> group_named(std::string_view name) noexcept {
  for (const Group g : kGroups) {
    if (to_string(g) == name) return g;
  }
  return std::nullopt;
}

}  // namespace zeus::net
