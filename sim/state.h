#pragma once

// What the processes of one session share: a file, mapped. It holds when the session began, what
// was set at run time, and for each device a log from which its energy at any instant follows.

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <optional>
#include <span>

#include "sim/scenario.h"

namespace zeus::sim {

/// From `begin` on, this held. Published entries never change.
struct Segment {
  Ns begin;
  double joules;  ///< Of the device since the epoch, at `begin`.
  double load;    ///< 0 to 1, of a device that follows.
  double limit;   ///< watts; infinite where the device has none
};

/// What one device's processes share besides its log.
struct DeviceState {
  std::atomic<std::uint64_t> written;  ///< Segments ever published.
  std::uint64_t capacity, offset;
  std::atomic<bool> by_hand;  ///< The counter shows `counter`, in mJ or uJ.
  std::atomic<std::uint64_t> counter;
  std::atomic<std::uint64_t> sm_lock, memory_lock;  ///< low << 32 | high, in MHz; 0: unlocked.
  std::atomic<bool> persistence;
};

class State {
 public:
  static constexpr std::size_t kFaults = 64;
  static constexpr Ns kLead = 5'000'000;  ///< New segments begin this far in the future.

  static Result<State> create(const std::filesystem::path& file, const Scenario& scenario);
  static Result<State> open(const std::filesystem::path& file, const Scenario& scenario);
  State(State&& o) noexcept : base_(o.base_), size_(o.size_) { o.base_ = nullptr; }
  State& operator=(State&&) = delete;
  ~State();

  /// CLOCK_MONOTONIC at the epoch.
  Ns epoch() const noexcept;
  /// Now, since the epoch.
  Ns now() const noexcept;

  std::size_t devices() const noexcept;
  DeviceState& device(std::size_t i) const noexcept;
  /// The segment that held at `t`; the oldest known for instants before it.
  Segment at(std::size_t device, Ns t) const noexcept;
  /// The newest segment, which may begin in a moment only.
  Segment last(std::size_t device) const noexcept;
  /// Whether the log has forgotten what held at `t`.
  bool too_old(std::size_t device, Ns t) const noexcept;

  /// Publishes a segment that begins a little in the future, at `earliest` or after it, and never
  /// before one that was published ahead. `change` turns the last segment into the new one;
  /// `joules` says what the device uses from the last one's start to the new one's.
  template <class Change, class Joules>
  void append(std::size_t d, Ns earliest, Change&& change, Joules&& joules) noexcept {
    const Lock lock(*this);
    Segment s = last(d);
    const Segment old = s;
    s.begin = std::max({now() + kLead, old.begin + 1, earliest});
    change(s);
    s.joules = old.joules + joules(old, s.begin);
    publish(d, s);
  }

  /// Counts one use of an entry point.
  void count(std::size_t call) const noexcept;
  std::uint64_t calls(std::size_t call) const noexcept;

  /// Faults set at run time. Answers the slot, or nothing if all are taken.
  std::optional<std::size_t> add_fault(const Fault& fault) noexcept;
  void remove_fault(std::size_t slot) noexcept;
  std::size_t fault_count() const noexcept;
  /// Nothing if the slot is empty.
  const Fault* fault(std::size_t slot) const noexcept;
  /// One more hit of a fault, scenario's first, then run-time's; answers which it is, from 1.
  std::uint64_t hit(std::size_t number) const noexcept;

 private:
  struct Header;
  class Lock {
   public:
    explicit Lock(State& s) noexcept;
    ~Lock();

   private:
    State& state_;
  };

  State(std::byte* base, std::size_t size) noexcept : base_(base), size_(size) {}
  Header& header() const noexcept;
  Segment* log(std::size_t device) const noexcept;
  void publish(std::size_t device, const Segment& s) noexcept;

  std::byte* base_;
  std::size_t size_;
};

}  // namespace zeus::sim
