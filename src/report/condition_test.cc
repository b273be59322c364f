#include "report/condition.h"

#include <gtest/gtest.h>

namespace zeus::report {
namespace {

TEST(Condition, OfARatioIsReadWithOrWithoutBlanks) {
  for (const char* text : {"energy > 1.05x", "energy>1.05x", "  energy >1.05 x "}) {
    const auto c = parse_fail_if(text);
    ASSERT_TRUE(c) << text;
    EXPECT_EQ(c->metric, Metric::energy);
    EXPECT_TRUE(c->above);
    EXPECT_TRUE(c->relative);
    EXPECT_DOUBLE_EQ(c->limit, 1.05);
  }
  EXPECT_EQ(parse_fail_if(" power > 300 ")->text, "power > 300");
}

TEST(Condition, OfAUnitIsReadInSi) {
  const std::pair<const char*, double> cases[] = {
      {"energy > 1.2kJ", 1200}, {"energy > 300", 300},  {"energy < 2 Wh", 7200},
      {"power > 300W", 300},    {"power > 0.3kW", 300}, {"time > 1.5min", 90},
      {"time < 250ms", 0.25},   {"time > 1e2 s", 100},  {"energy > 1kWh", 3.6e6}};
  for (const auto& [text, limit] : cases) {
    const auto c = parse_fail_if(text);
    ASSERT_TRUE(c) << text;
    EXPECT_FALSE(c->relative) << text;
    EXPECT_DOUBLE_EQ(c->limit, limit) << text;
    EXPECT_EQ(c->above, std::string_view(text).find('>') != std::string_view::npos) << text;
  }
}

TEST(Condition, ThatMeansNothingIsRefusedWithAnExample) {
  for (const char* text :
       {"", "energy", "energy > ", "energy 1.05x", "energy = 1.05x", "heat > 3", "energy > x",
        "energy > 1.05y", "energy > 300W", "time > 3 J", "power > -3", "power > 0", "power > nan",
        "power > inf", "energy > 1e308kWh", "energy > 1e999", "energy >> 1", "Energy > 1x"}) {
    const auto c = parse_fail_if(text);
    ASSERT_FALSE(c) << text;
    EXPECT_EQ(c.error().code, Errc::invalid);
    EXPECT_NE(c.error().detail.find("write it like \"energy > 1.05x\""), std::string::npos);
  }
}

TEST(Condition, OfNoWorseIsOfTheEnergyUnlessItSaysOtherwise) {
  const auto plain = parse_no_worse_than("1.05x"), time = parse_no_worse_than("time 1.1x");
  const auto watts = parse_no_worse_than("power 300W");

  EXPECT_EQ(plain->metric, Metric::energy);
  EXPECT_EQ(plain->kind, Condition::Kind::no_worse_than);
  EXPECT_EQ(time->metric, Metric::time);
  EXPECT_DOUBLE_EQ(time->limit, 1.1);
  EXPECT_FALSE(watts->relative);
  for (const char* text : {"", "> 1.05x", "time", "1.05 W"}) {
    EXPECT_FALSE(parse_no_worse_than(text)) << text;
  }
}

}  // namespace
}  // namespace zeus::report
