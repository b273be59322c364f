#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "zeus/processes.h"

namespace zeus {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Parts = std::vector<std::uint64_t>;

constexpr std::uint64_t kJoule = 1'000'000;  // In microjoules.

ProcessUse use(int pid, double sm, milliseconds at = milliseconds(1000)) { return {pid, at, sm}; }

/// "11:900 12:100 idle:0" in units of `unit` microjoules.
std::string text(const Attribution& a, std::uint64_t energy_uj, std::uint64_t unit = kJoule) {
  const auto parts = a.parts(energy_uj);
  std::string out;
  std::uint64_t sum = parts.idle_uj;
  for (const auto& p : parts.processes) {
    out += std::to_string(p.pid) + ':' + std::to_string(p.energy_uj / unit) + ' ';
    sum += p.energy_uj;
  }
  EXPECT_EQ(sum, energy_uj) << "the parts add up to the whole";
  return out + "idle:" + std::to_string(parts.idle_uj / unit);
}

TEST(Apportion, GivesSharesThatAreWholeAsTheyAre) {
  EXPECT_EQ(apportion(100, std::vector{9.0, 1.0}), (Parts{90, 10}));
  EXPECT_EQ(apportion(0, std::vector{9.0, 1.0}), (Parts{0, 0}));
  EXPECT_EQ(apportion(7, std::vector{1.0}), Parts{7});
}

// Whatever the weights: nothing is lost, nothing is made, and nobody is off by a unit.
TEST(Apportion, AddsUpExactlyAndIsAtMostOneUnitOff) {
  std::uint64_t random = 1;
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> weights;
    for (std::uint64_t i = 0; i < 1 + random % 7; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      weights.push_back(static_cast<double>(random >> 40));
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (sum == 0) continue;
    const std::uint64_t total = random >> 20;  // Up to 18 MJ in microjoules.
    const auto parts = apportion(total, weights);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}), total);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const double exact = static_cast<double>(total) * (weights[i] / sum);
      EXPECT_LT(std::abs(static_cast<double>(parts[i]) - exact), 1.01) << total;
    }
  }
}

// field failure 108
TEST(Attribution, OfTwoPodsIsNineToOneAndAddsUpToTheWhole) {
  Attribution a;
  const std::vector uses = {use(11, 0.9), use(12, 0.1)};
  a.add(1000, uses);
  EXPECT_EQ(text(a, 1000 * kJoule), "11:900 12:100 idle:0");
  EXPECT_EQ(text(a, 1000 * kJoule + 1), "11:900 12:100 idle:0");
}

// field failure 108: the total is that of the shares where they are more than the whole.
TEST(Attribution, OfKernelsSideBySideDividesByTheSumOfTheShares) {
  Attribution a;
  const std::vector uses = {use(11, 0.9), use(12, 0.9), use(13, 0.2)};
  a.add(1000, uses);
  EXPECT_EQ(text(a, 1000 * kJoule), "11:450 12:450 13:100 idle:0");
}

TEST(Attribution, LeavesToIdleWhatNobodyUsed) {
  Attribution a;
  const std::vector uses = {use(11, 0.25)};
  a.add(1000, uses);
  EXPECT_EQ(text(a, 400 * kJoule), "11:100 idle:300");
  Attribution nobody;
  nobody.add(1000, {});
  EXPECT_EQ(text(nobody, 400 * kJoule), "idle:400");
  EXPECT_EQ(text(Attribution(), 400 * kJoule), "idle:400");
}

TEST(Attribution, CountsWhoIsThereAndNeverRuns) {
  Attribution a;
  a.see(7);
  const std::vector uses = {use(11, 1)};
  a.add(1000, uses);
  EXPECT_EQ(text(a, 400 * kJoule), "7:0 11:400 idle:0");
}

// 900 J while the one ran, 100 J while nobody did: time alone would say one half.
TEST(Attribution, WeighsEachStretchByItsEnergy) {
  Attribution a;
  const std::vector uses = {use(11, 1)};
  a.add(900, uses);
  a.add(100, {});
  EXPECT_EQ(text(a, 1000 * kJoule), "11:900 idle:100");
}

// Three periods of the driver; the second process ran in one of them.
TEST(Attribution, TakesTheMeanOverThePeriodsInWhichAnythingRan) {
  Attribution a;
  const std::vector uses = {use(11, 0.6, milliseconds(1000)), use(12, 0.3, milliseconds(1003)),
                            use(11, 0.6, milliseconds(1200)), use(11, 0.6, milliseconds(1400))};
  a.add(1000, uses);
  EXPECT_EQ(text(a, 1000 * kJoule), "11:600 12:100 idle:300");
}

TEST(Attribution, LeavesOutStretchesOfUnknownEnergyAndCountsThem) {
  Attribution a;
  const std::vector first = {use(11, 1)}, second = {use(12, 1)};
  a.add(500, first);
  a.add(std::numeric_limits<double>::quiet_NaN(), second);
  EXPECT_EQ(text(a, 1000 * kJoule), "11:1000 idle:0");
  EXPECT_EQ(a.stretches(), 1u);
  EXPECT_EQ(a.left_out(), 1u);
}

}  // namespace
}  // namespace zeus
