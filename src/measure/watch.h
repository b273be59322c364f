#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>

#include "zeus/measurement.h"

namespace zeus {

/// The greatest distance of two polls, a period apart when all is well, that still counts as having
/// watched.
constexpr Duration longest_watch(Duration period) noexcept {
  return 4 * period + std::chrono::milliseconds(100);
}

/// The newest track of one sensor. One writer, any number of readers, no waiting for the writer.
///
/// Invariant: track number v lies in slot v % 2, untouched until number v + 1 is published. So one
/// slot is whole at every instant, that of a fork included.
class Watch {
 public:
  void publish(const Track& track) noexcept {
    const auto words = std::bit_cast<Words>(track);
    const std::uint64_t v = version_.load(std::memory_order_relaxed) + 1;
    auto& slot = slots_[v % 2];
    for (std::size_t i = 0; i < words.size(); ++i) {
      slot[i].store(words[i], std::memory_order_release);  // Not before v - 1 was published.
    }
    version_.store(v, std::memory_order_release);
  }

  Track read() const noexcept {
    Words words{};
    std::uint64_t v = 0;
    do {
      v = version_.load(std::memory_order_acquire);
      const auto& slot = slots_[v % 2];
      for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = slot[i].load(std::memory_order_acquire);
      }
    } while (version_.load(std::memory_order_relaxed) != v);
    return std::bit_cast<Track>(words);
  }

 private:
  static_assert(sizeof(Track) % 8 == 0);
  using Words = std::array<std::uint64_t, sizeof(Track) / 8>;
  std::array<std::array<std::atomic<std::uint64_t>, sizeof(Track) / 8>, 2> slots_{};
  std::atomic<std::uint64_t> version_{0};
};

}  // namespace zeus
