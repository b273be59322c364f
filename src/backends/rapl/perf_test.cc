#include "backends/rapl/perf.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <optional>

#include "base/perf.h"
#include "support/allocations.h"
#include "support/rights.h"
#include "support/simulated.h"

namespace zeus {
namespace {

using test::readings;

constexpr DomainId kPackage0{Scope::package, 0}, kPackage1{Scope::package, 1};
constexpr const char* kKernelScale = "2.3283064365386962890625e-10";  // What rapl.c writes: 2^-32.

/// Nobody, who was given CAP_PERFMON where this test's user has it to give.
struct PerfUser : test::Nobody {
  PerfUser() {
    if (::getuid() != 0) return;
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    if (::syscall(SYS_capget, &header, data) != 0) return;
    constexpr unsigned kPerfmon = 1U << (38 - 32);
    data[1].effective |= data[1].permitted & kPerfmon;
    (void)::syscall(SYS_capset, &header, data);
  }
};

/// A power PMU whose events are the kernel's clock of a processor: a counter like any other.
struct Pmu : test::Rights {
  Pmu() {
    pmu("type", "1\n");
    pmu("cpumask", "0\n");
    socket(0, 0);
    event("energy-pkg");
  }
  void pmu(const std::string& name, const std::string& text) {
    write("sys/bus/event_source/devices/power/" + name, text);
  }
  void event(const std::string& name) {
    pmu("events/" + name, "event=0x00\n");
    pmu("events/" + name + ".scale", std::string(kKernelScale) + "\n");
    pmu("events/" + name + ".unit", "Joules\n");
  }
  void socket(int cpu, int package, int die = 0) {
    const std::string topology = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    write(topology + "physical_package_id", std::to_string(package) + "\n");
    write(topology + "die_id", std::to_string(die) + "\n");
  }
  void closed_zone(const std::string& id, const std::string& name) {
    zone(id, name, 7);
    mode(id, "energy_uj", 0);
  }
  Machine open_with_perf() const {
    const PerfUser user;
    return open();
  }
};

/// Why perf cannot be tried here; nothing if it can.
std::optional<std::string> no_perf() {
  const PerfUser user;
  const auto counter = PerfCounter::open(1, 0, 0);
  return counter ? std::nullopt : std::optional(counter.error().detail);
}

#define SKIP_WITHOUT_PERF() \
  if (const auto why = no_perf()) GTEST_SKIP() << *why

TEST(RaplPerfText, OfAnEventIsOneNumber) {
  EXPECT_EQ(rapl::parse_event("event=0x02"), 2u);
  EXPECT_EQ(rapl::parse_event("event=0x00"), 0u);
  EXPECT_EQ(rapl::parse_event("event=5"), 5u);
  EXPECT_EQ(rapl::parse_event("config=0x1ff"), 0x1ffu);
  for (const char* text : {"", "event=", "event=0x", "event=zz", "event=0x100", "event=-1", "event",
                           "event=0x02,inv", "umask=0x01", "0x02", "config=0x02 "}) {
    EXPECT_FALSE(rapl::parse_event(text)) << text;
  }
}

TEST(RaplPerfText, OfAMaskIsAListOfProcessors) {
  EXPECT_EQ(rapl::parse_cpus("0"), (std::vector{0}));
  EXPECT_EQ(rapl::parse_cpus("0,24"), (std::vector{0, 24}));
  EXPECT_EQ(rapl::parse_cpus("0-1"), (std::vector{0, 1}));
  EXPECT_EQ(rapl::parse_cpus("0,8-10,64"), (std::vector{0, 8, 9, 10, 64}));
  for (const char* text : {"", ",", "0,", "-1", "1-0", "0-", "0--1", "a", "0 1", "0-99999999",
                           "0x-0", "1,0", "0,0", "0-65535,0-65535"}) {
    EXPECT_FALSE(rapl::parse_cpus(text)) << text;
  }
}

TEST(RaplPerfText, OfAScaleIsAPositiveNumber) {
  EXPECT_EQ(rapl::parse_scale(kKernelScale), std::ldexp(1, -32));
  EXPECT_EQ(rapl::parse_scale("1e-6"), 1e-6);
  for (const char* text : {"", "0", "-1", "nan", "inf", "1e-6x", "1e9", "Joules", "5e-324"}) {
    EXPECT_FALSE(rapl::parse_scale(text)) << text;
  }
}

// field failure 34
TEST(RaplPerf, CountsWhatPowercapDenies) {
  SKIP_WITHOUT_PERF();
  Pmu cpu;
  cpu.closed_zone("intel-rapl:0", "package-0");
  cpu.zone("intel-rapl:1", "package-1", 8);
  const Machine machine = cpu.open_with_perf();
  EXPECT_TRUE(machine.problems.empty()) << test::sentences(machine);
  ASSERT_EQ(machine.devices.size(), 2u);
  const Device* device = machine.find("package-0");
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->info.facts, (decltype(device->info.facts){{"perf", "power/energy-pkg/"}}));
  const Sensor& sensor = device->sensors.at(0);
  EXPECT_EQ(sensor.info.name, "package");
  EXPECT_EQ(sensor.info.domain, kPackage0);
  EXPECT_EQ(sensor.info.lineage, "rapl:" + to_string(kPackage0));
  EXPECT_EQ(sensor.info.profile.id, "rapl-perf:package");
  EXPECT_EQ(sensor.info.scale, std::ldexp(1, -16));
  // When the register wraps: 2^32 of the unit that its zone tells, 2^-14 J.
  EXPECT_EQ(static_cast<double>(sensor.info.wrap) * sensor.info.scale, 262144);

