#include "backends/nvml/identity.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/simulated.h"

namespace zeus {
namespace nvml {
extern const Backend kBackend;
}
namespace {

using test::sentences;
using test::Simulated;

constexpr const char* kFour = R"(
[nvml]
driver = "550.54.15"
nvml = "12.550.54.15"
cuda = 12040
[[gpu]]
count = 4
model = "NVIDIA H100 80GB HBM3"
architecture = "hopper"
compute = "9.0"
power = { kind = "constant", watts = 250 }
limit = { min = 200, max = 700 }
energy = {}
power_instant = {}
)";

std::string fact(const Device& device, std::string_view name) {
  for (const auto& [key, value] : device.info.facts) {
    if (key == name) return value;
  }
  return "";
}

TEST(NvmlIdentity, IsWhatTheDriverSays) {
  const Simulated sim(kFour);
  const Machine machine = sim.open(nvml::kBackend);
  ASSERT_EQ(machine.devices.size(), 4u);
  const Device& d = machine.devices[1];
  EXPECT_EQ(d.info.kind, DeviceInfo::Kind::gpu);
  EXPECT_EQ(d.info.model, "NVIDIA H100 80GB HBM3");
  EXPECT_TRUE(d.info.id.starts_with("GPU-"));
  EXPECT_EQ(d.info.index, 1u);
  EXPECT_EQ(d.info.pci, "0000:17:00.0");
  EXPECT_EQ(fact(d, "driver"), "550.54.15");
  EXPECT_EQ(fact(d, "nvml"), "12.550.54.15");
  EXPECT_EQ(fact(d, "cuda"), "12.4");
  EXPECT_EQ(fact(d, "architecture"), "hopper");
  EXPECT_EQ(fact(d, "compute"), "9.0");
  EXPECT_FALSE(d.info.partitioned);
  EXPECT_TRUE(machine.problems.empty()) << sentences(machine);
}

TEST(NvmlIdentity, WritesPciAddressesAsTheKernelDoes) {
  EXPECT_EQ(nvml::normal_pci("00000000:41:00.0"), "0000:41:00.0");
  EXPECT_EQ(nvml::normal_pci("0000:C1:00.0"), "0000:c1:00.0");
  EXPECT_EQ(nvml::normal_pci("00010000:C1:00.0"), "00010000:c1:00.0");
  EXPECT_EQ(nvml::normal_pci(""), "");
}

TEST(NvmlIdentity, SaysThatALibraryIsSimulatedHoweverItWasLoaded) {
  Simulated sim(kFour);
  const Machine machine = sim.open(nvml::kBackend);
  ASSERT_TRUE(machine.simulation);
  EXPECT_EQ(machine.simulation->scenario, "test");
  EXPECT_EQ(machine.simulation->session, sim.session().folder().string());
  EXPECT_EQ(fact(machine.devices[0], "simulated"), "test");
}

// field failure 75, field failure 83, field failure 110, field failure 111
TEST(NvmlIdentity, OfAPartitionedGpuListsItsSlicesAndKeepsTheBoardsSensors) {
  const Simulated sim(R"(
[[gpu]]
power = { kind = "constant", watts = 52.6 }
mig = ["MIG-377e0049-0000-5000-8000-000000000001", "MIG-4e81b2d7-0000-5000-8000-000000000002"]
energy = {}
power_instant = {}
)");
  const Machine machine = sim.open(nvml::kBackend);
  ASSERT_EQ(machine.devices.size(), 1u);  // One board, however many slices.
  const Device& d = machine.devices[0];
  EXPECT_TRUE(d.info.partitioned);
  EXPECT_EQ(d.info.partitions, (std::vector<std::string>{"MIG-377e0049-0000-5000-8000-000000000001",
                                                         "MIG-4e81b2d7-0000-5000-8000-"
                                                         "000000000002"}));
  EXPECT_EQ(machine.domains.all(), (std::vector<DomainId>{{Scope::gpu, 0}}));
  EXPECT_EQ(test::read(test::sensor(d, "power_instant")).raw, 52'600u);
}

// field failure 89
TEST(NvmlIdentity, OfALostGpuIsItsPlaceAndTheOthersAreMeasured) {
  for (const int code : {15, 999}) {
    Simulated sim(kFour);
    sim.fault("nvmlDeviceGetHandleByIndex_v2", code, 1);
    test::Tree proc;
    for (const char* bus : {"07", "17", "27", "37"}) {
      proc.write("proc/driver/nvidia/gpus/0000:" + std::string(bus) + ":00.0/information", "");
    }
    const Machine machine = open_local({proc.root(), sim.host().libraries}, {&nvml::kBackend, 1});
    ASSERT_EQ(machine.devices.size(), 4u);
    const Device& dead = machine.devices[1];
    EXPECT_TRUE(dead.info.lost);
    EXPECT_EQ(dead.info.index, 1u);
    EXPECT_EQ(dead.info.pci, "0000:17:00.0");
    EXPECT_EQ(dead.info.id, "0000:17:00.0");
    EXPECT_TRUE(dead.sensors.empty());
    EXPECT_EQ(machine.domains.all().size(), 3u);
    ASSERT_EQ(machine.problems.size(), 1u);
    EXPECT_EQ(machine.problems[0].error.code, Errc::lost);
    EXPECT_EQ(machine.problems[0].error.vendor, code);
    EXPECT_NE(sentences(machine).find("cannot reach GPU 1 at 0000:17:00.0"), std::string::npos);
  }
}

// field failure 89: without the kernel's list, its number is all that is known.
TEST(NvmlIdentity, OfALostGpuIsItsNumberWhereNothingElseIsKnown) {
  Simulated sim(kFour);
  sim.fault("nvmlDeviceGetHandleByIndex_v2", 15, 3);
  const Machine machine = sim.open(nvml::kBackend);
  ASSERT_EQ(machine.devices.size(), 4u);
  EXPECT_TRUE(machine.devices[3].info.lost);
  EXPECT_EQ(machine.devices[3].info.id, "nvml-3");
  EXPECT_EQ(machine.devices[3].info.pci, "");
}

// field failure 90
TEST(NvmlIdentity, SurvivesThatAnOptionalCallFails) {
  Simulated sim(kFour);
  for (const char* call : {"version", "architecture", "mig", "pci", "name"}) sim.fault(call, 6);
  const Machine machine = sim.open(nvml::kBackend);
  ASSERT_EQ(machine.devices.size(), 4u);
  EXPECT_FALSE(machine.devices[0].info.lost);
  EXPECT_EQ(machine.devices[0].sensors.size(), 9u);
}

}  // namespace
}  // namespace zeus
