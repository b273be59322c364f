// The arithmetic of the check, against closed forms and simulated sensors in virtual time.

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <random>

#include "gpu_check/check.h"
#include "support/polls.h"

namespace zeus::check {
namespace {

constexpr sim::Ns kMs = 1'000'000;
constexpr double kUpdate_s = 0.1, kHigh_w = 700, kLow_w = 100;
constexpr Levels kLevels{kHigh_w, kLow_w};

/// What a sensor with that window shows of eight runs, `noise_w` apart.
std::vector<PhaseRun> runs_of(double window, double noise_w = 0, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, 1);
  std::vector<PhaseRun> out;
  for (int i = 0; i < 8; ++i) {
    const double phase = 0.03 + i * 0.6180339887498949;
    const double share = high_share(phase - 0.21, window, 0.5);
    out.push_back(
        {phase, kLow_w + (kHigh_w - kLow_w) * share + noise_w * noise(random), 1e-4, 10.0 * i});
  }
  return out;
}

/// The same by a simulated counter, polled every millisecond for two seconds a run.
std::vector<PhaseRun> simulated_runs(sim::Ns window) {
  std::vector<PhaseRun> out;
  for (int i = 0; i < 8; ++i) {
    const sim::Ns rise = std::llround(i * 61.80339887) * kMs;
    const test::FixedTruth truth(sim::Steps::square(kLow_w, kHigh_w, 100 * kMs, 0.5, rise));
    sim::Counter counter;
    counter.comb = {100 * kMs, 13 * kMs, 0, 0, 1};
    counter.window = window;
    std::vector<Sample> polls;
    for (sim::Ns t = 500 * kMs; t < 2500 * kMs; t += kMs) {
      polls.push_back(test::sample(t, counter.quanta(truth, t)));
    }
    const auto mean = mean_of_counter(polls, counter.quantum, kUpdate_s);
    const auto p = phase(changes(polls), test::sample(rise, 0).at(), kUpdate_s);
    if (!mean || !p) ADD_FAILURE() << "run " << i;
    if (mean && p) out.push_back({*p, mean->watts, mean->u_w, 10.0 * i});
  }
  return out;
}

TEST(HighShare, IsATrapezoidOfThePhase) {
  // Half a period high, a quarter looked at: the rise takes a quarter, then it is all high.
  EXPECT_NEAR(high_share(0, 0.25, 0.5), 0, 1e-12);
  EXPECT_NEAR(high_share(0.125, 0.25, 0.5), 0.5, 1e-12);
  EXPECT_NEAR(high_share(0.25, 0.25, 0.5), 1, 1e-12);
  EXPECT_NEAR(high_share(0.5, 0.25, 0.5), 1, 1e-12);
  EXPECT_NEAR(high_share(0.55, 0.25, 0.5), 0.8, 1e-12);
  EXPECT_NEAR(high_share(7.75, 0.25, 0.5), 0, 1e-12);
  for (double p = -1; p < 1; p += 0.07) EXPECT_NEAR(high_share(p, 1, 0.3), 0.3, 1e-12);
}

TEST(HighShare, HasTheFirstHarmonicOfASquareTimesThatOfItsWindow) {
  for (const double duty : {0.5, 0.3}) {
    for (const double window : {0.01, 0.25, 0.5, 0.8, 1.0}) {
      constexpr int kSteps = 20000;
      std::complex<double> sum = 0;
      for (int i = 0; i < kSteps; ++i) {
        const double p = (i + 0.5) / kSteps;
        sum += (2 * high_share(p, window, duty) - 1) *
               std::polar(2.0 / kSteps, 2 * std::numbers::pi * p);
      }
      EXPECT_NEAR(first_harmonic(window, duty), std::abs(sum), 1e-6) << window << ' ' << duty;
    }
  }
}

TEST(Coverage, TellsTheWindowOfASimulatedCounter) {
  for (const double window : {0.25, 0.5}) {
    const auto runs = simulated_runs(std::llround(100 * window) * kMs);
    const Coverage c = tell_coverage(runs, kLevels, 0.5);

    EXPECT_EQ(c.verdict, Verdict::sampled) << c.why;
    EXPECT_NEAR(c.window, window, 0.02);
    EXPECT_LE(c.low, window);
    EXPECT_GE(c.high, window);
    // Eight phases also hold the seventh harmonic and beyond.
    EXPECT_NEAR(c.amplitude, first_harmonic(window, 0.5), 0.1);
  }
}

TEST(Coverage, OfACounterThatSeesAllOfTheTimeIsFull) {
  for (const sim::Ns window : {sim::Ns{0}, 100 * kMs}) {
    const Coverage c = tell_coverage(simulated_runs(window), kLevels, 0.5);

    EXPECT_EQ(c.verdict, Verdict::full) << c.why << c.low;
    EXPECT_NEAR(c.mean_w, 400, 0.1);
    EXPECT_NEAR(c.expected_w, 400, 1e-9);
    EXPECT_NEAR(c.swing_w, 600, 0.2);
    EXPECT_LT(c.amplitude, 1e-3);
  }
}

TEST(Coverage, DoesNotNeedTheIdlePowerBetweenTheBursts) {
  // At rest it draws 40 W, between bursts still 100 W.
  const Coverage c = tell_coverage(runs_of(0.25), {kHigh_w, 40}, 0.5);

  EXPECT_EQ(c.verdict, Verdict::sampled) << c.why;
  EXPECT_NEAR(c.swing_w, 600, 6);
  EXPECT_NEAR(c.window, 0.25, 0.03);
}

TEST(Coverage, TakesASteadyDriftOff) {
  auto runs = runs_of(1);
  for (PhaseRun& r : runs) r.watts += 0.2 * (r.at_s - 35);  // 14 W while it warms up.

  EXPECT_EQ(tell_coverage(runs, kLevels, 0.5).verdict, Verdict::full);
}

TEST(Coverage, HoldsTheTruthInItsIntervalUnderNoise) {
  constexpr int kTrials = 60;
  for (const double window : {0.25, 0.6, 1.0}) {
    int held = 0;
    double width = 0;
    for (unsigned i = 0; i < kTrials; ++i) {
      const Coverage c = tell_coverage(runs_of(window, 6, i), kLevels, 0.5);
      held += c.low <= window && window <= c.high ? 1 : 0;
      width += (c.high - c.low) / kTrials;
    }
    EXPECT_GE(held, 53) << window;  // Of 57 expected, sd 1.7.
    EXPECT_LT(width, 0.25) << window;
  }
}

TEST(Coverage, CannotBeToldUnderMuchNoise) {
  const Coverage c = tell_coverage(runs_of(1, 100), kLevels, 0.5);

  EXPECT_EQ(c.verdict, Verdict::unknown);
  EXPECT_NE(c.why.find("scatter"), std::string::npos) << c.why;
}

TEST(Coverage, CannotBeToldWithoutALoadThatFollows) {
  EXPECT_NE(tell_coverage(runs_of(1), {kHigh_w, 690}, 0.5).why.find("5 %"), std::string::npos);
  std::vector<PhaseRun> idle = runs_of(1);
  for (PhaseRun& r : idle) r.watts = kHigh_w - 1;  // The GPU never rested.
  EXPECT_NE(tell_coverage(idle, kLevels, 0.5).why.find("did not follow"), std::string::npos);
  EXPECT_NE(tell_coverage(std::span(idle).first(5), kLevels, 0.5).why.find("six"),
            std::string::npos);
}

TEST(Judge, BelievesTheWorstOfTheSeries) {
  const auto series = [](Verdict v, double period_s) {
    Series s;
    s.period_s = period_s;
    s.sensors.push_back({"energy", {}, {}});
    s.sensors.back().coverage.verdict = v;
    return s;
  };
  const Series full = series(Verdict::full, 0.1), unknown = series(Verdict::unknown, 0.2),
               sampled = series(Verdict::sampled, 0.3);

  EXPECT_EQ(judge({full, unknown}, "energy").coverage.verdict, Verdict::unknown);
  EXPECT_EQ(judge({full, sampled}, "energy").period_s, 0.3);
  EXPECT_EQ(judge({full}, "energy").coverage.verdict, Verdict::full);
  EXPECT_EQ(judge({full}, "other").coverage.verdict, Verdict::unknown);
}

TEST(Polls, PercentilesAreNearestRanks) {
  std::vector<double> values;
  for (int i = 200; i > 0; --i) values.push_back(i);
  const Percentiles p = percentiles(values);

  EXPECT_EQ(p.n, 200u);
  EXPECT_EQ(p.p50, 100);
  EXPECT_EQ(p.p90, 180);
  EXPECT_EQ(p.p99, 198);
  EXPECT_EQ(p.max, 200);
  EXPECT_TRUE(std::isnan(percentiles({}).p50));
}

TEST(Polls, ACounterTellsItsMeanOverWholeUpdates) {
  // 10 J every 100 ms, polled every 30 ms: 100 W, whenever the polls begin.
  for (sim::Ns begin = 0; begin < 100; begin += 17) {
    std::vector<Sample> polls;
    for (sim::Ns t = begin; t < 2000; t += 20) {
      polls.push_back(test::sample(t * kMs, static_cast<std::uint64_t>(t / 100 * 10'000)));
    }
    const auto mean = mean_of_counter(polls, 1e-3, 0.1);
    ASSERT_TRUE(mean);
    EXPECT_NEAR(mean->watts, 100, 1e-9) << begin;
  }
  EXPECT_FALSE(mean_of_counter({}, 1e-3, 0.1));
}

TEST(Polls, AChangeThatWasSeenLateDoesNotMiscountUpdates) {
  std::vector<Sample> polls;
  for (sim::Ns t = 5; t < 2000; t += 10) {
    if (t > 80 && t < 390) continue;  // The first changes come in one bracket of 310 ms.
    polls.push_back(test::sample(t * kMs, static_cast<std::uint64_t>(t / 100 * 10'000)));
  }
  EXPECT_NEAR(mean_of_counter(polls, 1e-3, 0.1)->watts, 100, 1e-9);
}

TEST(Polls, ALevelCountsAsLongAsItWasSeen) {
  const std::vector<Sample> polls = {test::sample(0, 100), test::sample(10 * kMs, 200),
                                     test::sample(40 * kMs, 50)};
  EXPECT_NEAR(mean_of_level(polls, 1)->watts, 175, 1e-9);
}

TEST(Polls, TicksThatDoNotAgreeHaveNoPhase) {
  const Instant origin = test::sample(0, 0).at();
  const auto tick = [&](double s) {
    const Instant t = origin + Duration(std::llround(s * 1e9));
    return Tick{t, t, 0};
  };
  const std::vector<Tick> locked = {tick(0.52), tick(0.72), tick(0.92)};
  const std::vector<Tick> loose = {tick(0), tick(0.26), tick(0.52)};

  EXPECT_NEAR(phase(locked, origin, 0.2).value(), 0.6, 1e-9);
  EXPECT_FALSE(phase(loose, origin, 0.2));
  EXPECT_FALSE(phase({}, origin, 0.2));
}

TEST(Polls, ChangesComeTogetherWhereTheirBracketsMeet) {
  const Instant origin = test::sample(0, 0).at();
  const auto tick = [&](int begin, int end) {
    return Tick{origin + Duration(begin * kMs), origin + Duration(end * kMs), 0};
  };
  const std::vector<Tick> a = {tick(0, 2), tick(100, 102), tick(200, 202), tick(300, 302)};
  const std::vector<Tick> b = {tick(1, 3), tick(150, 151), tick(202, 204)};

  EXPECT_EQ(together(a, b), 0.5);
  EXPECT_EQ(together({}, b), 0);
}

}  // namespace
}  // namespace zeus::check
