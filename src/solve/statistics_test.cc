#include "solve/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace zeus::solve {
namespace {

TEST(TQuantile, AgreesWithThePublishedTable) {
  // NIST/SEMATECH e-Handbook, 1.3.6.7.2, column 0.975.
  const std::vector<std::pair<double, double>> table = {
      {1, 12.706}, {2, 4.303},  {3, 3.182},  {4, 2.776},  {5, 2.571},  {6, 2.447},
      {7, 2.365},  {8, 2.306},  {9, 2.262},  {10, 2.228}, {15, 2.131}, {20, 2.086},
      {29, 2.045}, {30, 2.042}, {60, 2.000}, {99, 1.984}, {100, 1.984}};
  for (const auto& [freedom, t] : table) EXPECT_NEAR(t_quantile(0.95, freedom), t, 5e-4) << freedom;
}

TEST(TQuantile, AgreesWithTheClosedFormsOfOneTwoAndFourDegrees) {
  for (const double p : {0.5, 0.9, 0.95, 0.99}) {
    EXPECT_NEAR(t_quantile(p, 1), std::tan(std::numbers::pi * p / 2), 1e-9);
    EXPECT_NEAR(t_quantile(p, 2), p * std::sqrt(2 / (1 - p * p)), 1e-9);
    const double a = std::cos(std::acos(std::sqrt(1 - p * p)) / 3) / std::sqrt(1 - p * p);
    EXPECT_NEAR(t_quantile(p, 4), 2 * std::sqrt(a - 1), 1e-9);
  }
}

TEST(TQuantile, ApproachesTheNormalQuantile) {
  EXPECT_NEAR(t_quantile(0.95, 100'000), 1.959964, 5e-5);
  EXPECT_NEAR(t_quantile(0.95, std::numeric_limits<double>::infinity()), 1.959964, 5e-7);
  EXPECT_TRUE(std::isinf(t_quantile(0.95, 0)));
}

// One-sided 95 % and 80 % points, NIST/SEMATECH e-Handbook 1.3.6.7.2 and Student's own columns.
TEST(TQuantile, OfOneSideIsThatOfTwiceTheTail) {
  EXPECT_NEAR(t_quantile(0.90, 9), 1.833, 5e-4);
  EXPECT_NEAR(t_quantile(0.90, 30), 1.697, 5e-4);
  EXPECT_NEAR(t_quantile(0.60, 9), 0.883, 5e-4);
}

TEST(TQuantile, OfBrokenDegreesLiesBetweenItsNeighboursAndGivesItsProbabilityBack) {
  for (const double freedom : {1.5, 4.25, 17.9, 300.5}) {
    const double t = t_quantile(0.95, freedom);
    EXPECT_LT(t, t_quantile(0.95, std::floor(freedom)));
    EXPECT_GT(t, t_quantile(0.95, std::ceil(freedom)));
    EXPECT_NEAR(t_probability(t, freedom), 0.95, 1e-12);
    EXPECT_NEAR(t_beyond(t, freedom), 0.05, 1e-12);
  }
}

TEST(TBeyond, KeepsItsDigitsFarOut) {
  // One degree: 1 - 2 atan(t) / pi; two: 1 - t / sqrt(2 + t^2).
  EXPECT_NEAR(t_beyond(1e9, 1) / (2 / std::numbers::pi * std::atan(1e-9)), 1, 1e-9);
  EXPECT_NEAR(t_beyond(1e5, 2) / (1e-10 - 1.5e-20), 1, 1e-9);
  EXPECT_EQ(t_beyond(0, 5), 1);
}

// Closed forms: I_x(1, b) = 1 - (1 - x)^b, I_x(a, 1) = x^a, I_x(1/2, 1/2) = 2 asin(sqrt x) / pi.
TEST(IncompleteBeta, AgreesWithItsClosedForms) {
  for (const double x : {0.001, 0.2, 0.5, 0.77, 0.999}) {
    EXPECT_NEAR(incomplete_beta(x, 1, 3.5), 1 - std::pow(1 - x, 3.5), 1e-13);
    EXPECT_NEAR(incomplete_beta(x, 2.5, 1), std::pow(x, 2.5), 1e-13);
    EXPECT_NEAR(incomplete_beta(x, 0.5, 0.5), 2 * std::asin(std::sqrt(x)) / std::numbers::pi,
                1e-13);
  }
  EXPECT_EQ(incomplete_beta(0, 2, 3), 0);
  EXPECT_EQ(incomplete_beta(1, 2, 3), 1);
}

TEST(Summarize, MatchesAHandComputedExample) {
  // 2 4 4 4 5 5 7 9: mean 5, sum of squares 32.
  const std::vector<double> v = {2, 4, 4, 4, 5, 5, 7, 9};
  const Summary s = summarize(v);

  EXPECT_EQ(s.n, 8u);
  EXPECT_DOUBLE_EQ(s.mean, 5);
  EXPECT_DOUBLE_EQ(s.sd, std::sqrt(32.0 / 7));
  EXPECT_NEAR(s.half_95, 2.364624 * std::sqrt(32.0 / 7 / 8), 1e-5);
  EXPECT_EQ(s.min, 2);
  EXPECT_EQ(s.max, 9);
}

TEST(Summarize, LeavesOutWhatWasNotMeasured) {
  const double nan = std::numeric_limits<double>::quiet_NaN();

  EXPECT_EQ(summarize(std::vector{nan, 3.0}).mean, 3);
  EXPECT_TRUE(std::isnan(summarize(std::vector{nan, 3.0}).sd));
  EXPECT_TRUE(std::isnan(summarize(std::vector{nan}).mean));
  EXPECT_EQ(summarize({}).n, 0u);
}

TEST(Summarize, KeepsSmallDifferencesOfLargeNumbers) {
  const std::vector<double> v = {1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16};

  EXPECT_DOUBLE_EQ(summarize(v).sd, std::sqrt(30.0));
}

}  // namespace
}  // namespace zeus::solve
