#include "readers.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "measure/track.h"

namespace zeus::zeusd {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kHangs(2);  ///< A call that takes longer is not waited for by others.

}  // namespace

ReadOp::ReadOp(std::vector<Feed*> feeds, Done done)
    : feeds_(std::move(feeds)),
      values_(feeds_.size()),
      left_(feeds_.size()),
      done_(std::move(done)) {}

/// The values of a feed have come.
void ReadOp::take(const Feed& feed) {
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    const auto place = std::find(feeds_.begin(), feeds_.end(), &feed);
    values_[static_cast<std::size_t>(place - feeds_.begin())] = feed.values;
    over_ = --left_ == 0;
    if (!over_) return;
  }
  done_(shared_from_this());
}

void ReadOp::expire() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(over_, true)) return;
  }
  done_(shared_from_this());
}

const Value& ReadOp::value(const Feed* feed, unsigned slot) const noexcept {
  static const Value kNone;
  const auto it = std::find(feeds_.begin(), feeds_.end(), feed);
  if (it == feeds_.end()) return kNone;
  const auto& values = values_[static_cast<std::size_t>(it - feeds_.begin())];
  return slot < values.size() ? values[slot] : kNone;
}

Readers::~Readers() {
  // Who stopped it before has waited as long as he would.
  if (!stopping_) stop(milliseconds(5000));
}

Feed* Readers::feed(const zeus::Device& device, const zeus::Sensor& sensor) {
  for (Feed& f : feeds_) {
    if (f.source == sensor.source) return &f;
  }
  Feed& f = feeds_.emplace_back();
  f.source = sensor.source;
  f.index = feeds_.size() - 1;
  for (const zeus::Sensor& s : device.sensors) {
    if (s.source != sensor.source) continue;
    if (f.infos.size() <= s.slot) f.infos.resize(s.slot + 1);
    f.infos[s.slot] = s.info;
    f.wraps |= s.info.quantity == zeus::Quantity::energy && s.info.wrap != 0;
  }
  f.readings.resize(f.infos.size());
  f.tracks.resize(f.infos.size());
  f.values.resize(f.infos.size());
  return &f;
}

void Readers::submit(std::shared_ptr<ReadOp> op) {
  if (op->feeds_.empty()) return op->done_(op);
  const std::lock_guard lock(mutex_);
  for (Feed* f : op->feeds_) {
    f->waiting.push_back(op);
    if (f->state != Feed::State::idle) continue;
    f->state = Feed::State::queued;
    queue_.push_back(f);
  }
  if (!queue_.empty()) help(1);
}

void Readers::nudge() {
  std::vector<std::shared_ptr<ReadOp>> late;
  {
    const std::lock_guard lock(mutex_);
    if (!queue_.empty()) help(1);
    const zeus::Instant now = std::chrono::steady_clock::now();
    for (Feed& f : feeds_) {
      if (f.state != Feed::State::running || now - f.since < kGivesUp) continue;
      late.insert(late.end(), f.current.begin(), f.current.end());
      late.insert(late.end(), f.waiting.begin(), f.waiting.end());
      f.current.clear();
      f.waiting.clear();
    }
  }
  for (const auto& op : late) op->expire();
}

/// Sees to it that so many threads are awake that no hanging call holds.
void Readers::help(std::size_t awake_needed) {
  const zeus::Instant now = std::chrono::steady_clock::now();
  const auto hanging =
      static_cast<std::size_t>(std::count_if(feeds_.begin(), feeds_.end(), [now](const Feed& f) {
        return f.state == Feed::State::running && now - f.since > kHangs;
      }));
  const std::size_t awake = alive_ - sleeping_ + woken_;
  if (awake - std::min(awake, hanging) >= awake_needed || stopping_) return;
  if (sleeping_ > woken_) {
    ++woken_;
    wake_.notify_one();
  } else if (alive_ <= feeds_.size()) {  // One more than could hang.
    try {
      threads_.emplace_back([this] { run(); });
      ++alive_;
    } catch (const std::system_error&) {
      // No thread is to be had just now: nudge() asks again.
    }
  }
}

