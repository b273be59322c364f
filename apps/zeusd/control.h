#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "leases.h"
#include "live.h"
#include "node.h"
#include "overrides.h"
#include "zeus/lease.h"

namespace zeus::zeusd {

/// What a client wants of a GPU.
struct Write {
  Operation operation{};
  std::uint32_t power_limit_mw = 0, min_clock_mhz = 0, max_clock_mhz = 0;
  bool enabled = false;
  std::string lease{};  ///< Its id; empty: what is set stays.
  std::string who{};    ///< For the audit.
};

/// What became of it: a status of HTTP, and a sentence where that is not 200.
struct Outcome {
  unsigned status = 200;
  std::string text{};
};

/// The status of HTTP for what a device or its driver answers (specification of the wire, 3.2).
unsigned status_of(Errc code) noexcept;

/// One line of the audit: who changed what, from what, to what.
struct Audit {
  std::string who, gpu, operation, from, to, lease;
  Outcome outcome;
};

/// Turns the knobs of GPUs, for clients, by leases of the library: every former value is on disk
/// before its knob moves. One thread and one bounded queue a GPU: writes to one GPU keep their
/// order, and none waits for another GPU.
class Control {
 public:
  static constexpr std::size_t kQueue = 64;

  struct Options {
    std::filesystem::path journal;
    const Live<Overrides>* overrides = nullptr;  ///< Instead of the driver, for some operations.
    std::function<void(const Audit&)> audit;
    std::function<Status()> ready;  ///< Whether the audit takes what a client wants done.
    std::chrono::seconds adoption{10};
  };
  /// `leases` must outlive it, and tell it of their ends by ended().
  Control(const Node& node, Leases& leases, Options options);
  ~Control();  ///< As stop().

  /// Takes over what an earlier daemon left, and puts back what other dead processes did. Errors
  /// are told, and concern single devices.
  std::vector<Problem> recover();

  /// Queues a write. `done` is called on the GPU's thread. Where the result is not 200 the queue is
  /// full, or the daemon stops, and `done` will not be called.
  Outcome submit(unsigned gpu, Write write, std::function<void(Outcome)> done);

  /// From now on every write is refused with 503 and `why`, until resume(). Waits until what was
  /// queued has been done; false where it is not after `limit`.
  bool pause(const std::string& why, std::chrono::milliseconds limit);
  void resume();

  /// Has what a lease turned put back, ahead of what is queued; `done` after the last.
  void ended(const std::string& lease, const std::set<unsigned>& gpus,
             std::function<void(std::vector<Outcome>)> done = {});

  /// As ended(), of a lease whose client is gone.
  void abandoned(const std::string& lease, const std::set<unsigned>& gpus);
  /// How often something was put back for a client that was gone: a lease, or a stray.
  std::uint64_t restored() const noexcept { return restored_; }

  /// Has orphans put back, each on the thread of its GPU: those of other processes, and what could
  /// not be put back before. Called every few seconds.
  void settle_strays();

  /// Refuses what is queued, waits for what is being done, and puts back what leases hold. False
  /// where a GPU still hangs after `limit`.
  bool stop(std::chrono::milliseconds limit);

 private:
  struct Held {
    zeus::Lease lease;
    std::string id;
    Setting setting;
  };
  struct Lane {
    const Gpu* gpu = nullptr;
    std::mutex mutex;
    std::condition_variable wake, quiet;
    std::deque<std::function<void(bool refuse)>> urgent, queue;
    std::thread thread;
    bool running = false, stopping = false, ended = false;
    bool busy = false;               ///< Does something ...
    bool writing = false;            ///< ... that a client wants.
    std::string paused{};            ///< Why it takes no writes.
    std::atomic<bool> abort{false};  ///< A command that does so is to end.
    std::atomic<bool> settling{false};
    // Of the lane's thread.
    std::map<std::string, Held> held;  ///< By knob.
    bool told = false;                 ///< That it cannot settle what strays.
  };

  Lane* lane(unsigned gpu);
  void post(Lane& lane, std::function<void(bool)> job, bool urgent);
  void push(Lane& lane, std::function<void(bool)> job, bool urgent);  ///< Under the lane's lock.
  void start(Lane& lane);
  void run(Lane& lane);
  Outcome execute(Lane& lane, const Write& write);
  Outcome turn(Lane& lane, const Write& write, const KnobInfo* knob, Setting to, Audit& audit);
  Result<zeus::Lease> take(Lane& lane, const KnobInfo& knob, Setting to, std::string_view owner);
  Outcome reset_clocks(Lane& lane, const Write& write, Audit& audit);
  Outcome put_back(Lane& lane, const std::string& lease);
  void settle(Lane& lane, const Orphan& orphan);

  const Node& node_;
  Leases& leases_;
  Options options_;
  Machine machine_;  ///< As the node's, with knobs that overrides turn.
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<std::uint64_t> restored_{0};
};

}  // namespace zeus::zeusd
