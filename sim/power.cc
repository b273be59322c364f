#include "sim/power.h"

#include <algorithm>

namespace zeus::sim {

Steps Steps::constant(double watts) { return Steps({{1'000'000'000, watts}}, false); }

Steps Steps::square(double low, double high, Ns period, double duty, Ns phase) {
  const Ns on = std::clamp<Ns>(static_cast<Ns>(duty * static_cast<double>(period)), 0, period);
  if (on == 0 || on == period) return constant(on == 0 ? low : high);
  return Steps({{on, high}, {period - on, low}}, true, phase);
}

Steps::Steps(std::vector<Step> steps, bool repeat, Ns shift) : shift_(shift), repeat_(repeat) {
  joules_.push_back(0);
  lowest_ = highest_ = steps.front().watts;
  for (const Step& s : steps) {
    starts_.push_back(length_);
    watts_.push_back(s.watts);
    joules_.push_back(joules_.back() + s.watts * seconds(s.length));
    length_ += s.length;
    lowest_ = std::min(lowest_, s.watts);
    highest_ = std::max(highest_, s.watts);
  }
}

Steps::Place Steps::place(Ns t) const noexcept {
  Ns inside = t - shift_;
  std::int64_t cycle = 0;
  if (repeat_) {
    cycle = inside / length_ - (inside % length_ < 0 ? 1 : 0);
    inside -= cycle * length_;
  }
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), inside);
  const auto index = std::max<std::ptrdiff_t>(0, next - starts_.begin() - 1);
  return {cycle, static_cast<std::size_t>(index), inside};
}

Piece Steps::piece(Ns t) const noexcept {
  const Place p = place(t);
  const Ns base = shift_ + p.cycle * length_;
  const bool first = !repeat_ && p.index == 0, last = !repeat_ && p.index + 1 == starts_.size();
  return {first ? -kForever : base + starts_[p.index],
          last                            ? kForever
          : p.index + 1 == starts_.size() ? base + length_
                                          : base + starts_[p.index + 1],
          watts_[p.index]};
}

double Steps::before(std::size_t index, double limit) const noexcept {
  if (limit >= highest_) return joules_[index];
  double sum = 0;
  for (std::size_t i = 0; i < index; ++i) {
    const Ns end = i + 1 < starts_.size() ? starts_[i + 1] : length_;
    sum += std::min(watts_[i], limit) * seconds(end - starts_[i]);
  }
  return sum;
}

double Steps::since_start(const Place& p, double limit) const noexcept {
  return before(p.index, limit) +
         std::min(watts_[p.index], limit) * seconds(p.inside - starts_[p.index]);
}

double Steps::joules(Ns a, Ns b, double limit) const noexcept {
  const Place from = place(a), to = place(b);
  if (from.cycle == to.cycle && from.index == to.index) {
    return std::min(watts_[from.index], limit) * seconds(b - a);
  }
  const std::int64_t cycles = to.cycle - from.cycle;
  const double whole =
      cycles == 0 ? 0 : static_cast<double>(cycles) * before(starts_.size(), limit);
  return whole + since_start(to, limit) - since_start(from, limit);
}

}  // namespace zeus::sim
