#include "measure/history.h"

#include <gtest/gtest.h>

#include <cmath>

namespace zeus {
namespace {

using std::chrono::milliseconds;

Instant at(double seconds) {
  return Instant{} + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

SensorInfo power() {
  SensorInfo info;
  info.name = "power";
  info.quantity = Quantity::power;
  info.scale = 1e-3;
  info.profile.update = milliseconds(100);
  return info;
}

/// Polled every 100 ms from `from` on, `count` times.
void poll(History& history, double from, int count, std::uint64_t raw) {
  for (int i = 0; i < count; ++i) history.add({at(from + i * 0.1), raw});
}

TEST(History, IntegratesConstantPowerThoughNoReadingChanges) {
  History history(power(), milliseconds(100));
  poll(history, 0, 101, 100'000);
  const auto e = history.integral(at(0), at(10));
  EXPECT_NEAR(e.value, 1000, 1e-9);
  EXPECT_NEAR(e.covered_s, 10, 1e-9);
  EXPECT_EQ(e.u, 0);  // No change and no gain: nothing is uncertain.
  EXPECT_EQ(history.size(), 1u);
  EXPECT_NEAR(history.integral(at(2), at(9)).value, 700, 1e-9);
}

TEST(History, HoldsAValueUntilTheNextOneInsteadOfDrawingALineToIt) {
  History history(power(), milliseconds(100));
  poll(history, 0, 100, 100'000);
  poll(history, 10, 1, 300'000);
  poll(history, 10.1, 10, 100'000);
  EXPECT_NEAR(history.integral(at(0), at(10.1)).value, 1000 + 30, 1e-6);
  EXPECT_EQ(history.at(at(6)), 100);
  EXPECT_EQ(history.at(at(10.05)), 300);
  // Two changes of 200 W, each somewhere in 100 ms of update and 100 ms of poll distance.
  EXPECT_NEAR(history.integral(at(0), at(11)).u, 200 * 0.2 / std::sqrt(12) * std::sqrt(2), 1e-9);
}

TEST(History, SaysThatAMeanOfTheLastSecondSeesARiseLate) {
  SensorInfo info = power();
  info.profile.window = std::chrono::seconds(1);
  History history(info, milliseconds(100));
  poll(history, 0, 50, 100'000);
  poll(history, 5, 50, 300'000);
  const double change = 200 * 0.2 / std::sqrt(12), lag = 200 * 1.2 / std::sqrt(3);
  EXPECT_NEAR(history.integral(at(0), at(9)).u, std::hypot(change, lag), 1e-9);
  EXPECT_EQ(history.integral(at(6), at(9)).u, 0);
}

TEST(History, CoversNothingThatNoReadingStandsFor) {
  History history(power(), milliseconds(100));
  EXPECT_TRUE(std::isnan(history.integral(at(0), at(1)).value));
  EXPECT_FALSE(history.at(at(0)));
  poll(history, 5, 11, 100'000);
  EXPECT_TRUE(std::isnan(history.integral(at(0), at(4)).value));
  EXPECT_FALSE(history.at(at(4.9)));
  const auto early = history.integral(at(4), at(6));
  EXPECT_NEAR(early.covered_s, 1, 1e-9);
  EXPECT_NEAR(early.value, 100, 1e-9);
  // The poller died at 6 s: the value stands for the patience of 250 ms, no longer.
  const auto late = history.integral(at(6), at(8));
  EXPECT_NEAR(late.covered_s, 0.25, 1e-9);
  EXPECT_NEAR(late.value, 25, 1e-9);
  EXPECT_TRUE(std::isnan(history.integral(at(7), at(8)).value));
  EXPECT_EQ(history.at(at(6.2)), 100);
  EXPECT_FALSE(history.at(at(6.3)));
}

TEST(History, LeavesAHoleWhereAReadingFailed) {
  History history(power(), milliseconds(100));
  poll(history, 0, 11, 100'000);
  history.add({at(1.1), 0, Errc::lost});
  history.add({at(1.2), 0, Errc::lost});
  EXPECT_EQ(history.why(), Errc::lost);
  EXPECT_NEAR(history.integral(at(0), at(2)).covered_s, 1.1, 1e-9);
  poll(history, 3, 11, 100'000);
  const auto e = history.integral(at(0), at(4));
  EXPECT_NEAR(e.covered_s, 1.1 + 1, 1e-9);
  EXPECT_NEAR(e.value, 210, 1e-9);
  EXPECT_EQ(history.failures(), 2u);
  EXPECT_EQ(history.why(), Errc::ok);
  EXPECT_FALSE(history.at(at(2)));
}

TEST(History, KeepsTheNewestRunsWhereNotAllAreWanted) {
  History history(power(), milliseconds(100), 3);
  for (int i = 0; i < 10; ++i) poll(history, i * 0.1, 1, 100'000 + static_cast<unsigned>(i));
  EXPECT_EQ(history.size(), 3u);
  EXPECT_FALSE(history.at(at(0.65)));
  EXPECT_NEAR(history.integral(at(0), at(0.9)).covered_s, 0.2, 1e-9);
}

TEST(History, TellsTheGainOfItsSensor) {
  SensorInfo info = power();
  info.profile.gain_u = 0.05;
  History history(info, milliseconds(100));
  poll(history, 0, 101, 100'000);
  EXPECT_NEAR(history.integral(at(0), at(10)).u, 50, 1e-9);
}

}  // namespace
}  // namespace zeus
