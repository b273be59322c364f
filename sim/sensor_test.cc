// Sensors against the closed forms of their models: hi 300 W, lo or idle 60 W throughout. Errors of
// naive readings are the ones that published measurements of such sensors report.

#include "sim/sensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace zeus::sim {
namespace {

constexpr Ns kMs = 1'000'000, kSecond = 1'000 * kMs;

class FixedTruth final : public Truth {
 public:
  explicit FixedTruth(Steps steps) : steps_(std::move(steps)) {}
  Piece piece(Ns t) const noexcept override { return steps_.piece(t); }
  double joules(Ns a, Ns b) const noexcept override {
    return a <= b ? steps_.joules(a, b) : -steps_.joules(b, a);
  }

 private:
  Steps steps_;
};

FixedTruth burst(Ns length) {
  return FixedTruth(Steps({{kSecond, 60}, {length, 300}, {kSecond, 60}}, false, -kSecond));
}

PowerSensor sensor(Ns update, Ns phase, Ns window) {
  PowerSensor s;
  s.comb = {update, phase, 0, 0, 1};
  s.window = window;
  return s;
}

// What tools do: poll, and join the readings by straight lines. Per cent of the truth.
double naive_error(const Truth& truth, const PowerSensor& s, Ns end, Ns poll) {
  double sum = 0;
  for (Ns t = 0; t + poll <= end; t += poll) {
    sum += (s.read(truth, t) + s.read(truth, t + poll)) / 2 * seconds(poll);
  }
  return 100 * (sum / truth.joules(0, end) - 1);
}

double mean_over_phases(Ns update, const std::function<double(Ns)>& f) {
  constexpr int kPhases = 200;
  double sum = 0;
  for (int i = 0; i < kPhases; ++i) sum += f((2 * i + 1) * update / (2 * kPhases));
  return sum / kPhases;
}

TEST(PowerSensor, ThatLooksAQuarterOfTheTimeIsWrongByPhaseOnALockedLoad) {
  const FixedTruth truth(Steps::square(60, 300, 100 * kMs, 0.5, 0));
  for (Ns phase = 0; phase < 100 * kMs; phase += 2'500'000) {
    const PowerSensor s = sensor(100 * kMs, phase, 25 * kMs);
    // Share of the window (phase - 25 ms, phase] in which the load is high.
    double high = 0;
    for (Ns t = phase - 25 * kMs; t < phase; t += kMs / 2) {
      high += ((t + 100 * kMs) % (100 * kMs) < 50 * kMs) ? 1.0 / 50 : 0;
    }
    const double expected = 60 + 240 * high;
    for (int k = 1; k < 20; ++k) {
      EXPECT_NEAR(s.read(truth, phase + k * 100 * kMs + k), expected, 1.1e-3) << phase;
    }
  }
}

TEST(PowerSensor, ReadsTheFourPhasesOfTheLockedLoadAsPublished) {
  const FixedTruth truth(Steps::square(60, 300, 100 * kMs, 0.5, 0));
  const std::pair<Ns, double> cases[] = {
      {0, -66.667}, {12'500'000, 0}, {25 * kMs, 66.667}, {62'500'000, 0}};
  for (const auto& [phase, error] : cases) {
    const PowerSensor s = sensor(100 * kMs, phase, 25 * kMs);
    EXPECT_NEAR(100 * (s.read(truth, 5 * kSecond) / 180 - 1), error, 1e-2);
  }
}

// A burst loses what it adds, times half a window and half an update: (hi - idle)(W + T) / 2.
TEST(PowerSensor, LosesHalfAWindowAndHalfAnUpdateOfABurst) {
  constexpr Ns kUpdate = 100 * kMs;
  for (const Ns window : {kUpdate, kSecond}) {
    for (const Ns length : {kSecond, 2 * kSecond, 10 * kSecond}) {
      const FixedTruth truth = burst(length);
      const double error = mean_over_phases(kUpdate, [&](Ns phase) {
        return naive_error(truth, sensor(kUpdate, phase, window), length, 20 * kMs);
      });
      const double expected = -100 * 240 * seconds(window + kUpdate) / 2 / (300 * seconds(length));
      EXPECT_NEAR(error, expected, 0.15) << window << ' ' << length;  // -4.40 and -0.80 % at 10 s
    }
  }
}

TEST(PowerSensor, ThatChargesLikeACapacitorRisesExponentially) {
  const FixedTruth truth = burst(2 * kSecond);
  PowerSensor s = sensor(15 * kMs, 0, 0);
  s.kind = PowerSensor::Kind::exponential;
  s.tau = 0.5;
  for (int k = 1; k < 133; ++k) {
    const double expected = 60 + 240 * (1 - std::exp(-0.015 * k / 0.5));
    EXPECT_NEAR(s.read(truth, k * 15 * kMs + 1), expected, 1.1e-3) << k;
  }
  // After the burst it decays from where it was.
  const double top = 240 * (1 - std::exp(-2 / 0.5));
  EXPECT_NEAR(s.read(truth, 200 * 15 * kMs), 60 + top * std::exp(-1 / 0.5), 1.1e-3);
  EXPECT_NEAR(naive_error(truth, s, 2 * kSecond, 5 * kMs), -19.88, 0.05);
}

TEST(PowerSensor, HasItsGainAndOffset) {
  PowerSensor s = sensor(100 * kMs, 0, 25 * kMs);
  s.gain = 0.954;
  s.offset = -1.18;
  EXPECT_NEAR(s.read(FixedTruth(Steps::constant(250)), kSecond), 237.32, 1.1e-3);
  EXPECT_NEAR(s.read(FixedTruth(Steps::constant(60)), kSecond), 56.06, 1.1e-3);
}

TEST(PowerSensor, ShowsAValueOnlyAfterItsDelay) {
  const FixedTruth truth = burst(kSecond);
  PowerSensor s = sensor(100 * kMs, 0, 0);
  s.comb.delay = 30 * kMs;
  EXPECT_NEAR(s.read(truth, 29 * kMs), 60, 1e-9);
  EXPECT_NEAR(s.read(truth, 30 * kMs), 300, 1e-9);
}

TEST(Comb, WithJitterStaysWithinItAndNeverRunsBackwards) {
  const Comb c{100 * kMs, 3 * kMs, 0, 40 * kMs, 7};
  std::int64_t before = c.last(-kSecond);
  bool moved = false;
  for (Ns t = -kSecond; t < 10 * kSecond; t += kMs) {
    const std::int64_t k = c.last(t);
    EXPECT_GE(k, before);
    EXPECT_LE(c.tick(k), t);
    EXPECT_GT(c.tick(k + 1), t);
    EXPECT_LE(std::abs(c.tick(k) - (3 * kMs + k * 100 * kMs)), 40 * kMs);
    moved |= std::abs(c.tick(k) - (3 * kMs + k * 100 * kMs)) > 20 * kMs;
    before = k;
  }
  EXPECT_TRUE(moved);
}

TEST(Counter, IsWrongByThePowerStepTimesTheAgeOfItsLastUpdate) {
  for (const Ns length : {250 * kMs, kSecond, 10 * kSecond}) {
    const FixedTruth truth = burst(length);
    for (Ns phase = 0; phase < 100 * kMs; phase += 7 * kMs) {
      Counter c;
      c.comb = {100 * kMs, phase, 0, 0, 1};
      const auto age = [&](Ns t) { return seconds(t - c.comb.tick(c.comb.last(t))); };
      const double shown = c.read(truth, length) - c.read(truth, 0);
      const double expected = 300 * (seconds(length) - age(length)) + 60 * age(0);
      EXPECT_NEAR(shown, expected, 2.1e-3);
    }
  }
}

TEST(Counter, LosesFourPerCentOfASecondAsPublished) {
  const FixedTruth truth = burst(kSecond);
  std::vector<double> errors;
  mean_over_phases(100 * kMs, [&](Ns phase) {
    Counter c;
    c.comb = {100 * kMs, phase, 0, 0, 1};
    errors.push_back(100 * ((c.read(truth, kSecond) - c.read(truth, 0)) / 300 - 1));
    return 0.0;
  });
  const double n = static_cast<double>(errors.size());
  const double mean = std::accumulate(errors.begin(), errors.end(), 0.0) / n;
  double square = 0;
  for (const double e : errors) square += (e - mean) * (e - mean);
  EXPECT_NEAR(mean, -4.0, 0.02);                         // -240 W * 50 ms / 300 J
  EXPECT_NEAR(std::sqrt(square / (n - 1)), 2.31, 0.02);  // 240 W * 100 ms / sqrt(12) / 300 J
}

TEST(Counter, OfThirtyTwoBitsWrapsAndItsDifferenceModuloItIsTheEnergy) {
  const FixedTruth truth(Steps::constant(300));
  Counter c;
  c.comb = {kMs, 0, 0, 0, 1};
  c.quantum = std::ldexp(1.0, -14);
  c.modulus = 262144;
  c.start = 262144 - 2700;  // The wrap comes after 9 s.
  const std::uint64_t before = c.quanta(truth, 0), after = c.quanta(truth, 30 * kSecond);
  EXPECT_LT(after, before);
  EXPECT_NEAR(c.read(truth, 30 * kSecond) - c.read(truth, 0), 9000 - 262144, 1e-3);
  EXPECT_EQ((after - before) % (1ULL << 32), 9000ULL << 14);
}

TEST(Counter, FedBySamplesSharesTheirError) {
  const FixedTruth truth(Steps::square(60, 300, 100 * kMs, 0.5, 0));
  const std::pair<Ns, double> cases[] = {{0, 600}, {12'500'000, 1800}, {25 * kMs, 3000}};
  for (const auto& [phase, expected] : cases) {
    Counter c;
    c.comb = {100 * kMs, phase, 0, 0, 1};
    c.window = 25 * kMs;
    EXPECT_NEAR(c.read(truth, 11 * kSecond + phase) - c.read(truth, kSecond + phase), expected,
                2e-3);
  }
}

TEST(Counter, FreezesResetsAndSteps) {
  const FixedTruth truth(Steps::constant(100));
  Counter c;
  c.comb = {100 * kMs, 0, 0, 0, 1};
  c.start = 5000;
  CounterEvents e;
  EXPECT_NEAR(c.read(truth, 10 * kSecond, e), 6000, 1e-6);
  e.frozen_at = 4 * kSecond;
  EXPECT_NEAR(c.read(truth, 10 * kSecond, e), 5400, 1e-6);
  e = {};
  e.reset_at = 4 * kSecond;
  EXPECT_NEAR(c.read(truth, 10 * kSecond, e), 600, 1e-6);
  e = {};
  e.step = -213;
  EXPECT_NEAR(c.read(truth, 10 * kSecond, e), 5787, 1e-6);
}

TEST(Counter, DoesNotLoseAQuantumToBinaryFractions) {
  const FixedTruth truth(Steps::constant(100));
  Counter c;
  c.comb = {100 * kMs, 0, 0, 0, 1};
  c.start = 0;
  for (std::uint64_t k = 0; k < 10'000; ++k) {
    ASSERT_EQ(c.quanta(truth, static_cast<Ns>(k) * 100 * kMs), k * 10'000);
  }
}

}  // namespace
}  // namespace zeus::sim
