#include "measure/alias.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "support/allocations.h"

namespace zeus {
namespace {

constexpr Instant kStart = Instant{} + std::chrono::hours(1);

Instant after(double s) { return kStart + Duration(std::llround(s * 1e9)); }

std::vector<Instant> marks(double period_s, std::size_t n) {
  std::vector<Instant> all;
  for (std::size_t k = 0; k < n; ++k) all.push_back(after(static_cast<double>(k) * period_s));
  return all;
}

Comb comb(double period_s, double phase_s = 0) {
  Comb c{.period_s = period_s};
  c.phase_s = phase_s;
  c.origin = kStart;
  return c;
}

// Specification of accuracy, T9.
TEST(Rayleigh, TellsABeatFromItsFirstIterations) {
  const Rayleigh first = rayleigh(marks(0.104338, 19), comb(0.10125));
  EXPECT_NEAR(first.r, 0.533, 0.0005);
  EXPECT_NEAR(first.p, 0.0045, 0.00005);
  EXPECT_EQ(first.n, 19u);
  EXPECT_NEAR(rayleigh(marks(0.104338, 95), comb(0.10125)).r, 0.035, 0.0005);
  EXPECT_LE(rayleigh(marks(0.075, 26), comb(0.1)).r, 0.0545);
}

// A geometric sum: |sin(pi n x) / (n sin(pi x))| for marks x of a period apart.
TEST(Rayleigh, IsAGeometricSumForRegularMarks) {
  for (const double x : {0.01, 0.1, 0.37, 0.5, 1.03, 7.25}) {
    for (const std::size_t n : {2u, 5u, 40u}) {
      const double expected = std::abs(std::sin(std::numbers::pi * static_cast<double>(n) * x) /
                                       (static_cast<double>(n) * std::sin(std::numbers::pi * x)));
      EXPECT_NEAR(rayleigh(marks(0.1 * x, n), comb(0.1, 0.033)).r, expected, 1e-6) << x << ' ' << n;
    }
  }
}

TEST(Rayleigh, IsCertainOfALockedLoadAndKnowsNothingWithoutMarks) {
  const Rayleigh locked = rayleigh(marks(0.1, 20), comb(0.1, 0.07));
  EXPECT_NEAR(locked.r, 1, 1e-9);
  EXPECT_LT(locked.p, 1e-8);
  EXPECT_EQ(rayleigh({}, comb(0.1)).p, 1);
  EXPECT_EQ(rayleigh(marks(0.1, 5), Comb{}).p, 1);
  EXPECT_NEAR(rayleigh(marks(0.1, 1), comb(0.1)).r, 1, 1e-12);
}

// At random phases p is uniform, so that 1 % of the runs fall below 0.01.
TEST(Rayleigh, HasTheProbabilityThatItSays) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> phase(0, 1000);
  int below = 0;
  constexpr int kRuns = 5000;
  for (int i = 0; i < kRuns; ++i) {
    std::vector<Instant> all;
    for (int k = 0; k < 30; ++k) all.push_back(after(phase(random)));
    below += rayleigh(all, comb(0.1)).p < 0.05 ? 1 : 0;
  }
  EXPECT_NEAR(below / double{kRuns}, 0.05, 0.01);
}

TEST(Iterations, AreTheMedianAndTheDeviationFromAGrid) {
  const Iterations even = iterations(marks(0.25, 100));
  EXPECT_NEAR(even.period_s, 0.25, 1e-9);
  EXPECT_LT(even.jitter_s, 1e-9);

  // Every second mark late by 10 ms: intervals of 260 and 240 ms, 5 ms off a grid of 250 ms.
  auto uneven = marks(0.25, 1001);
  for (std::size_t k = 1; k < uneven.size(); k += 2) uneven[k] += std::chrono::milliseconds(10);
  EXPECT_NEAR(iterations(uneven).period_s, 0.25, 1e-9);
  EXPECT_NEAR(iterations(uneven).jitter_s, 0.005, 1e-5);

  // One long pause does not move the median.
  auto paused = marks(0.25, 100);
  for (std::size_t k = 50; k < paused.size(); ++k) paused[k] += std::chrono::seconds(5);
  EXPECT_NEAR(iterations(paused).period_s, 0.25, 1e-9);
  EXPECT_GT(iterations(paused).jitter_s, 0.5);
}

TEST(Iterations, OfVeryManyMarksAreThinnedEvenly) {
  auto many = marks(0.1, 100'000);
  for (std::size_t k = 60'000; k < many.size(); ++k) {  // Twice as fast from there.
    many[k] = after(6000 + 0.05 * static_cast<double>(k - 60'000));
  }
  EXPECT_NEAR(iterations(many).period_s, 0.1, 1e-9);
}

TEST(Iterations, AreUnknownWithTooFewMarksOrNoTimeBetweenThem) {
  EXPECT_EQ(iterations({}).period_s, 0);
  EXPECT_EQ(iterations(marks(0.1, 2)).period_s, 0);
  EXPECT_EQ(iterations(marks(0, 10)).period_s, 0);
  EXPECT_EQ(iterations(marks(0, 10)).jitter_s, 0);
}

// Per cent of the mean of a load that is at 300 W for half of its period and at 60 W for the other,
// seen for 25 ms of each 100 ms, with the edges of the specification's table (section 7).
double per_cent(double load_s, double length_s) {
  const double edges = 240 * 0.1 / 2 / std::sqrt(3.0) / std::sqrt(2.0);
  return 100 * std::hypot(u_alias(0.1, 0.025, length_s, load_s, 240, 0, 0), edges) /
         (180 * length_s);
}

TEST(AliasUncertainty, IsThatOfTheSpecification) {
  EXPECT_NEAR(per_cent(0.1, 1), 58.4, 0.05);
  EXPECT_NEAR(per_cent(0.103, 10), 1.96, 0.005);
  EXPECT_NEAR(per_cent(0.104338, 1), 41.1, 0.05);
  EXPECT_NEAR(per_cent(0.2, 10), 29, 0.5);
}

// Joules by the specification's reference model in Python.
TEST(AliasUncertainty, IsThatOfTheReferenceModel) {
  EXPECT_NEAR(u_alias(0.1, 0.025, 1, 0.075, 240, 0, 0), 7.7532, 1e-4);
  EXPECT_NEAR(u_alias(0.1, 0.025, 10, 0.01, 240, 0, 0), 140.1139, 1e-4);
  EXPECT_NEAR(u_alias(0.1, 0.025, 1, 0.8, 240, 0, 0), 13.8928, 1e-4);
  EXPECT_NEAR(u_alias(0.1, 0.025, 3, 0.0731, 240, 0, 0), 2.0104, 1e-4);
  EXPECT_NEAR(u_alias(0.02, 0.0105, 2.5, 0.031, 180, 0.001, 33), 1.5316055, 1e-6);
  EXPECT_NEAR(u_alias(0.10125, 0.025, 5, 0.7, 300, 0.01, 70), 46.4178417, 1e-6);
  EXPECT_NEAR(slowest_beat(0.1, 0.025, 0.103), 3.4333333, 1e-6);
  EXPECT_NEAR(slowest_beat(0.1, 0.025, 0.075), 0.3, 1e-9);
  EXPECT_NEAR(slowest_beat(0.1, 0.025, 0.0731), 0.37875648, 1e-6);
}

// A sensor that looks at an instant, and a locked load: harmonic m has rms dP sqrt(2) / (m pi), and
// sum 1/m^2 = pi^2 / 6.
TEST(AliasUncertainty, OfALockedLoadIsASumOfHarmonics) {
  const double all = 240 * std::sqrt(2.0) / std::numbers::pi * std::sqrt(1.0225) *
                     std::sqrt(std::numbers::pi * std::numbers::pi / 6 - 1 / 32.5);
  EXPECT_NEAR(u_alias(0.1, 0, 10, 0.1, 240, 0, 0), 10 * all, 0.01);
}

TEST(AliasUncertainty, GrowsWithTheJitterOfTheMarks) {
  const double regular = u_alias(0.1, 0.025, 10, 0.075, 240, 0, 50);
  const double irregular = u_alias(0.1, 0.025, 10, 0.075, 240, 0.05, 50);
  EXPECT_EQ(regular, u_alias(0.1, 0.025, 10, 0.075, 240, 0, 0));
  EXPECT_NEAR(irregular, std::hypot(regular, u_random(0.1, 0.025, 10, 50)), 1e-9);
  EXPECT_NEAR(u_alias(0.1, 0.025, 10, 0.075, 240, 0.0125, 50),
              std::hypot(regular, u_random(0.1, 0.025, 10, 50) / 2), 1e-9);
}

TEST(AliasUncertainty, IsZeroWithoutALoadAndFiniteForAnyOther) {
  EXPECT_EQ(u_alias(0.1, 0.025, 10, 0, 240, 0, 0), 0);
  EXPECT_EQ(u_alias(0, 0.025, 10, 0.1, 240, 0, 0), 0);
  EXPECT_EQ(u_alias(0.1, 0.025, 0, 0.1, 240, 0, 0), 0);
  for (const double load : {1e-6, 1e-3, 1.0, 1e3, 1e9}) {
    const double u = u_alias(0.1, 0.025, 10, load, 240, 1, 50);
    EXPECT_TRUE(std::isfinite(u) && u >= 0) << load;
  }
}

TEST(RandomUncertainty, IsTheRootOfTheUnseenTime) {
  EXPECT_DOUBLE_EQ(u_random(0.1, 0.025, 10, 40), 40 * std::sqrt(0.075 * 0.1) * std::sqrt(10 / 0.1));
  EXPECT_EQ(u_random(0.1, 0.1, 10, 40), 0);
  EXPECT_EQ(u_random(0.1, 1, 10, 40), 0);
}

TEST(SlowestBeat, IsTheDifferenceOfTheFrequencies) {
  EXPECT_NEAR(slowest_beat(0.10125, 0.025, 0.104338), 1 / (1 / 0.10125 - 1 / 0.104338), 1e-9);
  EXPECT_EQ(slowest_beat(0.1, 0.025, 0.1), std::numeric_limits<double>::infinity());
  EXPECT_EQ(slowest_beat(0.1, 0.025, 10), 0);  // Its harmonics beyond 5 Hz are below 5 %.
  EXPECT_EQ(slowest_beat(0.1, 0.1, 0.1), 0);   // A mean over whole updates hides a locked load.
  EXPECT_EQ(slowest_beat(0, 0, 0), 0);
}

TEST(Alias, AllocatesNothing) {
  const auto all = marks(0.1, 5000);
  const auto before = test::allocations();
  rayleigh(all, comb(0.1));
  iterations(all);
  slowest_beat(0.1, 0.025, u_alias(0.1, 0.025, 10, 0.1, 240, 0, 0));
  EXPECT_EQ(test::allocations(), before);
}

}  // namespace
}  // namespace zeus
