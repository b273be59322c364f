#include "report/prometheus.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/run.h"

namespace zeus::report {
namespace {

constexpr auto kGauge = MetricFamily::Type::gauge;
constexpr auto kCounter = MetricFamily::Type::counter;

std::string page(std::vector<MetricFamily> metrics) { return to_prometheus(metrics); }

// The example of the text format's documentation, in its own spelling.
TEST(Prometheus, WritesNameHelpTypeAndPoints) {
  EXPECT_EQ(page({{"http_requests_total",
                   "The total number of HTTP requests.",
                   kCounter,
                   {{{{"method", "post"}, {"code", "200"}}, 1027},
                    {{{"method", "post"}, {"code", "400"}}, 3}}}}),
            "# HELP http_requests_total The total number of HTTP requests.\n"
            "# TYPE http_requests_total counter\n"
            "http_requests_total{code=\"200\",method=\"post\"} 1027\n"
            "http_requests_total{code=\"400\",method=\"post\"} 3\n");
}

TEST(Prometheus, EscapesWhatLabelsAndHelpHold) {
  EXPECT_EQ(page({{"a", "a \\ and\nmore", kGauge, {{{{"l", "C:\\DIR\n\"x\""}}, 1}}}}),
            "# HELP a a \\\\ and\\nmore\n"
            "# TYPE a gauge\n"
            "a{l=\"C:\\\\DIR\\n\\\"x\\\"\"} 1\n");
}

// Prometheus drops a whole page for one byte that is no UTF-8.
TEST(Prometheus, ReplacesBytesThatAreNoText) {
  const std::string text = page({{"a", "", kGauge, {{{{"l", "Card \xff\xc3"}}, 1}}}});
  EXPECT_NE(text.find("a{l=\"Card \xef\xbf\xbd\xef\xbf\xbd\"} 1\n"), std::string::npos) << text;
}

TEST(Prometheus, LeavesOutWhatIsNoNumberAndKeepsTheRest) {
  const std::string text = page({{"a",
                                  "",
                                  kGauge,
                                  {{{{"l", "1"}}, kNan},
                                   {{{"l", "2"}}, HUGE_VAL},
                                   {{{"l", "3"}}, -HUGE_VAL},
                                   {{{"l", "4"}}, 0}}},
                                 {"b", "", kGauge, {{{}, kNan}}},
                                 {"c", "", kGauge, {}},
                                 {"d", "", kGauge, {{{}, 2}}}});
  EXPECT_EQ(text,
            "# TYPE a gauge\na{l=\"4\"} 0\n"
            "# TYPE d gauge\nd 2\n");
}

TEST(Prometheus, LeavesOutNamesThatAreNone) {
  EXPECT_EQ(
      page({{"bad name", "", kGauge, {{{}, 1}}},
            {"", "", kGauge, {{{}, 1}}},
            {"a", "", kGauge, {{{{"x-y", "1"}, {"__name__", "b"}, {"ok", "2"}, {"no", ""}}, 1}}},
            {"a", "again", kCounter, {{{}, 5}}}}),
      "# TYPE a gauge\na{ok=\"2\"} 1\n");
}

TEST(Prometheus, WritesASeriesOnce) {
  EXPECT_EQ(page({{"a",
                   "",
                   kGauge,
                   {{{{"x", "1"}, {"y", "2"}}, 1},
                    {{{"y", "2"}, {"x", "1"}}, 9},
                    {{{"x", "1"}, {"x", "7"}, {"y", "3"}}, 4}}}}),
            "# TYPE a gauge\na{x=\"1\",y=\"2\"} 1\na{x=\"1\",y=\"3\"} 4\n");
}

// A counter of a year at a kilowatt still shows its millijoules.
TEST(Prometheus, KeepsSmallStepsOfLargeCounters) {
  const std::string text = page({{"j_total", "", kCounter, {{{}, 31536000000.001}}}});
  EXPECT_EQ(text, "# TYPE j_total counter\nj_total 31536000000.001\n");
}

}  // namespace
}  // namespace zeus::report
