#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeus/domain.h"
#include "zeus/result.h"

namespace zeus::rapl {

/// A powercap folder: "intel-rapl:1:0" or "intel-rapl-mmio:0". Ordered MSR before its mmio twin,
/// then by number, so that intel-rapl:2 comes before intel-rapl:10.
struct Zone {
  bool mmio = false;
  int top = 0, child = -1;
  std::string folder{};          ///< Its own name, which is all that is ever parsed.
  std::filesystem::path path{};  ///< Where it is.

  static std::optional<Zone> parse(const std::string& folder);
  friend bool operator<(const Zone& a, const Zone& b);
};

/// What a zone may be called, and the most power such a domain can honestly draw.
struct Kind {
  std::string_view name;
  Scope scope;
  double power_max_w;
  std::string_view event;  ///< What perf calls it.
};
std::span<const Kind> kinds();
/// Null for names that nobody taught us, which are left alone.
const Kind* find_kind(std::string_view name);

/// The domain of a top zone by its own name: "psys", "package-1", "package-0-die-1". Folder numbers
/// say nothing: intel-rapl:0 may well be package-1. Unknown names give nothing.
struct TopName {
  DomainId domain;
  bool die = false;  ///< Its name has a die.
};
std::optional<TopName> parse_top(std::string_view name);

/// The zones in a class folder, each once: beside each other, or in the tree of its control type.
struct Found {
  std::vector<Zone> zones;                        ///< In order.
  std::optional<std::filesystem::path> dangling;  ///< A link whose target is not mounted.
};
Found find_zones(const std::filesystem::path& base);

}  // namespace zeus::rapl
