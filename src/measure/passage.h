#pragma once

#include <algorithm>
#include <cstdint>

#include "measure/track.h"
#include "measure/view.h"
#include "measure/watch.h"

namespace zeus::estimators {

/// What a sensor gained between the two edges of its series: from the sampler's tracks where it
/// has both, else from the samples that were kept.
struct Passage {
  explicit Passage(const View& v) noexcept : from(v.series.before_begin) {
    const auto& s = v.series;
    tracked = from.valid() && s.before_end.valid() && s.before_end.at >= from.at;
    const Duration longest = tracked ? Duration::max() : longest_watch(v.info.profile.update);
    follow(from, v.info, s.begin.sample, longest);
    to = from;
    if (tracked && s.before_end.at >= from.at) {
      to = s.before_end;
    } else {
      for (const Sample& sample : v.between) follow(to, v.info, sample, longest);
    }
    follow(to, v.info, s.end.sample, longest);
  }

  /// Between how many readings the window is divided.
  double stretches() const {
    return static_cast<double>(to.polls - from.polls) + (tracked ? 1.0 : 0.0);
  }
  double units() const { return static_cast<double>(to.total - from.total); }
  double length() const { return seconds(to.at - from.at); }
  bool any(std::uint64_t Track::*what) const { return to.*what != from.*what; }
  double unseen() const { return seconds(to.unseen - from.unseen); }
  double rough() const { return std::max(0.0, to.rough - from.rough); }

  Track from, to;
  bool tracked = false;
};

}  // namespace zeus::estimators
