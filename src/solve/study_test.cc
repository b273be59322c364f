#include "solve/study.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace zeus::solve {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Two commands whose logarithms are these, in blocks of two.
std::vector<Outcome> of_logs(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<Outcome> out;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const auto place = static_cast<double>(2 * i);
    if (i < a.size()) out.push_back({.command = 0, .block = i, .value = std::exp(a[i])});
    if (i < b.size()) out.push_back({.command = 1, .block = i, .value = std::exp(b[i])});
    for (std::size_t k = 2 * i; k < out.size(); ++k) {
      out[k].place = place + static_cast<double>(k - 2 * i);
    }
  }
  return out;
}

// Student's own data of 1908 (The probable error of a mean): hours of sleep gained on two drugs.
const std::vector<double> kDrug1 = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
const std::vector<double> kDrug2 = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};

TEST(Schedule, OfRandomBlocksHoldsEveryCommandOnceABlock) {
  const auto turns = schedule(5, 40, Order::random, 7);
  ASSERT_EQ(turns.size(), 200u);
  for (std::size_t block = 0; block < 40; ++block) {
    std::set<std::size_t> commands;
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(turns[block * 5 + i].block, block);
      commands.insert(turns[block * 5 + i].command);
    }
    EXPECT_EQ(commands.size(), 5u);
  }
}

TEST(Schedule, DrawsEveryOrderOfThreeAboutEquallyOften) {
  const auto turns = schedule(3, 6000, Order::random, 1);
  std::map<std::size_t, int> seen;
  for (std::size_t i = 0; i < turns.size(); i += 3) {
    ++seen[100 * turns[i].command + 10 * turns[i + 1].command + turns[i + 2].command];
  }
  ASSERT_EQ(seen.size(), 6u);
  // 1000 of each expected; 5 standard deviations of a binomial count are 144.
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, 1000, 144) << order;
}

TEST(Schedule, IsTheSameForOneSeedAndAnotherForAnother) {
  const auto commands = [](std::uint64_t seed) {
    std::vector<std::size_t> out;
    for (const Turn& t : schedule(2, 64, Order::random, seed)) out.push_back(t.command);
    return out;
  };
  EXPECT_EQ(commands(3), commands(3));
  EXPECT_NE(commands(3), commands(4));
}

TEST(Schedule, OfTheOtherOrdersIsAsGiven) {
  const auto text = [](Order order) {
    std::string out;
    for (const Turn& t : schedule(2, 3, order, 1)) {
      out += static_cast<char>('A' + t.command);
      out += static_cast<char>('0' + t.block);
    }
    return out;
  };
  EXPECT_EQ(text(Order::interleaved), "A0B0A1B1A2B2");
  EXPECT_EQ(text(Order::sequential), "A0A1A2B0B1B2");
}

TEST(Phases, DivideTheRunsEvenlyWhereTheyCan) {
  const std::pair<std::size_t, std::size_t> cases[] = {{0, 0},  {1, 1},  {3, 3},  {5, 5},  {8, 8},
                                                       {9, 8},  {10, 5}, {12, 6}, {14, 7}, {16, 8},
                                                       {20, 5}, {22, 8}, {30, 6}, {100, 5}};
  for (const auto& [runs, n] : cases) EXPECT_EQ(phases(runs), n) << runs;
}

