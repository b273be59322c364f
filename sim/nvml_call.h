#pragma once

// What the functions of the simulated NVML are made of: each is a lambda that sees a live device.

#include <cmath>
#include <cstring>
#include <string>

#include "backends/nvml/abi.h"
#include "sim/machine.h"

namespace zeus::sim {

namespace abi = nvml::abi;

/// The machine, if this process has initialised the library. A forked child has not.
Machine* current() noexcept;
/// Busy-waits: a vendor's call keeps its core.
void spin(Ns latency) noexcept;

/// What a handle means: a GPU, or an instance of one.
struct Target {
  std::size_t gpu;
  int mig;  ///< -1: the GPU itself
};
abi::Device handle(std::size_t gpu, int mig = -1) noexcept;
std::optional<Target> target(const Machine& machine, abi::Device device) noexcept;

/// A device of a live session, and the instant of the call.
struct Ref {
  Machine& m;
  std::size_t index;
  int mig;
  const Gpu& gpu;
  Ns now;
};

template <class F>
abi::Return on_system(std::size_t call, F&& f) {
  Machine* const m = current();
  if (m == nullptr) return abi::kUninitialized;
  const Verdict v = m->consult(call, Fault::Target::gpu, -1);
  return v.code != 0 ? v.code : f(*m, v);
}

/// `f` sees the GPU that the handle means; MIG instances only where the function knows them.
template <class F>
abi::Return on_device(std::size_t call, abi::Device device, F&& f, bool mig_too = false) {
  Machine* const m = current();
  if (m == nullptr) return abi::kUninitialized;
  const std::optional<Target> t = target(*m, device);
  if (!t) return abi::kInvalidArgument;
  spin(m->scenario().nvml->latency);
  const Verdict v = m->consult(call, Fault::Target::gpu, static_cast<int>(t->gpu));
  if (v.code != 0) return v.code;
  if (t->mig >= 0 && !mig_too) return abi::kNotSupported;
  return f(Ref{*m, t->gpu, t->mig, m->scenario().gpus[t->gpu], m->state().now()}, v);
}

inline abi::Return put(const std::string& text, char* out, unsigned length) {
  if (out == nullptr) return abi::kInvalidArgument;
  if (text.size() >= length) return abi::kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return abi::kSuccess;
}

template <class T>
abi::Return give(T* out, T value) {
  if (out == nullptr) return abi::kInvalidArgument;
  *out = value;
  return abi::kSuccess;
}

/// A getter of one number, which a fault may replace.
template <class T>
abi::Return number(std::size_t call, abi::Device d, T* out, auto&& get) {
  return on_device(call, d, [&](const Ref& r, const Verdict& v) {
    return give(out, v.value ? static_cast<T>(*v.value) : static_cast<T>(get(r)));
  });
}

}  // namespace zeus::sim
