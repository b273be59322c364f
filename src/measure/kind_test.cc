#include "measure/kind.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "measure/comb.h"
#include "support/polls.h"

namespace zeus {
namespace {

constexpr sim::Ns kMs = 1'000'000;

// Readings of a simulated sensor at its first `n` publications.
std::vector<double> published(const sim::Truth& truth, const sim::PowerSensor& sensor, int n) {
  std::vector<double> ticks;
  for (int k = 0; k < n; ++k) ticks.push_back(sensor.read(truth, k * sensor.comb.update));
  return ticks;
}

sim::PowerSensor sensor(sim::Ns update, sim::Ns window) {
  sim::PowerSensor s;
  s.comb.update = update;
  s.window = window;
  return s;
}

// What a recorded log shows late in each period of its comb.
std::vector<double> at_ticks(const std::vector<Sample>& samples) {
  const Comb comb = infer_comb(samples);
  std::vector<double> ticks;
  double next = comb.phase_s - comb.period_s * std::floor(comb.phase_s / comb.period_s);
  for (std::size_t i = 1; i < samples.size(); ++i) {
    if (std::chrono::duration<double>(samples[i].at() - comb.origin).count() < next) continue;
    ticks.push_back(static_cast<double>(samples[i - 1].raw()) * 1e-3);
    next += comb.period_s;
  }
  return ticks;
}

TEST(Quantum, IsTheGreatestCommonDivisorOfTheDifferences) {
  std::mt19937 random(1);
  std::uniform_int_distribution<std::uint64_t> steps(0, 1000);
  std::vector<Sample> samples;
  for (int i = 0; i < 200; ++i) samples.push_back(test::sample(i * kMs, 3 + 10 * steps(random)));
  EXPECT_EQ(quantum_of(samples), 10u);
  samples[100] = test::sample(100 * kMs, 12345, Errc::busy);
  EXPECT_EQ(quantum_of(samples), 10u);
}

TEST(Quantum, IsUnknownWithFewerThanFiftyDifferences) {
  std::vector<Sample> samples = {test::sample(0, 0)};
  for (std::uint64_t d = 1; d <= 49; ++d) {
    samples.push_back(test::sample(static_cast<sim::Ns>(d) * kMs, samples.back().raw() + 7 * d));
  }
  EXPECT_EQ(quantum_of(samples), 0u);
  samples.push_back(test::sample(50 * kMs, samples.back().raw() + 7 * 50));
  EXPECT_EQ(quantum_of(samples), 7u);
  EXPECT_EQ(quantum_of({}), 0u);
}

// Specification of accuracy, B2: a mean over 1 s, published every 100 ms, moves by a tenth.
TEST(RunningMean, IsRuledOutByAFasterChange) {
  const test::FixedTruth square(sim::Steps::square(60, 300, 3000 * kMs, 0.5, 0));
  const auto mean = published(square, sensor(100 * kMs, 1000 * kMs), 200);
  EXPECT_FALSE(rules_out_running_mean(mean, 240 + 0.01, 0.1, 1));
  EXPECT_TRUE(rules_out_running_mean(mean, 240, 0.1, 1.1));
  EXPECT_TRUE(
      rules_out_running_mean(published(square, sensor(100 * kMs, 100 * kMs), 200), 240, 0.1, 1));
  EXPECT_FALSE(rules_out_running_mean({}, 240, 0.1, 1));
  EXPECT_FALSE(rules_out_running_mean(mean, 240, 0.1, 0.1));
}

// The recorded average moves by up to 15 % of the range in an update, where a mean over 1 s could
// by 10 %: it does rule that out, but not a mean over half of it.
TEST(RunningMean, IsRuledOutByTheInstantReadingOfARecorded3090NotByItsAverage) {
  if (!test::data()) GTEST_SKIP() << "not run: no data";
  const auto instant = at_ticks(test::recorded("step-3090", "power_draw_instant_w"));
  const auto average = at_ticks(test::recorded("step-3090", "power_draw_average_w"));
  ASSERT_FALSE(instant.empty());
  const auto [least, most] = std::minmax_element(instant.begin(), instant.end());
  EXPECT_TRUE(rules_out_running_mean(instant, *most - *least, 0.1, 0.5));
  EXPECT_FALSE(rules_out_running_mean(average, *most - *least, 0.1, 0.5));
}

TEST(Kind, OfRecordedReadingsIsTheOneThatIsKnown) {
  if (!test::data()) GTEST_SKIP() << "not run: no data";
  const auto kind = [](const char* trace, const char* column) {
    return guess_kind(at_ticks(test::recorded(trace, column))).kind;
  };
  EXPECT_EQ(kind("step-3090", "power_draw_instant_w"), SensorKind::unknown);
  EXPECT_EQ(kind("step-3090", "power_draw_average_w"), SensorKind::running);
  EXPECT_EQ(kind("step-a100", "power_draw_instant_w"), SensorKind::unknown);
  EXPECT_EQ(kind("step-k40m", "power_draw_w"), SensorKind::exponential);
}

TEST(Kind, OfAResponseOfFirstOrderIsExponentialWithItsTimeConstant) {
  const test::FixedTruth square(sim::Steps::square(60, 300, 6000 * kMs, 0.5, 0));
  for (const double tau : {0.04, 0.2, 0.5}) {
    sim::PowerSensor s = sensor(15 * kMs, 0);
    s.kind = sim::PowerSensor::Kind::exponential;
    s.tau = tau;
    const KindGuess guess = guess_kind(published(square, s, 1000));
    EXPECT_EQ(guess.kind, SensorKind::exponential) << tau;
    EXPECT_NEAR(guess.tau_ticks, tau / 0.015, 0.02 * tau / 0.015) << tau;
  }
}

TEST(Kind, OfRampsIsRunning) {
  const test::FixedTruth square(sim::Steps::square(60, 300, 6000 * kMs, 0.5, 0));
  for (const sim::Ns phase : {0, 30, 77}) {
    sim::PowerSensor s = sensor(100 * kMs, 1000 * kMs);
    s.comb.phase = phase * kMs;
    const KindGuess guess = guess_kind(published(square, s, 300));
    EXPECT_EQ(guess.kind, SensorKind::running) << phase;
    EXPECT_GT(guess.correlation, 0.5);
    EXPECT_EQ(guess.tau_ticks, 0);
  }
}

TEST(Kind, OfReadingsThatJumpWithTheLoadIsUnknown) {
  std::mt19937 random(2);
  const test::FixedTruth load(test::telegraph(60, 300, 0.2, 60, random));
  for (const sim::Ns window : {0, 25, 100}) {
    EXPECT_EQ(guess_kind(published(load, sensor(100 * kMs, window * kMs), 500)).kind,
              SensorKind::unknown);
  }
  EXPECT_EQ(guess_kind({}).kind, SensorKind::unknown);
  EXPECT_EQ(guess_kind(std::vector<double>(100, 60.0)).kind, SensorKind::unknown);
}

}  // namespace
}  // namespace zeus
