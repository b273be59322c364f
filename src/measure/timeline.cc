#include "zeus/timeline.h"

#include <algorithm>

namespace zeus {

Timeline::Timeline(const Sampler& sampler, Instant from)
    : sampler_(&sampler), seen_(sampler.size(), from), ticks_(sampler.effort().ticks) {}

std::size_t Timeline::drain(const Visit& visit) {
  const std::uint64_t ticks = sampler_->effort().ticks;
  scratch_.resize(sampler_->capacity());
  std::size_t lost = 0;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const std::size_t n = sampler_->copy(i, seen_[i], Instant::max(), scratch_);
    for (const Sample& s : std::span(scratch_).first(n)) visit(i, s);
    if (n > 0) seen_[i] = scratch_[n - 1].at();
    // Only a ring that is full of new samples can have lost some.
    if (n >= sampler_->capacity() && ticks > ticks_ + n) {
      lost += static_cast<std::size_t>(ticks - ticks_) - n;
    }
  }
  ticks_ = ticks;
  return lost;
}

}  // namespace zeus
