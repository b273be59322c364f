#include "backends/rapl/zones.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/files.h"

namespace zeus::rapl {
namespace {

namespace fs = std::filesystem;

constexpr std::array<Kind, 5> kKinds = {{{"package", Scope::package, 1000, "energy-pkg"},
                                         {"core", Scope::core, 1000, "energy-cores"},
                                         {"uncore", Scope::uncore, 500, "energy-gpu"},
                                         {"dram", Scope::dram, 300, "energy-ram"},
                                         {"psys", Scope::psys, 4000, "energy-psys"}}};

constexpr std::string_view kControls[] = {"intel-rapl", "intel-rapl-mmio"};

/// Takes a number of digits alone off the front of `text`.
bool number(std::string_view& text, int& out) {
  if (text.starts_with('-')) return false;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (ec != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

class Finder {
 public:
  Found run(const fs::path& base) {
    look(base);
    for (const std::string_view control : kControls) {
      const fs::path tree = base / control;
      look(tree);
      for (const std::string& top : list(tree)) look(tree / top);
    }
    std::sort(found_.zones.begin(), found_.zones.end());
    return std::move(found_);
  }

 private:
  void look(const fs::path& folder) {
    for (const std::string& name : list(folder)) {
      auto zone = Zone::parse(name);
      if (!zone) continue;
      zone->path = folder / name;
      std::error_code ec;
      if (!fs::exists(zone->path, ec)) {
        if (!found_.dangling) found_.dangling = zone->path;
        continue;
      }
      const bool known = std::any_of(found_.zones.begin(), found_.zones.end(),
                                     [&](const Zone& z) { return z.folder == zone->folder; });
      if (!known) found_.zones.push_back(std::move(*zone));
    }
  }
  Found found_;
};

}  // namespace

std::optional<Zone> Zone::parse(const std::string& folder) {
  Zone z{.folder = folder};
  std::string_view rest = folder;
  z.mmio = rest.starts_with("intel-rapl-mmio:");
  if (!z.mmio && !rest.starts_with("intel-rapl:")) return std::nullopt;
  rest.remove_prefix(rest.find(':') + 1);
  if (!number(rest, z.top)) return std::nullopt;
  if (rest.empty()) return z;
  if (rest.front() != ':') return std::nullopt;
  rest.remove_prefix(1);
  return number(rest, z.child) && rest.empty() ? std::optional(z) : std::nullopt;
}

bool operator<(const Zone& a, const Zone& b) {
  return std::tie(a.mmio, a.top, a.child) < std::tie(b.mmio, b.top, b.child);
}

std::span<const Kind> kinds() { return kKinds; }

const Kind* find_kind(std::string_view name) {
  const auto* it =
      std::find_if(kKinds.begin(), kKinds.end(), [name](const Kind& k) { return k.name == name; });
  return it == kKinds.end() ? nullptr : it;
}

std::optional<TopName> parse_top(std::string_view name) {
  if (name == "psys") return TopName{{Scope::psys}};
  constexpr std::string_view kPackage = "package-", kDie = "-die-";
  if (!name.starts_with(kPackage)) return std::nullopt;
  name.remove_prefix(kPackage.size());
  int unit = 0, die = 0;
  if (!number(name, unit)) return std::nullopt;
  const bool has_die = name.starts_with(kDie);
  if (has_die) {
    name.remove_prefix(kDie.size());
    if (!number(name, die)) return std::nullopt;
  }
  constexpr int kMost = std::numeric_limits<std::uint16_t>::max();
  if (!name.empty() || unit > kMost || die > kMost) return std::nullopt;
  return TopName{
      {Scope::package, static_cast<std::uint16_t>(unit), static_cast<std::uint16_t>(die)}, has_die};
}

Found find_zones(const fs::path& base) { return Finder().run(base); }

}  // namespace zeus::rapl