TEST(NextStart, IsTheNextInstantOfThePhase) {
  constexpr std::int64_t kPeriod = 100;
  EXPECT_EQ(next_start(1'000, kPeriod, 0, 4), 1'000);
  EXPECT_EQ(next_start(1'001, kPeriod, 0, 4), 1'100);
  EXPECT_EQ(next_start(1'001, kPeriod, 1, 4), 1'025);
  EXPECT_EQ(next_start(1'030, kPeriod, 1, 4), 1'125);
  EXPECT_EQ(next_start(1'030, kPeriod, 7, 4), 1'075);
  EXPECT_EQ(next_start(1'030, 0, 1, 4), 1'030);
  EXPECT_EQ(next_start(1'030, kPeriod, 1, 0), 1'030);
  for (std::int64_t now = 0; now < 300; ++now) {
    const auto start = next_start(now, kPeriod, 2, 3);
    EXPECT_EQ(start % kPeriod, 67);  // 66.7
    EXPECT_GE(start, now);
    EXPECT_LT(start, now + kPeriod);
  }
}

// What R 4 prints for t.test(extra ~ group, data = sleep, paired = TRUE) and without paired.
TEST(Compare, OfBlocksIsThePairedTest) {
  const auto c = compare(of_logs(kDrug1, kDrug2), 0, 1, Order::random);

  EXPECT_TRUE(c.paired);
  EXPECT_EQ(c.n, 10u);
  EXPECT_NEAR(c.log_ratio.value / c.log_ratio.u, -4.0621, 5e-5);
  EXPECT_NEAR(c.log_ratio.freedom, 9, 1e-9);
  EXPECT_NEAR(c.p(), 0.002833, 5e-7);
  EXPECT_NEAR(std::log(c.interval(0.95)[0]), -2.4598858, 5e-8);
  EXPECT_NEAR(std::log(c.interval(0.95)[1]), -0.7001142, 5e-8);
  EXPECT_NEAR(c.ratio(), std::exp(-1.58), 1e-12);
}

TEST(Compare, OfASequenceIsWelchsTest) {
  const auto c = compare(of_logs(kDrug1, kDrug2), 0, 1, Order::sequential);

  EXPECT_FALSE(c.paired);
  EXPECT_NEAR(c.log_ratio.value / c.log_ratio.u, -1.8608, 5e-5);
  EXPECT_NEAR(c.log_ratio.freedom, 17.776, 5e-4);
  EXPECT_NEAR(c.p(), 0.07939, 5e-6);
  EXPECT_NEAR(std::log(c.interval(0.95)[0]), -3.3654832, 5e-8);
  EXPECT_NEAR(std::log(c.interval(0.95)[1]), 0.2054832, 5e-8);
}

TEST(Compare, LeavesOutBlocksInWhichOneHasNoNumber) {
  auto all = of_logs({0, 0, 0, 0, 9}, {1, 2, 3, 4, 5});
  all[8].value = kNoValue;
  all.push_back({.command = 0, .block = 7, .value = 1});  // Nobody of this block to compare with.
  const auto c = compare(all, 1, 0, Order::interleaved);

  EXPECT_EQ(c.n, 4u);
  EXPECT_NEAR(c.log_ratio.value, 2.5, 1e-12);
  for (const double bad : {0.0, -1.0, kInfinity, kNoValue}) {
    EXPECT_FALSE((Outcome{.value = bad}.usable()));
  }
}

TEST(Compare, GivesNoIntervalBelowThree) {
  for (const Order order : {Order::random, Order::sequential}) {
    const auto c = compare(of_logs({0, 0.1}, {1, 1.2}), 1, 0, order);
    EXPECT_NEAR(c.log_ratio.value, 1.05, 1e-12);
    EXPECT_TRUE(std::isnan(c.interval(0.95)[0]));
    EXPECT_TRUE(std::isnan(c.p()));
    EXPECT_TRUE(std::isnan(c.detectable()));
    const auto none = compare({}, 1, 0, order);
    EXPECT_EQ(none.n, 0u);
    EXPECT_TRUE(std::isnan(none.ratio()));
  }
}

TEST(Compare, OfRunsWithoutScatterIsCertain) {
  const auto same = compare(of_logs({2, 2, 2}, {2, 2, 2}), 1, 0, Order::random);
  const auto differ = compare(of_logs({2, 2, 2}, {3, 3, 3}), 1, 0, Order::sequential);

  EXPECT_EQ(same.p(), 1);
  EXPECT_EQ(same.interval(0.95)[1], 1);
  EXPECT_EQ(differ.p(), 0);
  EXPECT_NEAR(differ.interval(0.95)[0], std::exp(1), 1e-12);
}

// accuracy.md 5.8: add, do not divide, the systematic terms. n and the scatter do not help.
TEST(Compare, AddsWhatIsCommonUndivided) {
  auto all = of_logs({0, 0.1, -0.1, 0}, {0, 0.1, -0.1, 0});
  for (Outcome& o : all) o.u_common = 0.03 * o.value;
  const auto c = compare(all, 1, 0, Order::random);

  EXPECT_NEAR(c.log_ratio.u, std::hypot(0.03, 0.03), 1e-12);  // The pairs do not scatter at all.
  EXPECT_NEAR(c.interval(0.95)[1], std::exp(1.959964 * std::hypot(0.03, 0.03)), 1e-6);

  const auto l = level_of(all, 0);
  EXPECT_NEAR(l.mean.u, std::hypot(l.summary.sd / 2, 0.03 * std::exp(0.1)), 1e-12);
  EXPECT_GT(l.mean.freedom, 3);
}

TEST(Level, AgreesWithTheSummaryWhereNothingIsCommon) {
  const std::vector<Outcome> all = {{.value = 4}, {.value = 7}, {.value = 13}, {.value = 16}};
  const auto l = level_of(all, 0);

  EXPECT_DOUBLE_EQ(l.mean.value, 10);
  EXPECT_NEAR(l.mean.interval(0.95)[1] - 10, l.summary.half_95, 1e-9);
  EXPECT_TRUE(std::isnan(level_of(std::vector<Outcome>{{.value = 4}, {.value = 5}}, 0).mean.u));
}

// What scipy 1.17.1 answers: stats.bootstrap(method="BCa", n_resamples=200000), of a skewed sample.
TEST(BootstrapRatio, AgreesWithScipy) {
  const std::vector<double> a = {20.1, 21.5, 19.8, 25.0, 20.7, 22.2, 19.9, 20.4, 28.3, 21.1};
  std::vector<double> b = {18.9, 19.7, 19.5, 21.0, 18.8, 20.9, 19.1, 18.7, 22.4, 20.2};
  const auto interval = [&](Order order) {
    std::vector<Outcome> all;
    for (std::size_t i = 0; i < a.size(); ++i) all.push_back({0, i, a[i]});
    for (std::size_t i = 0; i < b.size(); ++i) all.push_back({1, i, b[i]});
    return bootstrap_ratio(all, 0, 1, order, 40'000);
  };
  const auto paired = interval(Order::random), apart = interval(Order::sequential);
  b.resize(7);
  const auto unequal = interval(Order::sequential);

  EXPECT_NEAR(paired[0], 1.0630, 0.001);
  EXPECT_NEAR(paired[1], 1.1640, 0.002);
  EXPECT_NEAR(apart[0], 1.0293, 0.002);
  EXPECT_NEAR(apart[1], 1.2169, 0.003);
  EXPECT_NEAR(unequal[0], 1.0438, 0.002);
  EXPECT_NEAR(unequal[1], 1.2323, 0.003);
}

TEST(BootstrapRatio, IsTheSameEachTimeAndNoneBelowThree) {
  const auto all = of_logs(kDrug1, kDrug2);
  EXPECT_EQ(bootstrap_ratio(all, 0, 1, Order::random), bootstrap_ratio(all, 0, 1, Order::random));
  EXPECT_TRUE(std::isnan(bootstrap_ratio(of_logs({1, 2}, {1, 2}), 0, 1, Order::random)[0]));
}

// t_0.975 + t_0.80 of 9 degrees (four digits of published tables: 2.2622 + 0.8834), times u.
TEST(Detectable, IsTheSumOfTwoQuantiles) {
  EXPECT_NEAR((Uncertain{0, 0.01, 9}.detectable()), 0.031456, 1e-6);
  EXPECT_NEAR((Uncertain{0, 1, kInfinity}.detectable()), 1.959964 + 0.841621, 1e-6);
}

// Values on a line and a known disturbance: slope and t of a regression by hand. Of y = 0 0 1 1 on
// x = 0 1 2 3: slope 0.4, residual sum of squares 0.2, two degrees less one for the slope.
TEST(Slope, IsThatOfARegressionWithinCommands) {
  std::vector<Outcome> all;
  const double y[] = {0, 0, 1, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    all.push_back({.command = 0, .value = std::exp(y[i]), .place = static_cast<double>(i)});
  }
  const Slope one = slope_of(all, &Outcome::place);
  EXPECT_NEAR(one.per_unit, std::expm1(0.4), 1e-12);
  EXPECT_NEAR(one.t, 0.4 / std::sqrt(0.2 / 2 / 5), 1e-9);
  EXPECT_EQ(one.freedom, 2);

  // Another command, ten times as hungry, later, and with the same slope: nothing changes but the
  // degrees of freedom.
  for (std::size_t i = 0; i < 4; ++i) {
    all.push_back(
        {.command = 1, .value = 10 * std::exp(y[i]), .place = static_cast<double>(9 + i)});
  }
  const Slope two = slope_of(all, &Outcome::place);
  EXPECT_NEAR(two.per_unit, std::expm1(0.4), 1e-12);
  EXPECT_NEAR(two.t, 0.4 / std::sqrt(0.4 / 5 / 10), 1e-9);
  EXPECT_TRUE(two.drifts());
  EXPECT_TRUE(std::isnan(slope_of(all, &Outcome::temperature).t));
}

TEST(Outliers, AreThoseFarFromTheMedianOfTheirOwnCommand) {
  auto all = of_logs({1.0, 1.1, 0.9, 1.05, 0.95, 4}, {4.0, 4.1, 3.9, 4.05, 3.95, 4});

  EXPECT_EQ(outliers(all), std::vector<std::size_t>{10});
  all[10].u = all[10].value;
  EXPECT_TRUE(outliers(all).empty()) << "its own uncertainty explains it";
  all[10].u = 0;
  all.resize(8);
  EXPECT_TRUE(outliers(all).empty()) << "four runs are too few to tell";
}

TEST(Answer, ComesFromTheOneSidedLimits) {
  EXPECT_EQ(above({1.06, 1.2}, 1.05), Answer::shown);
  EXPECT_EQ(above({1.01, 1.2}, 1.05), Answer::undecided);
  EXPECT_EQ(above({1.01, 1.04}, 1.05), Answer::refuted);
  EXPECT_EQ(below({0.7, 0.8}, 0.9), Answer::shown);
  EXPECT_EQ(below({0.7, 0.95}, 0.9), Answer::undecided);
  EXPECT_EQ(below({0.91, 0.95}, 0.9), Answer::refuted);
  EXPECT_EQ(above({kNoValue, kNoValue}, 1), Answer::undecided);
  EXPECT_EQ(below({kNoValue, kNoValue}, 1), Answer::undecided);
}

}  // namespace
}  // namespace zeus::solve
