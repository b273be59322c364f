#include "measure/history.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/numbers.h"

namespace zeus {

History::History(SensorInfo info, Duration poll, std::size_t most)
    // A poll or two may come late before a value is no longer believed.
    : info_(std::move(info)),
      poll_(poll),
      patience_(2 * poll + std::chrono::milliseconds(50)),
      most_(most) {}

void History::add(const Sample& sample) {
  if (!sample.ok()) {
    ++failures_;
    why_ = sample.error();
    if (!broken_ && !runs_.empty()) {
      Entry& last = runs_.back();
      last.until = std::min(sample.at(), last.run.last + patience_);
    }
    broken_ = true;
    return;
  }
  why_ = Errc::ok;
  if (runs_.empty()) {
    runs_.push_back({{sample.at(), sample.at(), sample.raw()}, {}, 0, 0, 0});
    broken_ = false;
    return;
  }
  Entry& last = runs_.back();
  const bool whole = !broken_ && sample.at() - last.run.last <= patience_;
  if (whole && sample.raw() == last.run.raw) {
    last.run.last = sample.at();
    return;
  }
  if (whole) last.until = sample.at();
  if (!whole && !broken_) last.until = last.run.last + patience_;
  broken_ = false;
  const double held = seconds(last.until - last.run.first);
  const double change = static_cast<double>(sample.raw()) - static_cast<double>(last.run.raw);
  runs_.push_back({{sample.at(), sample.at(), sample.raw()},
                   {},
                   last.before + static_cast<double>(last.run.raw) * held,
                   last.rough + change * change,
                   last.covered + held});
  if (most_ != 0 && runs_.size() > most_) runs_.pop_front();
}

Instant History::held_until(const Entry& entry) const {
  if (&entry != &runs_.back() || broken_) return entry.until;
  return entry.run.last + patience_;
}

const History::Entry* History::run_at(Instant t) const {
  const auto after = std::upper_bound(
      runs_.begin(), runs_.end(), t,
      [](Instant instant, const Entry& entry) { return instant < entry.run.first; });
  return after == runs_.begin() ? nullptr : &*std::prev(after);
}

History::Sums History::up_to(Instant t) const {
  const Entry* entry = run_at(t);
  if (entry == nullptr) {
    const Entry& first = runs_.front();
    return {first.before, first.covered, first.rough, static_cast<double>(first.run.raw)};
  }
  const double held = seconds(std::min(t, held_until(*entry)) - entry->run.first);
  return {entry->before + static_cast<double>(entry->run.raw) * held, entry->covered + held,
          entry->rough, static_cast<double>(entry->run.raw)};
}

History::Integral History::integral(Instant from, Instant to) const {
  Integral out;
  out.length_s = seconds(to - from);
  if (runs_.empty() || to <= from) {
    out.value = std::numeric_limits<double>::quiet_NaN();
    return out;
  }
  const Sums begin = up_to(from), end = up_to(to);
  out.covered_s = end.covered - begin.covered;
  if (out.covered_s <= 0) {
    out.covered_s = 0;
    out.value = std::numeric_limits<double>::quiet_NaN();
    return out;
  }
  out.value = (end.integral - begin.integral) * info_.scale;
  const double blur = seconds(info_.profile.update + poll_);
  const double changes = (end.rough - begin.rough) * info_.scale * info_.scale * blur * blur / 12;
  const double late = blur + seconds(info_.profile.window);
  const double rise = (end.raw - begin.raw) * info_.scale;
  const double gain = info_.profile.gain_u.value_or(0) * out.value;
  out.u = std::sqrt(changes + rise * rise * late * late / 3 + gain * gain);
  return out;
}

std::optional<double> History::at(Instant t) const {
  if (runs_.empty()) return std::nullopt;
  const Entry* entry = run_at(t);
  if (entry == nullptr || t > held_until(*entry)) return std::nullopt;
  return static_cast<double>(entry->run.raw) * info_.scale;
}

}  // namespace zeus