void Readers::run() {
  std::vector<std::shared_ptr<ReadOp>> answered;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (queue_.empty()) {
      ++sleeping_;
      wake_.wait(lock, [this] { return woken_ > 0 || stopping_; });
      --sleeping_;
      if (woken_ > 0) --woken_;
      continue;
    }
    Feed& feed = *queue_.front();
    queue_.pop_front();
    feed.state = Feed::State::running;
    feed.since = std::chrono::steady_clock::now();
    feed.current.swap(feed.waiting);
    // Should this call hang, another thread is there for what is still queued.
    if (!queue_.empty()) help(2);
    feed.calling = !feed.paused;
    lock.unlock();
    if (feed.calling) {
      read(feed);
    } else {
      for (Value& v : feed.values) v.error = zeus::Errc::busy;
    }
    lock.lock();
    answered.swap(feed.current);
    lock.unlock();
    for (const auto& op : answered) op->take(feed);
    answered.clear();
    lock.lock();
    for (const Value& v : feed.values) {
      if (feed.calling && !v.ok()) ++feed.errors[v.error];
    }
    feed.calling = false;
    if (feed.paused) quiet_.notify_all();
    feed.state = feed.waiting.empty() ? Feed::State::idle : Feed::State::queued;
    if (feed.state == Feed::State::queued) queue_.push_back(&feed);
  }
  --alive_;
  ended_.notify_all();
}

void Readers::read(Feed& feed) {
  std::fill(feed.readings.begin(), feed.readings.end(), zeus::Reading{});
  const zeus::Instant before = std::chrono::steady_clock::now();
  const zeus::Errc whole = feed.source->read(feed.readings);
  const zeus::Instant middle = before + (std::chrono::steady_clock::now() - before) / 2;
  for (std::size_t i = 0; i < feed.infos.size(); ++i) {
    const zeus::Reading& r = feed.readings[i];
    Value& v = feed.values[i];
    v.error = whole == zeus::Errc::ok ? r.error : whole;
    v.at = r.own_time ? r.at : middle;
    const auto quantity = feed.infos[i].quantity;
    v.count = r.raw;
    if (quantity != zeus::Quantity::energy && quantity != zeus::Quantity::power) continue;
    zeus::Track& track = feed.tracks[i];
    if (!track.valid() && v.ok()) v.first = r.raw;
    zeus::follow(track, feed.infos[i], zeus::Sample(v.at, r.raw, v.error), zeus::Duration::max());
    v.total = track.total;
    if (quantity != zeus::Quantity::energy) continue;
    // A counter that never wraps goes on as the vendor counts it, resets and all.
    v.count = feed.infos[i].wrap == 0 ? r.raw : v.first + track.total;
    v.resets = track.resets;
  }
}

bool Readers::pause(const std::vector<Feed*>& feeds, milliseconds limit) {
  std::unique_lock lock(mutex_);
  for (Feed* const f : feeds) f->paused = true;
  return quiet_.wait_for(lock, limit, [&feeds] {
    return std::none_of(feeds.begin(), feeds.end(), [](const Feed* f) { return f->calling; });
  });
}

void Readers::resume(const std::vector<Feed*>& feeds) {
  const std::lock_guard lock(mutex_);
  for (Feed* const f : feeds) f->paused = false;
}

std::map<zeus::Errc, std::uint64_t> Readers::errors(const Feed& feed) const {
  const std::lock_guard lock(mutex_);
  return feed.errors;
}

bool Readers::stop(milliseconds limit) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
  const bool all = ended_.wait_for(lock, limit, [this] { return alive_ == 0; }) || alive_ == 0;
  lock.unlock();
  for (std::thread& t : threads_) {
    if (!t.joinable()) continue;
    if (all) {
      t.join();
    } else {
      t.detach();
    }
  }
  threads_.clear();
  return all;
}

}  // namespace zeus::zeusd
