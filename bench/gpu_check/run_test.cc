// The real program on simulated GPUs whose sensors and load are known.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/process.h"
#include "support/tree.h"

namespace zeus::test {
namespace {

using Json = nlohmann::json;

Process::Result gpu_check(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ZEUS_GPU_CHECK);
  return Process(std::move(arguments)).wait();
}

// A load that reads its command a second late on a busy machine would be no fault of the program:
// the budget leaves each run a second and more.
Json checked(const std::string& energy) {
  Tree tree;
  tree.write("mine.toml", R"(
[nvml]
driver = "550.54.15"
[[gpu]]
model = "Driven"
power = { kind = "driven", idle = 70, max = 700 }
power_instant = { update = "100ms", kind = "boxcar", window = "25ms" }
power_average = { update = "100ms", kind = "mean", window = "1s" }
energy = { update = "100ms", quantum = 0.001)" +
                              energy + " }\n");
  const auto file = tree.root() / "out.json";
  const auto r = gpu_check({"--host", "sim:" + (tree.root() / "mine.toml").string(), "--budget",
                            "20", "--out", file.string()});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("SIMULATED"), std::string::npos);
  std::ifstream in(file);
  return Json::parse(in, nullptr, false);
}

void expect_periods(const Json& json) {
  ASSERT_EQ(json["sensors"].size(), 3u) << json;
  for (const Json& s : json["sensors"]) {
    EXPECT_TRUE(s["update"]["known"]) << s;
    EXPECT_NEAR(s["update"]["period_s"].get<double>(), 0.1, 0.001) << s;
    EXPECT_NEAR(s["busy_w"].get<double>(), 700, 7) << s;
    EXPECT_NEAR(s["idle_w"].get<double>(), 70, 0.7) << s;
  }
}

TEST(GpuCheck, FindsACounterThatSeesAllOfTheTime) {
  const Json json = checked("");

  EXPECT_EQ(json["schema"], "zeus.gpu-check/1");
  EXPECT_EQ(json["simulation"]["scenario"], "mine");
  expect_periods(json);
  EXPECT_EQ(json["counter"]["verdict"], "full") << json["counter"];
  EXPECT_NEAR(json["counter"]["mean_w"].get<double>(), 385, 4);
  EXPECT_NEAR(json["counter_over_power"]["idle"]["power_instant"].get<double>(), 1, 0.01);
  EXPECT_EQ(json["latency"][0]["sensors"].size(), 3u);
  EXPECT_GT(json["latency"][0]["load"]["n"], 100);
  // The sensor of power beside it, in the same runs, looks at a quarter of the time.
  const Json& instant = json["series"][0]["sensors"][1];
  EXPECT_EQ(instant["name"], "power_instant");
  EXPECT_EQ(instant["coverage"]["verdict"], "sampled") << instant;
}

TEST(GpuCheck, FindsACounterThatLooksAQuarterOfTheTime) {
  const Json json = checked(", sampled_window = \"25ms\"");

  expect_periods(json);
  EXPECT_EQ(json["counter"]["verdict"], "sampled") << json["counter"];
  EXPECT_NEAR(json["counter"]["window_s"].get<double>(), 0.025, 0.01) << json["counter"];
}

TEST(GpuCheck, SaysInASentenceWhatItCannotCheck) {
  const auto none = gpu_check({"--host", "sim:xeon-2s"});
  const auto undriven = gpu_check({"--host", "sim:constant"});
  const auto broken = gpu_check({"--host", "sim:constant", "--load", "echo no CUDA here"});

  EXPECT_EQ(none.status, 3);
  EXPECT_NE(none.err.find("no GPU"), std::string::npos) << none.err;
  EXPECT_EQ(undriven.status, 1);
  EXPECT_NE(undriven.err.find("is not driven"), std::string::npos) << undriven.err;
  EXPECT_EQ(broken.status, 1);
  EXPECT_NE(broken.err.find("\"no CUDA here GPU-"), std::string::npos) << broken.err;
  EXPECT_EQ(gpu_check({"--budget", "1"}).status, 2);
}

}  // namespace
}  // namespace zeus::test
