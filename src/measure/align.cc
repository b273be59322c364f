#include "measure/align.h"

#include <algorithm>

namespace zeus {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A counter that publishes more often hides too little at its edges to wait for.
constexpr Duration kSeldom = milliseconds(5);

bool waited_for(const Sensor& s) {
  return s.info.quantity == Quantity::energy && s.info.profile.update >= kSeldom;
}

std::vector<Sensor> counters(const std::vector<Sensor>& sensors, std::size_t most) {
  std::vector<Sensor> out;
  std::copy_if(sensors.begin(), sensors.end(), std::back_inserter(out), waited_for);
  out.resize(std::min(out.size(), most));
  return out;
}

}  // namespace

Aligner::Aligner(const std::vector<Sensor>& sensors) : counters_(counters(sensors, kMost)) {
  for (std::size_t i = 0; i < sensors.size() && index_.size() < kMost; ++i) {
    const SensorProfile& p = sensors[i].info.profile;
    if (waited_for(sensors[i])) {
      index_.push_back(i);
      update_ = std::max(update_, p.update);
    } else if (sensors[i].info.quantity == Quantity::power) {
      // Two readings before the window; after it, one that knows nothing of it and one more.
      quiet_ = std::max(quiet_, 3 * p.update);
      settle_ = std::max(settle_, std::max(p.window, p.update) + 3 * p.update);
    }
  }
  distance_ = std::clamp<Duration>(update_ / 200, microseconds(200), milliseconds(2));
}

template <std::size_t N>
void Aligner::watch(const Clock& clock, std::span<Reading> scratch,
                    std::span<std::array<Tick, N>> out, std::size_t need,
                    bool newest) const noexcept {
  std::array<Edge, kMost> edges{};
  std::array<Sample, kMost> last{};
  std::array<std::size_t, kMost> ticks{};
  const std::size_t n = index_.size();
  // One more period than it takes: a counter of a device that uses nothing need not tick at all.
  const Instant limit = clock.now() + static_cast<Duration::rep>(need + 1) * update_;
  for (Instant next = clock.now(); next < limit;) {
    counters_.read(clock, scratch, std::span(edges).first(n));
    std::size_t done = 0;
    for (std::size_t k = 0; k < n; ++k) {
      const Sample s = edges[k].sample;
      if (s.ok() && last[k].ok() && s.raw() != last[k].raw()) {
        auto& slots = out[index_[k]];
        const Tick tick{last[k].at(), s.at(), s.raw()};
        if (newest) {
          std::rotate(slots.begin(), slots.begin() + 1, slots.end());
          slots.back() = tick;
        } else if (ticks[k] < N) {
          slots[ticks[k]] = tick;
        }
        ++ticks[k];
      }
      if (s.ok()) last[k] = s;
      if (ticks[k] >= need) ++done;
    }
    if (done == n) return;
    next = std::max(next + distance_, clock.now());
    clock.sleep_until(next);
  }
}

void Aligner::before(const Clock& clock, std::span<Reading> scratch,
                     std::span<Lead> out) const noexcept {
  std::fill(out.begin(), out.end(), Lead{});
  if (quiet_ > Duration{} && index_.empty()) clock.sleep_until(clock.now() + quiet_);
  if (!index_.empty()) watch(clock, scratch, out, index_.size() == 1 ? 1 : 2, true);
}

void Aligner::after(const Clock& clock, std::span<Reading> scratch,
                    std::span<Tail> out) const noexcept {
  std::fill(out.begin(), out.end(), Tail{});
  const Instant begin = clock.now();
  if (!index_.empty()) watch(clock, scratch, out, Tail{}.size(), false);
  if (settle_ > Duration{}) clock.sleep_until(begin + settle_);
}

}  // namespace zeus
