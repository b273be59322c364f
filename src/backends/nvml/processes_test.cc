#include "zeus/processes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "support/simulated.h"

namespace zeus {
namespace nvml {
extern const Backend kBackend;
}
namespace {

using std::chrono::microseconds;
using test::Simulated;

constexpr const char* kPods = R"(
[[gpu]]
power = { kind = "constant", watts = 250 }
energy = {}
processes = [{ pid = 11, sm = 90 }, { pid = 12, sm = 10 }, { pid = 13, sm = 0 }]
[[gpu]]
power = { kind = "constant", watts = 250 }
energy = {}
mig = ["MIG-1"]
processes = [{ pid = 21, sm = 50 }]
[[gpu]]
power = { kind = "constant", watts = 250 }
energy = {}
)";

TEST(NvmlProcesses, TellsWhatEachProcessUsedAndWhen) {
  const Simulated sim(kPods);
  const Machine machine = sim.open(nvml::kBackend);
  ProcessSource* source = machine.devices.at(0).processes;
  ASSERT_NE(source, nullptr);
  const auto all = source->since({}).value();
  ASSERT_FALSE(all.empty());
  for (const ProcessUse& u : all) EXPECT_EQ(u.sm, u.pid == 11 ? 0.9 : 0.1) << u.pid;
  EXPECT_EQ(source->resident().value(), (std::vector{11, 12, 13}));
}

TEST(NvmlProcesses, TellsNothingTwice) {
  const Simulated sim(kPods);
  const Machine machine = sim.open(nvml::kBackend);
  ProcessSource* source = machine.devices.at(0).processes;
  microseconds mark{};
  for (const ProcessUse& u : source->since({}).value()) mark = std::max(mark, u.at);
  std::vector<ProcessUse> more;
  for (int i = 0; i < 1000 && more.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    more = source->since(mark).value();
  }
  ASSERT_FALSE(more.empty());
  for (const ProcessUse& u : more) EXPECT_GT(u.at, mark);
}

TEST(NvmlProcesses, OfAGpuThatNobodyUsesAreNone) {
  const Simulated sim(kPods);
  const Machine machine = sim.open(nvml::kBackend);
  ProcessSource* source = machine.devices.at(2).processes;
  EXPECT_TRUE(source->since({}).value().empty());
  EXPECT_TRUE(source->resident().value().empty());
}

// field failure 109
TEST(NvmlProcesses, AreNotToldUnderMigAndTheReasonIsSaid) {
  const Simulated sim(kPods);
  const Machine machine = sim.open(nvml::kBackend);
  const auto uses = machine.devices.at(1).processes->since({});
  ASSERT_FALSE(uses);
  EXPECT_EQ(uses.error().code, Errc::unsupported);
  EXPECT_EQ(uses.error().detail, "NVML gives no process utilisation while MIG is on");
}

TEST(NvmlProcesses, ThatFailSayWhichCallAndWhy) {
  Simulated sim(kPods);
  const Machine machine = sim.open(nvml::kBackend);
  sim.fault("processes", 4);
  const auto uses = machine.devices.at(0).processes->since({});
  ASSERT_FALSE(uses);
  EXPECT_EQ(uses.error().code, Errc::denied);
  EXPECT_NE(uses.error().detail.find("nvmlDeviceGetProcessUtilization on GPU-"), std::string::npos)
      << uses.error().detail;
  EXPECT_FALSE(machine.devices.at(0).processes->resident());
}

}  // namespace
}  // namespace zeus
