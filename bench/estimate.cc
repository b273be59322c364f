// What judging the record of a window costs: bench_estimate [SECONDS]. bench_window has the cost of
// counter windows beside the reads that they are made of.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>

#include "support/allocations.h"
#include "support/observe.h"
#include "support/sensors.h"

namespace {

using zeus::test::Load;

/// Median time of one call, in nanoseconds, over batches that take `seconds` together.
template <class F>
double median_ns(double seconds, F&& call) {
  using clock = std::chrono::steady_clock;
  std::vector<double> batches;
  const auto stop = clock::now() + std::chrono::duration<double>(seconds);
  while (clock::now() < stop || batches.size() < 5) {
    constexpr int kCalls = 200;
    const auto begin = clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    batches.push_back(std::chrono::duration<double, std::nano>(clock::now() - begin).count() /
                      kCalls);
  }
  std::nth_element(batches.begin(),
                   batches.begin() + static_cast<std::ptrdiff_t>(batches.size() / 2),
                   batches.end());
  return batches[batches.size() / 2];
}

zeus::Measurement power_window(double length, double window) {
  std::mt19937 random(1);
  const Load load = Load::telegraph(0.05, 300, 60, 80, 120 + length, random);
  zeus::sim::PowerSensor sensor;
  sensor.window = zeus::test::ns(window);
  zeus::SensorInfo info = zeus::test::watts({zeus::Scope::gpu, 0});
  info.profile.kind = zeus::SensorKind::boxcar;
  info.profile.window = zeus::Duration(sensor.window);
  const zeus::test::Read read = [&](double t) {
    return static_cast<std::uint64_t>(sensor.quanta(load, zeus::test::ns(t)));
  };
  return zeus::test::observe(info, read,
                             {.begin = 100, .end = 100 + length, .poll = 0.0125, .lead = 8});
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  const zeus::DomainId gpu{zeus::Scope::gpu, 0};
  double sum = 0;
  fmt::print("{:<44}{:>12}{:>14}{:>13}\n", "what", "ns a window", "ns a sample", "allocations");
  const auto row = [&](const char* what, const zeus::Measurement& m) {
    const auto before = zeus::test::allocations();
    sum += zeus::estimate(m, gpu).value;
    const auto allocated = zeus::test::allocations() - before;
    const double ns = median_ns(seconds, [&] { sum += zeus::estimate(m, gpu).value; });
    const auto samples = static_cast<double>(m.between.size());
    fmt::print("{:<44}{:>12.0f}{:>14}{:>13}\n", what, ns,
               samples > 0 ? fmt::format("{:.1f}", ns / samples) : "", allocated);
  };
  const Load steady = Load::steady(300);
  zeus::sim::Counter counter;
  const zeus::test::Read read = [&](double t) { return counter.quanta(steady, zeus::test::ns(t)); };
  row("counter, two readings",
      zeus::test::observe(zeus::test::counter(gpu), read, {.begin = 100, .end = 110}));
  row("power, full boxcar, 1 s and 8 s before", power_window(1, 0.1));
  row("power, full boxcar, 10 s", power_window(10, 0.1));
  row("power, full boxcar, 100 s (as sampled)", power_window(100, 0.1));
  row("power, 25 ms of 100 ms, 10 s", power_window(10, 0.025));

  return sum > 0 ? 0 : 1;
}