  const Reading first = test::read(&sensor);
  ASSERT_EQ(first.error, Errc::ok);
  Reading later = first;
  for (int i = 0; i < 3000 && later.raw <= first.raw; ++i) {
    ::usleep(1000);
    later = test::read(&sensor);
  }
  EXPECT_GT(later.raw, first.raw);
  const auto before = test::allocations();
  Reading out;
  EXPECT_EQ(sensor.source->read({&out, 1}), Errc::ok);
  EXPECT_EQ(test::allocations(), before);

  EXPECT_EQ(readings(machine).at(1), (std::pair{kPackage1, std::uint64_t{8}}));
  EXPECT_EQ(
      machine.find("package-1")->info.facts,
      (decltype(device->info.facts){{"zone", "intel-rapl:1"}, {"counters", "world-readable"}}));
}

// field failure 34: what a zone gives is not counted a second time, nor what has no zone at all.
TEST(RaplPerf, IsLeftAloneBesideAReadableZone) {
  SKIP_WITHOUT_PERF();
  Pmu cpu;
  for (const char* event : {"energy-ram", "energy-cores", "energy-gpu", "energy-psys"}) {
    cpu.event(event);
  }
  cpu.zone("intel-rapl:0", "package-0", 7);
  cpu.closed_zone("intel-rapl:0:0", "dram");
  cpu.closed_zone("intel-rapl-mmio:0", "package-0");
  const Machine machine = cpu.open_with_perf();
  EXPECT_TRUE(machine.problems.empty()) << test::sentences(machine);
  ASSERT_EQ(machine.devices.size(), 1u);
  ASSERT_EQ(machine.devices[0].sensors.size(), 2u);
  EXPECT_EQ(machine.devices[0].sensors[0].info.profile.id, "rapl:package");
  EXPECT_EQ(machine.devices[0].sensors[1].info.profile.id, "rapl-perf:dram");
}

TEST(RaplPerf, CountsADomainOnceWhoseTwinsAreBothClosed) {
  SKIP_WITHOUT_PERF();
  Pmu cpu;
  cpu.closed_zone("intel-rapl:0", "package-0");
  cpu.closed_zone("intel-rapl-mmio:0", "package-0");
  const Machine machine = cpu.open_with_perf();
  EXPECT_TRUE(machine.problems.empty()) << test::sentences(machine);
  ASSERT_EQ(machine.devices.size(), 1u);
  EXPECT_EQ(machine.devices[0].sensors.size(), 1u);
}

TEST(RaplPerf, ReadsTheRegisterOftenEnoughWhereNobodyTellsItsRange) {
  SKIP_WITHOUT_PERF();
  Pmu cpu;
  cpu.closed_zone("intel-rapl:0", "package-0");
  cpu.mode("intel-rapl:0", "max_energy_range_uj", 0);
  const Machine machine = cpu.open_with_perf();
  ASSERT_EQ(machine.devices.size(), 1u) << test::sentences(machine);
  const SensorInfo& info = machine.devices[0].sensors.at(0).info;
  EXPECT_EQ(static_cast<double>(info.wrap) * info.scale, 65536);  // 32 bits of 2^-16 J.
}

TEST(RaplPerf, IsAllThereIsWherePowercapHasNoZones) {
  SKIP_WITHOUT_PERF();
  Pmu cpu;
  if (PerfCounter::open(1, 0, 1)) {  // A second processor: sockets are told by their number.
    cpu.pmu("cpumask", "0-1\n");
    cpu.socket(1, 3);
  }
  cpu.event("energy-ram");
  cpu.event("energy-psys");
  const Machine machine = cpu.open_with_perf();
  EXPECT_TRUE(machine.problems.empty()) << test::sentences(machine);
  const Device* first = machine.find("package-0");
  ASSERT_NE(first, nullptr);
  ASSERT_EQ(first->sensors.size(), 2u);
  EXPECT_EQ(first->info.facts,
            (decltype(first->info.facts){{"perf", "power/energy-pkg/, power/energy-ram/"}}));
  const Device* platform = machine.find("psys");
  ASSERT_NE(platform, nullptr);
  EXPECT_EQ(platform->info.kind, DeviceInfo::Kind::board);
  if (machine.devices.size() == 2) return;
  ASSERT_NE(machine.find("package-3"), nullptr);
  EXPECT_EQ(machine.find("package-3")->sensors.at(0).info.domain, (DomainId{Scope::package, 3}));
}

// On Intel dies add up; elsewhere each would show its socket's register once more.
TEST(RaplPerf, CountsTheDiesThatHaveARegisterOfTheirOwn) {
  for (const auto& [vendor, dies] : {std::pair{"GenuineIntel", 2u}, {"AuthenticAMD", 1u}}) {
    Pmu cpu;
    cpu.cpuinfo(vendor, 6);
    cpu.pmu("cpumask", "0,4,8\n");
    cpu.socket(0, 0, 0);
    cpu.socket(4, 0, 1);
    cpu.socket(8, 1, 0);
    const auto pmu = rapl::Pmu::find(cpu.root(), rapl::Processor::read(cpu.root()));
    ASSERT_TRUE(pmu) << pmu.error().detail;
    const auto tops = pmu->tops();
    ASSERT_EQ(tops.size(), dies + 1);
    EXPECT_EQ(tops.front().die, dies == 2);
    EXPECT_FALSE(tops.back().die);
    EXPECT_EQ(tops.back().domain, kPackage1);
  }
}

// field failure 34
TEST(RaplPerf, SaysWhatWasTriedAndTheWaysOut) {
  Pmu cpu;
  cpu.closed_zone("intel-rapl:0", "package-0");
  cpu.write("proc/sys/kernel/perf_event_paranoid", "2\n");
  {
    const test::Nobody nobody;
    const auto counter = PerfCounter::open(1, 0, 0);
    if (counter) GTEST_SKIP() << "this kernel lets everybody count";
    if (counter.error().vendor != EACCES) GTEST_SKIP() << counter.error().detail;
  }
  const Machine machine = cpu.open_as_nobody();
  EXPECT_TRUE(machine.devices.empty());
  ASSERT_EQ(machine.problems.size(), 1u);
  EXPECT_EQ(machine.problems[0].error.code, Errc::denied);
  EXPECT_EQ(machine.problems[0].error.detail,
            "cannot open " + (cpu.root() / cpu.file("intel-rapl:0", "energy_uj")).string() +
                ": Permission denied, and perf refuses power/energy-pkg/ on CPU 0: Permission "
                "denied (perf_event_paranoid is 2); join the group that owns this file, run zeusd, "
                "grant CAP_PERFMON, set perf_event_paranoid to 0, or run as root");

  std::filesystem::remove_all(cpu.root() / "sys/class");
  const Machine bare = cpu.open_as_nobody();
  ASSERT_EQ(bare.problems.size(), 1u);
  EXPECT_EQ(bare.problems[0].error.code, Errc::denied);
  EXPECT_NE(bare.problems[0].error.detail.find(
                "try modprobe intel_rapl_msr; perf refuses power/energy-pkg/ on CPU 0: Permission "
                "denied (perf_event_paranoid is 2); run zeusd, grant CAP_PERFMON"),
            std::string::npos)
      << bare.problems[0].error.detail;
}

TEST(RaplPerf, IsNotUsedWhereItsFilesMeanNothing) {
  const struct {
    const char *file, *text, *says;
  } bads[] = {
      {"type", "power\n", "power/type tells no number"},
      {"cpumask", "\n", "power/cpumask tells no CPUs"},
      {"cpumask", "7\n", "cpu7/topology/physical_package_id tells no socket"},
      {"events/energy-pkg", "umask=1\n", "events/energy-pkg tells no event"},
      {"events/energy-pkg.scale", "0\n", "events/energy-pkg.scale tells no scale"},
      {"events/energy-pkg.unit", "Watts\n", "events/energy-pkg.unit tells no joules"},
  };
  for (const auto& bad : bads) {
    Pmu cpu;
    cpu.closed_zone("intel-rapl:0", "package-0");
    cpu.pmu(bad.file, bad.text);
    const Machine machine = cpu.open_with_perf();
    EXPECT_TRUE(machine.devices.empty()) << bad.file;
    ASSERT_EQ(machine.problems.size(), 1u);
    const std::string& text = machine.problems[0].error.detail;
    EXPECT_NE(text.find("Permission denied, and perf cannot be used, since "), std::string::npos)
        << text;
    EXPECT_NE(text.find(bad.says), std::string::npos) << text;
    EXPECT_NE(text.find("run zeusd, or run as root"), std::string::npos) << text;
  }
}

TEST(RaplPerf, DoesNotStandInForAnotherSocketOrAnotherEvent) {
  Pmu cpu;
  cpu.closed_zone("intel-rapl:0", "package-1");
  cpu.closed_zone("intel-rapl:0:0", "dram");
  const Machine machine = cpu.open_with_perf();
  EXPECT_TRUE(machine.devices.empty());
  ASSERT_EQ(machine.problems.size(), 2u);
  EXPECT_NE(machine.problems[0].error.detail.find("perf has no power/energy-pkg/ for it"),
            std::string::npos);
  EXPECT_NE(machine.problems[1].error.detail.find("perf has no power/energy-ram/ for it"),
            std::string::npos);
}

}  // namespace
}  // namespace zeus
