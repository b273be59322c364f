#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "support/powercap.h"

namespace zeus {
namespace {

namespace fs = std::filesystem;
using test::Powercap;

/// The one sentence that says why there is no CPU energy here.
std::string why(const Powercap& cpu) {
  const Machine machine = cpu.open();
  EXPECT_TRUE(machine.devices.empty());
  EXPECT_EQ(machine.problems.size(), 1u);
  EXPECT_EQ(machine.problems.at(0).error.code, Errc::absent);
  return machine.problems[0].error.detail;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// field failure 137
TEST(RaplAbsence, OfADanglingLinkNamesTheMountThatIsMissing) {
  Powercap cpu;
  fs::create_directories(cpu.root() / cpu.folder);
  fs::create_directory_symlink("../../devices/virtual/powercap/intel-rapl/intel-rapl:0",
                               cpu.root() / cpu.folder / "intel-rapl:0");
  const std::string text = why(cpu);
  EXPECT_TRUE(says(text, "cannot follow the link")) << text;
  EXPECT_TRUE(says(text, "-v /sys/devices/virtual/powercap:/zeus_sys/devices/virtual/powercap:ro"))
      << text;
}

// field failure 137: what the mounts give.
TEST(RaplAbsence, EndsWithTheMountsUnderZeusSys) {
  Powercap cpu("zeus_sys/devices/virtual/powercap/intel-rapl");
  cpu.zone("intel-rapl:0", "package-0", 5);
  const fs::path mounted = cpu.root() / "zeus_sys/class/powercap";
  fs::create_directories(mounted);
  fs::create_directory_symlink("../../devices/virtual/powercap/intel-rapl/intel-rapl:0",
                               mounted / "intel-rapl:0");
  fs::create_directories(cpu.root() / "sys/class/powercap");
  fs::create_directory_symlink("../../devices/virtual/powercap/intel-rapl/intel-rapl:0",
                               cpu.root() / "sys/class/powercap/intel-rapl:0");
  const Machine machine = cpu.open();
  ASSERT_EQ(machine.devices.size(), 1u);
  EXPECT_TRUE(machine.problems.empty());
}

TEST(RaplAbsence, OfASimulatedMachineIsItsScenarios) {
  const Machine machine = open_local({"/nowhere", {}, true}, {&rapl::kBackend, 1});
  EXPECT_EQ(machine.problems.at(0).error.detail, "the scenario has no power counters of CPUs");
}

// field failure 138
TEST(RaplAbsence, InAContainerNamesItsMounts) {
  Powercap cpu;
  cpu.cpuinfo("GenuineIntel", 6, "fpu hypervisor");
  cpu.write(".dockerenv", "");
  const std::string text = why(cpu);
  EXPECT_TRUE(says(text, "this container does not see it; start it with -v /sys/class/powercap"))
      << text;
}

// field failure 140
TEST(RaplAbsence, InAVirtualMachineIsItsHosts) {
  Powercap cpu;
  cpu.cpuinfo("GenuineIntel", 6, "fpu vme hypervisor sse");
  EXPECT_TRUE(says(why(cpu), "this is a virtual machine"));
  fs::create_directories(cpu.root() / cpu.folder);
  EXPECT_TRUE(says(why(cpu), "has no RAPL zone: this is a virtual machine"));
}

// field failure 141
TEST(RaplAbsence, InWslIsItsKernels) {
  Powercap cpu;
  cpu.cpuinfo("GenuineIntel", 6, "fpu hypervisor");
  cpu.write("proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2 (gcc) #1 SMP\n");
  EXPECT_TRUE(says(why(cpu), "the kernel of WSL has none"));
}

// field failure 5
TEST(RaplAbsence, OnArmRaisesNothing) {
  Powercap cpu;
  cpu.write("proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\n");
  cpu.write("sys/devices/system/cpu/cpu0/topology/physical_package_id", "36\n");
  EXPECT_TRUE(says(why(cpu), "Arm processors have no RAPL"));
}

// field failure 20
TEST(RaplAbsence, OfADriverNamesTheProcessorAndTheKernel) {
  Powercap cpu;
  cpu.cpuinfo("AuthenticAMD", 26);
  cpu.write("proc/version", "Linux version 6.5.0-14-generic (buildd@lcy02) #14-Ubuntu SMP\n");
  fs::create_directories(cpu.root() / cpu.folder);
  const std::string text = why(cpu);
  EXPECT_TRUE(says(text, "has no RAPL zone")) << text;
  EXPECT_TRUE(says(text, "kernel 6.5.0-14-generic")) << text;
  EXPECT_TRUE(says(text, "AuthenticAMD family 26")) << text;
}

// field failure 142, field failure 143
TEST(RaplAbsence, OfEverythingIsOneReason) {
  const Powercap nothing;
  EXPECT_TRUE(says(why(nothing), "modprobe intel_rapl_msr"));
}

// field failure 46, field failure 47: nothing is started, before a measurement or after.
TEST(RaplAbsence, OfHelpersIsByDesign) {
  Powercap cpu;
  for (int i = 0; i < 2; ++i) {
    const std::string id = "intel-rapl:" + std::to_string(i);
    cpu.zone(id, "package-" + std::to_string(i), 1);
    cpu.zone(id + ":0", "dram", 1);
  }
  const auto tasks = [] {
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  const auto before = tasks();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(cpu.open().devices.size(), 2u);
  EXPECT_EQ(tasks(), before);
}

}  // namespace
}  // namespace zeus
