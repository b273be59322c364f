#include "backends/zeusd/sources.h"

#include <algorithm>
#include <utility>

namespace zeus::zeusd {

RouteSource::RouteSource(SessionPtr session, Route route, std::vector<std::size_t> places)
    : session_(std::move(session)),
      route_(route),
      places_(std::move(places)),
      partial_(session_->discovery().has("partial")) {
  const net::Discovery& d = session_->discovery();
  for (const std::size_t p : places_) {
    ids_.push_back(route == Route::cpu_energy ? d.cpus[p].id : d.gpus[p].id);
  }
  prepared_ = session_->client().prepare(target_of(route_, ids_, partial_));
}

Errc RouteSource::read(std::span<Reading> out) noexcept try {
  thread_local std::string body;  // Grows once, then is used again.
  const net::Client::Answer answer = session_->ask(prepared_, body);
  if (answer.error != Errc::ok) return answer.error;
  Errc whole = to_errc(answer.status);
  if (whole == Errc::ok) {
    whole = parse_answer(route_, body, ids_, out);
  } else {
    for (Reading& r : out) r.error = Errc::ok;
    const std::size_t failed = parse_errors(route_, body, whole, ids_, out);
    if (failed > 0) whole = failed == ids_.size() ? Errc::ok : ask_the_rest(out);
  }
  if (whole == Errc::ok) forget_strangers(out);
  return whole;
} catch (...) {
  return Errc::lost;  // Only where something fails is anything allocated.
}

/// The slots that failed keep their error; the others are Errc::ok so far.
Errc RouteSource::ask_the_rest(std::span<Reading> out) {
  std::vector<std::uint16_t> ids;
  std::vector<std::size_t> slots;
  const std::size_t width = slots_of(route_);
  for (std::size_t i = 0; i < ids_.size() && i * width < out.size(); ++i) {
    if (out[i * width].error != Errc::ok) continue;
    ids.push_back(ids_[i]);
    slots.push_back(i * width);
  }
  if (ids.empty()) return Errc::ok;
  std::string body;
  const auto answer =
      session_->ask(session_->client().prepare(target_of(route_, ids, partial_)), body);
  std::vector<Reading> rest(ids.size() * width);
  Errc error = answer.error == Errc::ok ? to_errc(answer.status) : answer.error;
  if (error == Errc::ok) error = parse_answer(route_, body, ids, rest);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const std::size_t slot = slots[i / width] + i % width;
    if (error != Errc::ok) rest[i].error = error;
    if (slot < out.size()) out[slot] = rest[i];
  }
  return Errc::ok;
}

/// Nothing is told of a device that has another's number now.
void RouteSource::forget_strangers(std::span<Reading> out) const noexcept {
  const std::size_t width = slots_of(route_);
  for (std::size_t slot = 0; slot < std::min(out.size(), slots()); ++slot) {
    const std::size_t place = places_[slot / width];
    const bool same =
        route_ == Route::cpu_energy ? session_->still_cpu(place) : session_->still_gpu(place);
    if (!same) out[slot].error = Errc::lost;
  }
}

}  // namespace zeus::zeusd
