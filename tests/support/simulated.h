#pragma once

// A simulated machine for tests of backends: made from a few lines of TOML, opened through the real
// loader, with a hand on its faults and counters.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "device/backend.h"
#include "sim/session.h"
#include "support/tree.h"

namespace zeus::test {

class Simulated {
 public:
  explicit Simulated(std::string_view scenario) {
    tree_.write("test.toml", scenario);
    session_ = sim::Session::create((tree_.root() / "test.toml").string()).value();
  }

  sim::Session& session() { return *session_; }
  Host host() const { return {session_->root(), session_->libraries()}; }
  Machine open(const Backend& backend) const { return open_local(host(), {&backend, 1}); }

  /// From now on these calls answer `code`: of one GPU, or of all.
  std::size_t fault(std::string_view calls, int code, int gpu = -1, unsigned every = 0) {
    sim::Fault f;
    f.device = gpu;
    f.calls = sim::calls_named(calls);
    f.code = code;
    f.every = every;
    return session_->fault(f).value();
  }
  /// From now on these calls answer this number.
  std::size_t value(std::string_view calls, unsigned long long number, int gpu = -1) {
    sim::Fault f;
    f.what = sim::Fault::What::value;
    f.device = gpu;
    f.calls = sim::calls_named(calls);
    f.value = number;
    return session_->fault(f).value();
  }
  /// From now on these calls take that long.
  std::size_t block(std::string_view calls, std::chrono::nanoseconds time, int gpu = -1) {
    sim::Fault f;
    f.what = sim::Fault::What::block;
    f.device = gpu;
    f.calls = sim::calls_named(calls);
    f.block = time.count();
    return session_->fault(f).value();
  }
  void remove(std::size_t fault) { session_->remove_fault(fault); }
  std::uint64_t calls(std::string_view name) const { return session_->calls(name); }

 private:
  Tree tree_;
  std::unique_ptr<sim::Session> session_;
};

/// The sensor of that name; null if the device has none.
inline const Sensor* sensor(const Device& device, std::string_view name) {
  for (const Sensor& s : device.sensors) {
    if (s.info.name == name) return &s;
  }
  return nullptr;
}

inline const KnobInfo* knob(const Device& device, std::string_view name) {
  for (const KnobInfo& k : device.knobs) {
    if (k.name == name) return &k;
  }
  return nullptr;
}

/// What a sensor reads now; its error is that of the call or of the slot.
inline Reading read(const Sensor* sensor) {
  Reading slots[16];
  if (sensor == nullptr) return {.error = Errc::absent};
  const Errc whole = sensor->source->read(std::span(slots).first(sensor->slot + 1));
  Reading out = slots[sensor->slot];
  if (whole != Errc::ok) out.error = whole;
  return out;
}

/// Reads until it works, for as long as a patient person would wait.
inline Reading read_until_ok(const Sensor* sensor) {
  Reading r = read(sensor);
  for (int i = 0; i < 3000 && r.error != Errc::ok; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    r = read(sensor);
  }
  return r;
}

/// The sentences of all problems, one a line.
inline std::string sentences(const Machine& machine) {
  std::string text;
  for (const Problem& p : machine.problems) text += p.where + ": " + p.error.detail + '\n';
  return text;
}

}  // namespace zeus::test
