#pragma once

// Joules per iteration for Google Benchmark. Header only: it needs <benchmark/benchmark.h> of
// yours, and libzeus.

#include <benchmark/benchmark.h>

#include <cmath>
#include <utility>

#include "zeus/monitor.h"

namespace zeus {

/// Measures the energy of a benchmark's loop and nothing around it:
///
///     for (auto _ : zeus::metered(state, monitor)) { work(); }
///
/// adds the counters `J` (joules per iteration), `uJ%` (relative standard uncertainty for
/// comparisons, in per cent) and `W` (mean power). A benchmark whose energy could not be told gets
/// no `J` but the label `energy not measured`, and one whose counter did not move in so short a run
/// `energy below resolution` (give it --benchmark_min_time). With several threads the first one
/// measures for all; iterations are then those of all threads together.
class Metered {
 public:
  Metered(benchmark::State& state, Monitor& monitor) : state_(state), monitor_(monitor) {}
  Metered(const Metered&) = delete;
  Metered& operator=(const Metered&) = delete;

  auto begin() {
    if (state_.thread_index() == 0) window_ = monitor_.begin("benchmark");
    return state_.begin();
  }
  auto end() { return state_.end(); }

  ~Metered() {
    if (!window_) return;
    Measurement m;
    if (monitor_.end(std::move(window_), m) != Errc::ok) return;
    const Estimate e = estimate(m, kNode);
    if (std::isnan(e.value) || has(e.flags, Flag::missing)) {
      state_.SetLabel(has(e.flags, Flag::below_resolution) ? "energy below resolution"
                                                           : "energy not measured");
      return;
    }
    const double seconds = std::chrono::duration<double>(m.end - m.begin).count();
    const auto iterations = static_cast<double>(state_.iterations()) * state_.threads();
    state_.counters["J"] = e.value / iterations;
    state_.counters["uJ%"] = e.value > 0 ? 100 * e.u_cmp / e.value : 0;
    state_.counters["W"] = e.value / seconds;
  }

 private:
  benchmark::State& state_;
  Monitor& monitor_;
  Monitor::Window window_ = Monitor::Window::attach(nullptr);
};

inline Metered metered(benchmark::State& state, Monitor& monitor) { return {state, monitor}; }

}  // namespace zeus
