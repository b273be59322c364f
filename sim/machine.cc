#include "sim/machine.h"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

namespace zeus::sim {

namespace {

double followed(const Power& p, double load) { return p.idle + (p.max - p.idle) * load; }

}  // namespace

Piece DeviceTruth::piece(Ns t) const noexcept {
  const Segment s = state_.at(device_, t);
  // A segment ends where the next begins; what matters to callers, who walk backwards, is its
  // start.
  const Ns begin = s.begin <= 0 ? -kForever : s.begin;
  if (power_.follow) {
    return {t < s.begin ? -kForever : begin, kForever, std::min(followed(power_, s.load), s.limit)};
  }
  Piece p = power_.steps.piece(t);
  p.begin = std::max(p.begin, begin);
  p.watts = std::min(p.watts, s.limit);
  return p;
}

double DeviceTruth::from(const Segment& s, Ns t) const noexcept {
  if (power_.follow) return std::min(followed(power_, s.load), s.limit) * seconds(t - s.begin);
  return t >= s.begin ? power_.steps.joules(s.begin, t, s.limit)
                      : -power_.steps.joules(t, s.begin, s.limit);
}

double DeviceTruth::joules(Ns a, Ns b) const noexcept {
  if (b < a) return -joules(b, a);
  const Segment from_a = state_.at(device_, a), from_b = state_.at(device_, b);
  if (from_a.begin != from_b.begin) {
    return (from_b.joules - from_a.joules) + from(from_b, b) - from(from_a, a);
  }
  if (power_.follow) return from(from_b, b) - from(from_b, a);
  return power_.steps.joules(a, b, from_a.limit);
}

const Power& Machine::power(std::size_t device) const noexcept {
  if (device < scenario_.gpus.size()) return scenario_.gpus[device].power;
  const Zone& z = scenario_.zones[device - scenario_.gpus.size()];
  return z.mirror < 0 ? z.power : scenario_.zones[static_cast<std::size_t>(z.mirror)].power;
}

DeviceTruth Machine::truth(std::size_t device) const noexcept {
  if (device >= scenario_.gpus.size()) {
    const Zone& z = scenario_.zones[device - scenario_.gpus.size()];
    if (z.mirror >= 0) device = zone_device(static_cast<std::size_t>(z.mirror));
  }
  return {state_, device, power(device)};
}

double Machine::wanted_watts(std::size_t device, Ns t) const noexcept {
  const Power& p = power(device);
  return p.follow ? followed(p, state_.at(device, t).load) : p.steps.piece(t).watts;
}

double Machine::load(std::size_t device, Ns t) const noexcept {
  const Power& p = power(device);
  if (p.follow) return state_.at(device, t).load;
  const double span = p.highest() - p.lowest();
  return span > 0 ? (p.steps.piece(t).watts - p.lowest()) / span : 1;
}

double Machine::limit_watts(std::size_t device) const noexcept { return state_.last(device).limit; }

void Machine::set_limit(std::size_t device, double watts) noexcept {
  const DeviceTruth t = truth(device);
  state_.append(
      device, 0, [&](Segment& s) { s.limit = watts; },
      [&](const Segment& old, Ns end) { return t.joules(old.begin, end); });
}

void Machine::set_load(std::size_t device, double load, Ns begin) noexcept {
  const DeviceTruth t = truth(device);
  state_.append(
      device, begin, [&](Segment& s) { s.load = load; },
      [&](const Segment& old, Ns end) { return t.joules(old.begin, end); });
}

template <class F>
void Machine::each_fault(F&& f) const noexcept {
  for (std::size_t i = 0; i < scenario_.faults.size(); ++i) f(scenario_.faults[i], i);
  for (std::size_t i = 0; i < state_.fault_count(); ++i) {
    if (const Fault* fault = state_.fault(i)) f(*fault, 128 + i);
  }
}

CounterEvents Machine::events(Fault::Target target, int device, Ns t) const noexcept {
  CounterEvents out;
  each_fault([&](const Fault& f, std::size_t) {
    if (f.target != target || (f.device >= 0 && f.device != device) || t < f.from) return;
    if (f.what == Fault::What::freeze && t < f.until)
      out.frozen_at = std::min(out.frozen_at, f.from);
    if (f.what == Fault::What::reset) out.reset_at = std::max(out.reset_at, f.from);
    if (f.what == Fault::What::step && t < f.until) out.step += f.step_j;
  });
  return out;
}

std::uint64_t Machine::gpu_counter(std::size_t gpu, const Counter& counter, Ns t) const noexcept {
  const DeviceState& d = state_.device(gpu);
  if (d.by_hand.load(std::memory_order_acquire)) return d.counter.load(std::memory_order_relaxed);
  const DeviceTruth power = truth(gpu);
  const std::uint64_t n =
      counter.quanta(power, t, events(Fault::Target::gpu, static_cast<int>(gpu), t));
  return to_count(static_cast<double>(n) * (counter.quantum * 1e3) + 1e-3);
}

std::uint64_t Machine::zone_counter(std::size_t zone, Ns t) const noexcept {
  const Zone& z = scenario_.zones[zone];
  const DeviceState& d = state_.device(zone_device(zone));
  if (d.by_hand.load(std::memory_order_acquire)) return d.counter.load(std::memory_order_relaxed);
  const DeviceTruth power = truth(zone_device(zone));
  const std::uint64_t n =
      z.counter.quanta(power, t, events(Fault::Target::zone, static_cast<int>(zone), t));
  return to_count(static_cast<double>(n) * (z.counter.quantum * 1e6) + 1e-3);
}

Verdict Machine::consult(std::size_t call, Fault::Target target, int device,
                         const char* file) const noexcept {
  state_.count(call);
  Verdict out;
  const Ns t = state_.now();
  each_fault([&](const Fault& f, std::size_t number) {
    const bool zone = target == Fault::Target::zone;
    if (f.target != target || (f.device >= 0 && f.device != device) || t < f.from || t >= f.until ||
        (zone ? std::strcmp(f.file, file) != 0 : !f.calls.has(call))) {
      return;
    }
    if (f.every != 0 || f.after_calls != 0) {
      const std::uint64_t n = state_.hit(number);
      if (n <= f.after_calls || (f.every != 0 && (n - f.after_calls) % f.every != 0)) return;
    }
    switch (f.what) {
      case Fault::What::code:
      case Fault::What::error_number: out.code = f.code; break;
      case Fault::What::value: out.value = f.value; break;
      case Fault::What::text: out.text = f.text; break;
      case Fault::What::block: {
        const timespec pause{f.block / 1'000'000'000, f.block % 1'000'000'000};
        ::nanosleep(&pause, nullptr);
        break;
      }
      default: break;  // Counters ask for the rest themselves.
    }
  });
  return out;
}

int Machine::refusal(int zone, const char* file) const noexcept {
  int e = 0;
  const Ns t = state_.now();
  each_fault([&](const Fault& f, std::size_t) {
    const bool denies = f.code == EACCES || f.code == EPERM || f.code == ENOENT;
    if (f.target == Fault::Target::zone && f.what == Fault::What::error_number && denies &&
        (f.device < 0 || f.device == zone) && t >= f.from && t < f.until &&
        std::strcmp(f.file, file) == 0) {
      e = f.code;
    }
  });
  return e;
}

}  // namespace zeus::sim
