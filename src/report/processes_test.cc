#include "report/processes.h"

#include <gtest/gtest.h>

namespace zeus::report {
namespace {

Processes two_gpus() {
  Processes p{.version = "1",
              .host = {.address = "local:", .hostname = "h", .kernel = "k"},
              .selections = {},
              .problems = {},
              .seconds = 10,
              .gpus = {}};
  GpuProcesses& busy = p.gpus.emplace_back();
  busy.device.model = "H100";
  busy.device.id = "GPU-1";
  busy.energy.value = 1000;
  busy.energy.u_abs = 1;
  busy.energy_uj = 1'000'000'001;
  busy.processes = {{11, "small", 100'000'000}, {12, "ev\x1bil", 800'000'001}, {13, "", 0}};
  busy.idle_uj = 100'000'000;
  GpuProcesses& cut = p.gpus.emplace_back();
  cut.device.index = 1;
  cut.device.id = "GPU-2";
  cut.device.model = "H100";
  cut.why = "NVML gives no process utilisation while MIG is on";
  return p;
}

TEST(ProcessReport, NamesTheGreatestFirstAndSaysThatItIsAModel) {
  EXPECT_EQ(to_text(two_gpus(), {}),
            "joules of processes are a model: shares of SM time\n"
            "GPU 0 H100: 1000.0 J ± 2.0 J in 10.0 s\n"
            "  12  ev il  800.000 J  80.0 %\n"
            "  11  small  100.000 J  10.0 %\n"
            "  13  ?        0.000 J   0.0 %\n"
            "      idle   100.000 J  10.0 %\n"
            "GPU 1 H100: unavailable: NVML gives no process utilisation while MIG is on\n");
}

// field failure 108, field failure 109
TEST(ProcessReport, InJsonAddsUpAndLabelsEachGpu) {
  const Json out = to_json(two_gpus());
  EXPECT_EQ(out["schema"], "zeus.processes/1");
  EXPECT_EQ(out["attribution"], "model: shares of SM time");
  const Json& busy = out["gpus"][0];
  EXPECT_EQ(busy["attribution"], "model: shares of SM time");
  auto sum = busy["idle_uj"].get<std::uint64_t>();
  for (const Json& p : busy["processes"]) sum += p["energy_uj"].get<std::uint64_t>();
  EXPECT_EQ(sum, busy["energy_uj"]);
  EXPECT_EQ(busy["processes"][0]["pid"], 12);
  EXPECT_NEAR(busy["processes"][0]["share"].get<double>(), 0.8, 1e-9);
  EXPECT_TRUE(busy["processes"][2]["name"].is_null());
  EXPECT_EQ(busy["energy"]["energy_j"], 1000);
  const Json& cut = out["gpus"][1];
  EXPECT_EQ(cut["unavailable"], "NVML gives no process utilisation while MIG is on");
  EXPECT_FALSE(cut.contains("processes"));
}

TEST(ProcessReport, SaysHowManyStretchesHadNoEnergy) {
  Processes p = two_gpus();
  p.gpus[0].left_out = 2;
  EXPECT_NE(to_text(p, {}).find("  2 stretches are divided as the others were"), std::string::npos);
}

}  // namespace
}  // namespace zeus::report
