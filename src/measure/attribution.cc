#include <algorithm>
#include <cmath>

#include "zeus/processes.h"

namespace zeus {
namespace {

/// Samples closer than this are of one period: the shortest that a driver has is a sixth of a
/// second.
constexpr std::chrono::milliseconds kOnePeriod(50);

/// In how many of the driver's periods anything ran.
std::size_t periods(std::span<const ProcessUse> uses) {
  std::vector<std::chrono::microseconds> at;
  for (const ProcessUse& u : uses) at.push_back(u.at);
  std::sort(at.begin(), at.end());
  std::size_t n = at.empty() ? 0 : 1;
  for (std::size_t i = 1; i < at.size(); ++i) {
    if (at[i] - at[i - 1] > kOnePeriod) ++n;
  }
  return n;
}

}  // namespace

std::vector<std::uint64_t> apportion(std::uint64_t total, std::span<const double> weights) {
  double sum = 0;
  for (const double w : weights) sum += w;
  std::vector<std::uint64_t> parts;
  double up_to = 0;
  std::uint64_t before = 0;
  for (const double w : weights) {
    up_to += w;
    // The last quotient is exactly 1: both sums are made in the same order.
    const auto end = up_to == sum
                         ? total
                         : std::min(total, static_cast<std::uint64_t>(std::llround(
                                               static_cast<double>(total) * (up_to / sum))));
    parts.push_back(end - before);
    before = end;
  }
  return parts;
}

void Attribution::add(double energy_j, std::span<const ProcessUse> uses) {
  if (!(energy_j >= 0) || std::isinf(energy_j)) {
    ++left_out_;
    return;
  }
  ++stretches_;
  const auto n = static_cast<double>(periods(uses));
  double sum = 0;
  for (const ProcessUse& u : uses) sum += u.sm / n;
  const double whole = std::max(sum, 1.0);
  for (const ProcessUse& u : uses) weights_[u.pid] += energy_j * (u.sm / n / whole);
  idle_ += energy_j * (1 - sum / whole);
}

Attribution::Parts Attribution::parts(std::uint64_t energy_uj) const {
  Parts out;
  std::vector<double> weights;
  double sum = idle_;
  for (const auto& [pid, weight] : weights_) {
    weights.push_back(weight);
    sum += weight;
  }
  weights.push_back(sum > 0 ? idle_ : 1);
  const auto parts = apportion(energy_uj, weights);
  std::size_t i = 0;
  for (const auto& [pid, weight] : weights_) out.processes.push_back({pid, parts[i++]});
  out.idle_uj = parts.back();
  return out;
}

}  // namespace zeus
