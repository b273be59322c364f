// True power and its integral, against closed forms.

#include "sim/power.h"

#include <gtest/gtest.h>

#include <cmath>

namespace zeus::sim {
namespace {

constexpr Ns kMs = 1'000'000, kSecond = 1'000 * kMs;

TEST(Power, OfAConstantIsTheSameAtEveryTime) {
  const Steps p = Steps::constant(100);
  EXPECT_EQ(p.joules(-5 * kSecond, 5 * kSecond), 1000);
  EXPECT_EQ(p.joules(1'000'000 * kSecond, 1'000'001 * kSecond), 100);
  EXPECT_EQ(p.piece(-kSecond).watts, 100);
}

TEST(Power, OfASquareWaveIsItsDutyOverWholePeriods) {
  const Steps p = Steps::square(60, 300, 100 * kMs, 0.25, 0);
  EXPECT_NEAR(p.joules(0, 10 * kSecond), (60 * 0.75 + 300 * 0.25) * 10, 1e-9);
  EXPECT_NEAR(p.joules(-10 * kSecond, 0), (60 * 0.75 + 300 * 0.25) * 10, 1e-9);
  EXPECT_NEAR(p.joules(0, 25 * kMs), 300 * 0.025, 1e-12);
  EXPECT_NEAR(p.joules(25 * kMs, 100 * kMs), 60 * 0.075, 1e-12);
}

TEST(Power, OfASquareWaveRisesAtItsPhase) {
  const Steps p = Steps::square(60, 300, 100 * kMs, 0.5, 30 * kMs);
  EXPECT_EQ(p.piece(30 * kMs - 1).watts, 60);
  EXPECT_EQ(p.piece(30 * kMs).watts, 300);
  EXPECT_EQ(p.piece(80 * kMs).watts, 60);
  EXPECT_EQ(p.piece(-70 * kMs).watts, 300);
}

TEST(Power, OfALimitIsTheSmallerOfBothInEachStep) {
  const Steps p = Steps::square(60, 300, 100 * kMs, 0.5, 0);
  EXPECT_NEAR(p.joules(0, 10 * kSecond, 200), (60 + 200) / 2.0 * 10, 1e-9);
  EXPECT_NEAR(p.joules(0, 10 * kSecond, 50), 50 * 10, 1e-9);
  EXPECT_NEAR(p.joules(0, 10 * kSecond, 1000), (60 + 300) / 2.0 * 10, 1e-9);
}

TEST(Power, OfLevelsThatDoNotRepeatHoldsTheFirstBeforeAndTheLastAfter) {
  const Steps p({{kSecond, 10}, {2 * kSecond, 20}, {kSecond, 30}}, false);
  EXPECT_NEAR(p.joules(-kSecond, 5 * kSecond), 10 + 10 + 40 + 30 + 30, 1e-12);
}

TEST(Power, IntegralIsAdditiveWhereverItIsCut) {
  const Steps p({{7 * kMs, 10}, {13 * kMs, 250}, {3 * kMs, 60}}, true, 5 * kMs);
  for (const double limit : {kNoLimit, 100.0}) {
    const Ns a = -50 * kMs, b = 211 * kMs;
    const double all = p.joules(a, b, limit);
    for (Ns cut = a; cut <= b; cut += kMs / 2) {
      EXPECT_NEAR(p.joules(a, cut, limit) + p.joules(cut, b, limit), all, 1e-9) << cut;
    }
  }
}

}  // namespace
}  // namespace zeus::sim
