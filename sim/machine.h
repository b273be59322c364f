#pragma once

// A scenario and its shared state together: the machine as it stands, to be asked for power,
// energy and what its sensors show. Devices are numbered GPUs first, then zones.

#include "sim/scenario.h"
#include "sim/state.h"

namespace zeus::sim {

/// True power of one device of a running session.
class DeviceTruth final : public Truth {
 public:
  DeviceTruth(const State& state, std::size_t device, const Power& power) noexcept
      : state_(state), device_(device), power_(power) {}
  Piece piece(Ns t) const noexcept override;
  double joules(Ns a, Ns b) const noexcept override;

 private:
  double from(const Segment& s, Ns t) const noexcept;  // Joules from the start of a segment to t.

  const State& state_;
  std::size_t device_;
  const Power& power_;
};

/// What a call or a file is told to do instead of its work.
struct Verdict {
  int code = 0;                             ///< The vendor's, or errno; 0: carry on.
  std::optional<unsigned long long> value;  ///< Answer this number.
  const char* text = nullptr;               ///< Answer this text.
};

class Machine {
 public:
  Machine(Scenario scenario, State state) noexcept
      : scenario_(std::move(scenario)), state_(std::move(state)) {}

  const Scenario& scenario() const noexcept { return scenario_; }
  State& state() noexcept { return state_; }
  const State& state() const noexcept { return state_; }
  std::size_t zone_device(std::size_t zone) const noexcept { return scenario_.gpus.size() + zone; }

  DeviceTruth truth(std::size_t device) const noexcept;
  /// Watts that the device would draw without its limit.
  double wanted_watts(std::size_t device, Ns t) const noexcept;
  /// 0 to 1: the load that it follows, or where its power stands between lowest and highest.
  double load(std::size_t device, Ns t) const noexcept;
  double limit_watts(std::size_t device) const noexcept;
  void set_limit(std::size_t device, double watts) noexcept;
  /// From `begin` on, or as soon as may be where that is too near. Loads are set in order of time.
  void set_load(std::size_t device, double load, Ns begin = 0) noexcept;

  /// Millijoules as the GPU's counter shows them at `t`.
  std::uint64_t gpu_counter(std::size_t gpu, const Counter& counter, Ns t) const noexcept;
  /// Microjoules as the zone's file shows them at `t`.
  std::uint64_t zone_counter(std::size_t zone, Ns t) const noexcept;

  /// Counts the call, and finds what faults make of it. May sleep, if a fault says so.
  Verdict consult(std::size_t call, Fault::Target target, int device,
                  const char* file = nullptr) const noexcept;
  /// The errno with which a file refuses to be opened, or 0.
  int refusal(int zone, const char* file) const noexcept;

 private:
  const Power& power(std::size_t device) const noexcept;
  CounterEvents events(Fault::Target target, int device, Ns t) const noexcept;
  template <class F>
  void each_fault(F&& f) const noexcept;

  Scenario scenario_;
  State state_;
};

}  // namespace zeus::sim
