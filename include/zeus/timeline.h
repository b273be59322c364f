#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "zeus/export.h"
#include "zeus/sampler.h"

namespace zeus {

/// Hands out what a sampler collects: every sample once, oldest first. For one reader.
class ZEUS_API Timeline {
 public:
  /// Follows samples taken after `from`. The sampler must outlive it.
  Timeline(const Sampler& sampler, Instant from);

  /// `sensor` is the sampler's index.
  using Visit = std::function<void(std::size_t sensor, const Sample& sample)>;

  /// Visits the samples that came since the last call, sensor by sensor. To be called at least
  /// once in the time that the sampler's rings hold. Returns how many had been overwritten.
  std::size_t drain(const Visit& visit);

 private:
  const Sampler* sampler_;
  std::vector<Instant> seen_;
  std::vector<Sample> scratch_;
  std::uint64_t ticks_;
};

}  // namespace zeus
