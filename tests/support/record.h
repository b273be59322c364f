#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "measure/track.h"
#include "zeus/measurement.h"

namespace zeus::test {

inline Sample at(Duration t, std::uint64_t raw, Errc e = Errc::ok) {
  return {Instant{} + std::chrono::hours(1) + t, raw, e};
}

/// A window over one sensor: its edges are the first and the last sample, and a sampler that was
/// running took the ones between, no more than `longest` apart if all was well.
inline Measurement record(SensorInfo info, const std::vector<Sample>& samples,
                          Duration longest = Duration::max()) {
  auto subject = std::make_shared<Subject>();
  subject->domains = DomainTree({info.domain});
  Measurement m;
  m.between.assign(samples.begin() + 1, samples.end() - 1);
  Measurement::Series series{.begin = {samples.front(), {}},
                             .end = {samples.back(), {}},
                             .before_begin = {},
                             .before_end = {},
                             .first = 0,
                             .count = m.between.size(),
                             .earlier = 0,
                             .later = 0,
                             .lead = {},
                             .tail = {}};
  if (!m.between.empty()) {
    Track track;
    follow(track, info, samples.front(), longest);
    series.before_begin = track;
    for (const Sample& s : m.between) follow(track, info, s, longest);
    series.before_end = track;
  }
  m.series.push_back(series);
  m.begin = samples.front().at();
  m.end = samples.back().at();
  subject->sensors.push_back(std::move(info));
  m.subject = subject;
  return m;
}

/// A window over two sensors of one domain, as a monitor that follows power records it.
inline Measurement join(Measurement a, const Measurement& b) {
  auto subject = std::make_shared<Subject>(*a.subject);
  subject->sensors.push_back(b.subject->sensors.front());
  Measurement::Series series = b.series.front();
  series.first = a.between.size();
  a.between.insert(a.between.end(), b.between.begin(), b.between.end());
  a.series.push_back(series);
  a.subject = subject;
  return a;
}

}  // namespace zeus::test
