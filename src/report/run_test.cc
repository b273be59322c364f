#include "report/run.h"

#include <gtest/gtest.h>

#include "support/sensors.h"
#include "zeus/monitor.h"

namespace zeus::report {
namespace {

using namespace std::chrono_literals;

/// A monitor of one counter with a power sensor beside it, on a clock of our own.
struct Bench {
  explicit Bench(bool with_power = true)
      : machine([&] {
          SensorInfo power = zeus::test::counter({Scope::gpu, 0});
          power.name = "power";
          power.quantity = Quantity::power;
          std::vector<SensorInfo> infos = {zeus::test::counter({Scope::gpu, 0})};
          if (with_power) infos.push_back(power);
          return infos;
        }()) {
    Monitor::Options o;
    o.clock = &clock;
    o.thread = false;
    o.period = 100ms;
    o.follow = Monitor::Follow::power;
    monitor.emplace(Monitor::open(machine.machine, o).value());
  }
  void run(int steps, unsigned watts) {
    for (int i = 0; i < steps; ++i) {
      if (machine.dials->raw.size() > 1) machine.dials->raw[1] = watts * 1000;
      if (Sampler* s = monitor->sampler()) s->tick();
      clock.advance(100ms);
      machine.dials->raw[0] += watts * 100;
    }
  }
  zeus::test::ManualClock clock;
  zeus::test::Bench machine;
  std::optional<Monitor> monitor;
};

TEST(Judge, TellsMeanAndPeakPower) {
  Bench bench;
  const auto m = bench.monitor->measure("w", [&] {
    bench.run(20, 100);
    bench.run(20, 300);
  });
  const WindowResult w = judge(bench.machine.machine, m);

  ASSERT_EQ(w.domains.size(), 1u);
  EXPECT_NEAR(w.domains[0].mean_power_w, 200, 10);
  EXPECT_DOUBLE_EQ(w.domains[0].peak_power_w, 300);
  EXPECT_EQ(w.domains[0].device_id, "bench-0");
  EXPECT_TRUE(w.missing.empty());
}

TEST(Judge, RemembersAPeakThatTheRecordHasForgotten) {
  Bench bench;
  const auto m = bench.monitor->measure("w", [&] { bench.run(20, 100); });

  EXPECT_DOUBLE_EQ(judge(bench.machine.machine, m, {kNan, 450}).domains[0].peak_power_w, 450);
}

TEST(Judge, SaysWhyADomainIsMissingAndThatTheTotalIsIncomplete) {
  Bench bench(false);
  const auto m = bench.monitor->measure("w", [&] {
    bench.run(20, 100);
    bench.machine.dials->error = Errc::lost;
  });
  const WindowResult w = judge(bench.machine.machine, m);

  EXPECT_EQ(w.domains[0].reason, "its sensor could not be read: lost");
  ASSERT_EQ(w.missing.size(), 1u);
  EXPECT_EQ(w.missing[0], "gpu:0 (its sensor could not be read: lost)");
}

TEST(Judge, CountsAChosenDeviceThatTellsNothingAsMissing) {
  Bench bench;
  Machine machine = bench.machine.machine;
  Device lost;
  lost.info.index = 3;
  lost.info.lost = true;
  machine.devices.push_back(lost);
  const auto m = bench.monitor->measure("w", [&] { bench.run(20, 100); });

  EXPECT_EQ(judge(machine, m).missing, std::vector<std::string>{"gpu 3 (lost)"});
}

TEST(Joined, IsTheEnergyOfBothParts) {
  Bench bench;
  Measurement first, second, whole;
  auto all = bench.monitor->begin("all");
  auto a = bench.monitor->begin("a");
  bench.run(30, 100);
  auto b = bench.monitor->begin("b");
  (void)bench.monitor->end(std::move(a), first);
  bench.run(30, 250);
  (void)bench.monitor->end(std::move(b), second);
  (void)bench.monitor->end(std::move(all), whole);
  const Measurement sum = joined(first, second);

  EXPECT_EQ(sum.begin, whole.begin);
  EXPECT_EQ(sum.end, whole.end);
  EXPECT_NEAR(estimate(sum, kNode).value, estimate(whole, kNode).value, 1e-9);
  EXPECT_NEAR(estimate(joined(first, first), kNode).value, estimate(first, kNode).value, 1e-9);
}

TEST(Iso8601, TellsMicrosecondsBeforeAndAfterTheEpoch) {
  using Time = std::chrono::system_clock::time_point;

  EXPECT_EQ(iso8601(Time(0us)), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(iso8601(Time(-1us)), "1969-12-31T23:59:59.999999Z");
}

}  // namespace
}  // namespace zeus::report
