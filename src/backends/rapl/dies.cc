#include "backends/rapl/dies.h"

#include <cstdint>
#include <optional>

#include "base/files.h"

namespace zeus::rapl {
namespace {

constexpr std::uint64_t kNarrowUj = 1'000'000;  // Between two readings in a row: 1 ms of 1 kW.

std::optional<std::uint64_t> value(const CounterFile& file) {
  std::uint64_t uj = 0;
  return file.read(uj) == Errc::ok ? std::optional(uj) : std::nullopt;
}

/// Whether `b` lies between two readings of `a`, `slack` aside. A counter that has hardly begun
/// tells nothing: all begin at 0.
bool between(const CounterFile& a, const CounterFile& b, std::uint64_t slack, std::uint64_t least) {
  const auto before = value(a), there = value(b), after = value(a);
  return before && there && after && *before >= least && *before <= *there + slack &&
         *there <= *after + slack && *before <= *after && *after - *before <= kNarrowUj;
}

bool same_counter(const Zone& a, const Zone& b, std::uint64_t slack, std::uint64_t least) {
  const auto one = CounterFile::open(a.path / "energy_uj");
  const auto other = CounterFile::open(b.path / "energy_uj");
  if (!one || !other) return false;
  for (int tries = 0; tries < 3; ++tries) {  // A thread that is held up between them sees less.
    if (between(*one, *other, slack, least) && between(*other, *one, slack, least)) return true;
  }
  return false;
}

/// Calls `visit(first, later)` for each zone and the first one that it may repeat.
template <class Match, class Visit>
void each_pair(const std::vector<Top>& tops, Match&& match, Visit&& visit) {
  for (std::size_t i = 0; i < tops.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (tops[i].zone->mmio == tops[k].zone->mmio && match(tops[k].name, tops[i].name)) {
        visit(*tops[k].zone, *tops[i].zone);
        break;
      }
    }
  }
}

}  // namespace

std::vector<Mirror> find_mirrors(const std::vector<Top>& tops, const Processor& cpu) {
  constexpr int kZen1And2 = 0x17;
  constexpr std::uint64_t kUpdateUj = 250'000;  // What 250 W add between two publications.
  constexpr std::uint64_t kBegunUj = 100'000'000;
  std::vector<Mirror> mirrors;
  if (cpu.vendor == "GenuineIntel") return mirrors;
  const auto dies_of_one = [](const TopName& a, const TopName& b) {
    return a.die && b.die && a.domain.unit == b.domain.unit;
  };
  each_pair(tops, dies_of_one, [&](const Zone& first, const Zone& later) {
    if (cpu.vendor == "AuthenticAMD" && cpu.family == kZen1And2) {
      mirrors.push_back({&later, &first, "on AMD family 17h every die shows its socket's counter"});
    } else if (same_counter(first, later, kUpdateUj, kBegunUj)) {
      mirrors.push_back({&later, &first, "they read the same"});
    }
  });
  return mirrors;
}

std::vector<Mirror> find_equal_sockets(const std::vector<Top>& tops) {
  std::vector<Mirror> equal;
  const auto sockets = [](const TopName& a, const TopName& b) {
    return a.domain.scope == Scope::package && b.domain.scope == Scope::package &&
           a.domain.unit != b.domain.unit;
  };
  each_pair(tops, sockets, [&](const Zone& first, const Zone& later) {
    if (same_counter(first, later, 0, 1)) equal.push_back({&later, &first, "they read the same"});
  });
  return equal;
}

}  // namespace zeus::rapl
