#include "guard.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace zeus::zeusd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

Guard::Told reading(std::uint64_t count) {
  Guard::Told told;
  told.package.count = count;
  told.package.error = Errc::ok;
  return told;
}

// However they are asked for: 10 a second over any minute, and one that was early.
TEST(Guard, TellsTenReadingsASecondAtTheMost) {
  Guard guard;
  std::mt19937 random(1);
  const Instant begin{seconds(1000)};
  Instant now = begin;
  std::set<std::uint64_t> told;
  for (std::uint64_t i = 0; now < begin + seconds(60); ++i) {
    now += microseconds(random() % 40'000);
    told.insert(guard.tell(0, reading(i), now).package.count);
  }
  EXPECT_LE(told.size(), 601U);
  EXPECT_GT(told.size(), 400U);
}

TEST(Guard, TellsEveryReadingOfAPollerWhoseTimerIsLateAtTimes) {
  Guard guard;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Instant now = Instant(seconds(1000)) + i * Guard::kPeriod + milliseconds(i % 3);
    EXPECT_EQ(guard.tell(0, reading(i), now).package.count, i);
  }
}

TEST(Guard, TellsTheSameUntilTheNextIsDueAndOfEachProcessorItsOwn) {
  Guard guard;
  const Instant now{seconds(1000)};
  EXPECT_FALSE(guard.kept(0, now));
  EXPECT_EQ(guard.tell(0, reading(7), now).package.count, 7U);
  EXPECT_EQ(guard.tell(0, reading(8), now + milliseconds(50)).package.count, 7U);
  EXPECT_EQ(guard.kept(0, now + milliseconds(50))->package.count, 7U);
  EXPECT_EQ(guard.tell(1, reading(9), now).package.count, 9U);
  EXPECT_FALSE(guard.kept(0, now + Guard::kPeriod));
  EXPECT_EQ(guard.tell(0, reading(10), now + Guard::kPeriod).package.count, 10U);
}

}  // namespace
}  // namespace zeus::zeusd
