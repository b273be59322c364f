#include "measure/align.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/observe.h"
#include "support/sensors.h"
#include "zeus/monitor.h"

namespace zeus {
namespace {
using namespace std::chrono_literals;
using test::Load;

/// Time that passes only by waiting, and a little with each look at it.
struct Patient final : Clock {
  Instant now() const noexcept override { return Instant{} + Duration(t += 1000); }
  void sleep_until(Instant until) const noexcept override {
    t = std::max(t, until.time_since_epoch().count());
  }
  mutable Duration::rep t = 3'600'000'000'000;
};

/// Counters of a load, read at the time of a clock.
struct Counters final : Source {
  Counters(const Patient& c, Load l, std::vector<double> phases)
      : clock(c), load(std::move(l)), combs(std::move(phases)) {}
  Errc read(std::span<Reading> out) noexcept override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      sim::Counter counter;
      counter.comb.update = test::ns(0.1);
      counter.comb.phase = test::ns(combs[i]);
      out[i].raw = counter.quanta(load, clock.t - 3'600'000'000'000);
    }
    return Errc::ok;
  }
  const Patient& clock;
  Load load;
  std::vector<double> combs;
};

struct Bench {
  Bench(const Patient& clock, Load load, const std::vector<double>& phases)
      : source(std::make_shared<Counters>(clock, std::move(load), phases)) {
    Device device{{DeviceInfo::Kind::board, "test", "bench", "bench-0"}, {}, {}};
    std::vector<DomainId> present;
    for (unsigned i = 0; i < phases.size(); ++i) {
      const DomainId id{Scope::gpu, static_cast<std::uint16_t>(i)};
      device.sensors.push_back({test::counter(id), source.get(), i});
      present.push_back(id);
    }
    machine.devices.push_back(std::move(device));
    machine.domains = DomainTree(present);
    machine.owned.push_back(source);
  }
  std::shared_ptr<Counters> source;
  Machine machine;
};

// Accuracy.md T4, bracketed: a burst of a quarter of a second, of which the counter alone knows
// 75 J +- 13 %.
TEST(Align, ABurstBetweenQuietPadsIsToldFromTickToTick) {
  for (const std::vector<double>& phases :
       {std::vector<double>{0.013}, std::vector<double>{0.013, 0.05, 0.09}}) {
    const Patient clock;
    // The window begins within two updates, and the load with it.
    double begun = 0;
    for (const bool measure : {false, true}) {
      clock.t = 3'600'000'000'000 + 5'000'000'000;
      Bench bench(clock, Load::burst(begun, begun + 0.25, 300, 60), phases);
      Monitor monitor =
          Monitor::open(bench.machine,
                        {.clock = &clock, .thread = false, .align = Monitor::Align::tick})
              .value();
      auto window = monitor.begin("burst");
      begun = static_cast<double>(clock.t - 3'600'000'000'000) * 1e-9;
      if (!measure) continue;  // Found out when it begins.
      clock.t += test::ns(0.25);
      Measurement m;
      ASSERT_EQ(monitor.end(std::move(window), m), Errc::ok);
      EXPECT_TRUE(m.aligned);
      for (const DomainId id : monitor.subject().domains.all()) {
        const Estimate e = estimate(m, id);
        EXPECT_EQ(e.method, "bracketed");
        EXPECT_NEAR(e.value, 75, 0.25) << to_string(id);
        EXPECT_LE(std::abs(e.value - 75), 2 * e.u_cmp + 0.02);
        EXPECT_LE(e.u_cmp, 0.5);
        EXPECT_EQ(e.flags, Flag::none);
      }
    }
  }
}

TEST(Align, ACounterThatNeverTicksIsNotWaitedForForEver) {
  const Patient clock;
  Bench bench(clock, Load::steady(0), {0.02});
  Monitor monitor = Monitor::open(bench.machine,
                                  {.clock = &clock, .thread = false, .align = Monitor::Align::tick})
                        .value();
  const auto before = clock.t;
  auto window = monitor.begin("nothing");
  Measurement m;
  ASSERT_EQ(monitor.end(std::move(window), m), Errc::ok);
  EXPECT_LE(clock.t - before, test::ns(0.1 * 8));
  EXPECT_TRUE(std::isnan(estimate(m, kNode).value));
}

TEST(Align, MarksAreKeptInOrderAndTheNewestOnly) {
  const Patient clock;
  Bench bench(clock, Load::steady(100), {0.02});
  Monitor monitor = Monitor::open(bench.machine, {.clock = &clock, .thread = false}).value();
  auto window = monitor.begin("marked");
  for (std::size_t i = 0; i < Monitor::kMarks + 10; ++i) monitor.mark();
  Measurement m;
  ASSERT_EQ(monitor.end(std::move(window), m), Errc::ok);
  ASSERT_EQ(m.marks.size(), Monitor::kMarks);
  EXPECT_TRUE(std::is_sorted(m.marks.begin(), m.marks.end()));
  EXPECT_GT(m.marks.front(), m.begin);
}

}  // namespace
}  // namespace zeus
