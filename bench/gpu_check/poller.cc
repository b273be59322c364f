#include "gpu_check/poller.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/numbers.h"

namespace zeus::check {
namespace {

// Divides no usual update period: a change must not always be met at the same place of a poll.
constexpr Duration kPeriod = std::chrono::microseconds(927);
constexpr std::size_t kMostSlots = 64;
using Slots = std::array<Reading, kMostSlots>;

}  // namespace

Poller::Poller(const Device& device) {
  for (const Sensor& s : device.sensors) {
    const Quantity q = s.info.quantity;
    if ((q != Quantity::energy && q != Quantity::power) || s.slot >= kMostSlots) continue;
    const auto same = [&](const Call& c) { return c.source == s.source; };
    auto call = std::find_if(calls_.begin(), calls_.end(), same);
    if (call == calls_.end()) call = calls_.insert(call, {s.source, 0, {}});
    call->slots = std::max(call->slots, std::size_t{s.slot} + 1);
    call->sensors.push_back(sensors_.size());
    sensors_.push_back(&s);
  }
}

void Poller::poll(Instant end, Record& record) const {
  const Clock& clock = Clock::steady();
  record.samples.resize(sensors_.size());
  record.calls_s.resize(calls_.size());
  Slots slots;
  for (Instant next = clock.now(); next < end; next = std::max(next + kPeriod, clock.now())) {
    clock.sleep_until(next);
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Call& call = calls_[i];
      const Instant before = clock.now();
      const Errc whole = call.source->read(std::span(slots).first(call.slots));
      const Instant after = clock.now();
      record.calls_s[i].push_back(seconds(after - before));
      for (const std::size_t s : call.sensors) {
        const Reading& r = slots[sensors_[s]->slot];
        record.samples[s].emplace_back(before + (after - before) / 2, r.raw,
                                       whole != Errc::ok ? whole : r.error);
      }
    }
  }
}

std::vector<double> Poller::time(const Call& call, std::size_t slots) {
  constexpr std::size_t kMost = 1000;
  const Clock& clock = Clock::steady();
  const Instant end = clock.now() + std::chrono::milliseconds(500);
  std::vector<double> out;
  Slots readings;
  while (out.size() < kMost && clock.now() < end) {
    const Instant before = clock.now();
    (void)call.source->read(std::span(readings).first(slots));
    out.push_back(seconds(clock.now() - before));
  }
  return out;
}

}  // namespace zeus::check
