#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "guard.h"
#include "net/asio.h"
#include "net/server.h"
#include "node.h"
#include "readers.h"

namespace zeus::zeusd {

/// Mean power in mW between two readings of a counter; nothing where it cannot be told.
std::optional<std::uint64_t> power_mw(const Channel& channel, const Value& before,
                                      const Value& now);

/// Power as events. A device is polled while somebody subscribes to it, and no other; what it reads
/// is formatted once and sent to all. A value is sent when it changes, when somebody has just
/// subscribed, and at least every second, so that silence means that something is wrong; where a
/// device cannot be read a comment says so. Those to whom a processor is guarded are sent the power
/// between the readings that they may be told, and nothing else.
class Streams {
 public:
  struct Options {
    unsigned gpu_hz = 20, cpu_hz = 10;
    std::chrono::milliseconds repeat{1000};  ///< An unchanged value is sent again.
    std::chrono::milliseconds beat{5000};    ///< A comment, where there is nothing else to say.
    bool always = false;                     ///< Polls without subscribers too.
  };

  /// The server's workers must have been made, and not started.
  Streams(const Node& node, Readers& readers, Guard& guard, zeus::net::Server& server,
          Options options);
  ~Streams();

  /// On the thread of `worker`. `slow`: of CPUs whose counters are guarded, what Guard tells.
  std::unique_ptr<zeus::net::Stream> gpus(const std::vector<unsigned>& ids, std::size_t worker);
  std::unique_ptr<zeus::net::Stream> cpus(const std::vector<unsigned>& ids, std::size_t worker,
                                          bool slow);

  std::size_t subscribers() const noexcept;
  /// How many polls were left out because the one before took longer than its period.
  std::uint64_t missed() const noexcept { return missed_; }
  void start();  ///< Begins polling where `always` asks for it. After the server has started.

 private:
  struct Topic;
  struct Desk;
  class Subscription;

  std::unique_ptr<zeus::net::Stream> subscribe(std::vector<Topic*> topics, std::size_t worker,
                                               bool slow);
  void wake(Topic& topic);
  void poll(Topic& topic);
  void take(Topic& topic, const ReadOp& op);
  void take_slow(Topic& topic, const Guard::Told& told, Instant at);
  enum class To : std::uint8_t { all, fast, slow };
  void publish(Topic& topic, std::string text, To whom);

  Readers& readers_;
  Guard& guard_;
  zeus::net::Server& server_;
  Options options_;
  std::vector<std::unique_ptr<Topic>> topics_;
  std::vector<std::unique_ptr<Desk>> desks_;  ///< One a worker, of its thread.
  std::atomic<std::size_t> subscribers_{0};
  std::atomic<std::uint64_t> missed_{0};
};

}  // namespace zeus::zeusd
