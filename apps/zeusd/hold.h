#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "control.h"
#include "leases.h"
#include "net/http.h"
#include "node.h"
#include "readers.h"

namespace zeus::zeusd {

/// The daemon's hold on the drivers of its GPUs: let go of on request, so that a driver can be
/// unloaded or a GPU be reset, and taken again when the time is over or somebody asks for it.
/// One thread, started by the first request: a driver takes seconds for either.
class Hold {
 public:
  static constexpr std::uint32_t kUsualS = 60, kLongestS = 3600;
  using Done = std::function<void(Outcome)>;

  /// All must outlive it. `audit` hears of every request, and of the end of the time.
  Hold(const Node& node, Readers& readers, Control& control, const Leases& leases,
       std::function<void(const Audit&)> audit);
  ~Hold();  ///< As stop().

  /// Lets go for so long; where that has been done, for so long from now. `done` is called on the
  /// thread of this. 409, and nothing has changed, where a lease holds a GPU or a call of a driver
  /// does not end.
  void release(std::chrono::seconds length, std::string who, Done done);
  /// Takes hold again, if it is not held. Not 200 where a driver is not back: it then stays asked
  /// for by whoever reads.
  void acquire(std::string who, Done done);

  /// Until when it is let go of, in milliseconds since 1970; nothing where it is held.
  std::optional<std::int64_t> until_ms() const;
  /// 503 for who wants something of a GPU meanwhile; nothing where it is held.
  std::optional<zeus::net::Response> refusal() const;

  /// False where a call of a driver still hangs after `limit`.
  bool stop(std::chrono::milliseconds limit);

 private:
  struct Order {
    std::optional<std::chrono::seconds> length{};  ///< Let go for so long; nothing: take hold.
    std::string who{};
    Done done{};
  };

  void post(Order order);
  void run();
  Outcome carry_out(const Order& order);
  Outcome let_go(std::chrono::seconds length);
  Outcome take();
  void set_until(std::chrono::seconds length);
  void go_on();
  std::string until() const;
  std::string words() const;  ///< Of who is refused.

  const std::vector<Driver*>& drivers_;
  const std::vector<Feed*> feeds_;
  Readers& readers_;
  Control& control_;
  const Leases& leases_;
  const std::function<void(const Audit&)> audit_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::deque<Order> orders_;
  std::thread thread_;
  bool running_ = false, stopping_ = false;
  std::atomic<bool> away_{false};
  std::chrono::steady_clock::time_point until_{};  ///< Where it is away, as the next.
  std::chrono::system_clock::time_point wall_{};
};

}  // namespace zeus::zeusd
