#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "zeus/device.h"
#include "zeus/measurement.h"

namespace zeus::zeusd {

/// One sensor as it was read.
struct Value {
  /// A level as read. A counter: what it read first, and all that it gained since, wraps included.
  std::uint64_t count = 0;
  zeus::Instant at{};  ///< The middle of the call, or the vendor's own time.
  zeus::Errc error = zeus::Errc::busy;
  std::uint64_t first = 0;  ///< Of a counter: its first reading.
  /// Since the first reading: raw units that a counter gained, over wraps and resets; of power,
  /// raw units times microseconds, each reading held until the next.
  std::uint64_t total = 0;
  std::uint64_t resets = 0;  ///< Of a counter, since the first reading.
  /// Joules since the first reading, of a counter or of power; they never fall.
  double gained(const zeus::SensorInfo& info) const noexcept {
    const double unit = info.quantity == zeus::Quantity::energy ? info.scale : info.scale * 1e-6;
    return static_cast<double>(total) * unit;
  }
  bool ok() const noexcept { return error == zeus::Errc::ok; }
};

class ReadOp;

/// A source of the machine, whose readings many requests share. The readers' own.
struct Feed {
  zeus::Source* source = nullptr;
  std::size_t index = 0;
  std::vector<zeus::SensorInfo> infos{};  ///< By slot.
  bool wraps = false;                     ///< A counter of it can, and must be kept.

  // Of the thread that reads it.
  std::vector<zeus::Reading> readings{};
  std::vector<zeus::Track> tracks{};
  std::vector<Value> values{};

  // Under the readers' lock.
  enum class State : std::uint8_t { idle, queued, running } state = State::idle;
  std::vector<std::shared_ptr<ReadOp>> waiting{}, current{};
  bool paused = false;                           ///< Not to be called: it is Errc::busy.
  bool calling = false;                          ///< Its source is being called.
  zeus::Instant since{};                         ///< When its call began.
  std::map<zeus::Errc, std::uint64_t> errors{};  ///< Calls that gave one.
};

/// One request for the values of some feeds, each named once. `done` is called once, by a reader,
/// when all are there; or by nudge(), when one has been waited for too long.
class ReadOp : public std::enable_shared_from_this<ReadOp> {
 public:
  using Done = std::function<void(const std::shared_ptr<ReadOp>&)>;
  ReadOp(std::vector<Feed*> feeds, Done done);
  /// After `done`: the value of a slot. Errc::busy where it did not come in time.
  const Value& value(const Feed* feed, unsigned slot) const noexcept;

 private:
  friend class Readers;
  void take(const Feed& feed);
  void expire();

  std::vector<Feed*> feeds_;
  std::vector<std::vector<Value>> values_;
  std::mutex mutex_;  ///< Until it is over, what follows and the values.
  std::size_t left_;
  bool over_ = false;
  Done done_;
};

/// The threads that call the vendors. A request that comes while a source is being read waits for
/// the next reading, which is begun after the request came and is shared by all that wait: the
/// number of calls does not grow with the number of clients, and no answer is older than its
/// question. A call that hangs holds up those who asked for that source, for kGivesUp at the most,
/// and nobody else.
class Readers {
 public:
  /// Shorter than what clients wait, so that they hear which device hangs.
  static constexpr std::chrono::seconds kGivesUp{4};

  Readers() = default;
  ~Readers();  ///< As stop(), of 5 s, where nobody called it.

  /// The feed of a sensor's source; made on first use. Before the first submit().
  Feed* feed(const zeus::Device& device, const zeus::Sensor& sensor);
  const std::deque<Feed>& feeds() const noexcept { return feeds_; }

  void submit(std::shared_ptr<ReadOp> op);
  /// Has a further thread look after what waits behind calls that hang, and lets go whoever has
  /// waited for kGivesUp. Called several times a second.
  void nudge();
  /// From now on these sources are not called until resume(): who asks gets Errc::busy. Waits until
  /// no call is under way; false where one is after `limit`.
  bool pause(const std::vector<Feed*>& feeds, std::chrono::milliseconds limit);
  void resume(const std::vector<Feed*>& feeds);
  /// How often what could not be read. Never waits for a vendor.
  std::map<zeus::Errc, std::uint64_t> errors(const Feed& feed) const;

  /// False where a call still hangs when `limit` has passed: then nothing of this may be destroyed.
  bool stop(std::chrono::milliseconds limit);

 private:
  void run();
  static void read(Feed& feed);
  void help(std::size_t awake_needed);

  std::deque<Feed> feeds_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, ended_, quiet_;
  std::deque<Feed*> queue_;
  std::vector<std::thread> threads_;
  std::size_t sleeping_ = 0, woken_ = 0, alive_ = 0;
  bool stopping_ = false;
};

}  // namespace zeus::zeusd
