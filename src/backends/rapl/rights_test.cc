#include "support/rights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "support/simulated.h"

namespace zeus {
namespace {

namespace fs = std::filesystem;
using test::Powercap;
using test::problem_at;
using test::readings;
using test::Rights;

constexpr DomainId kPackage{Scope::package, 0}, kDram{Scope::dram, 0};

// field failure 27, field failure 32
TEST(RaplRights, AnUnreadableDramDoesNotLoseThePackage) {
  Rights cpu;
  cpu.zone("intel-rapl:0", "package-0", 7);
  cpu.zone("intel-rapl:0:0", "dram", 7);
  cpu.mode("intel-rapl:0:0", "energy_uj", 0);
  const Machine machine = cpu.open_as_nobody();
  EXPECT_EQ(machine.domains.all(), std::vector{kPackage});
  const Problem* dram = problem_at(machine, "rapl intel-rapl:0:0");
  ASSERT_NE(dram, nullptr);
  EXPECT_EQ(dram->error.code, Errc::denied);
  EXPECT_EQ(dram->error.vendor, EACCES);
}

// field failure 29, field failure 30, field failure 31, field failure 33
TEST(RaplRights, SayWhichFileIsClosedAndTheThreeWaysOut) {
  Rights cpu;
  cpu.zone("intel-rapl:0", "package-0", 7);
  cpu.mode("intel-rapl:0", "energy_uj", 0);
  cpu.mode("intel-rapl:0", "max_energy_range_uj", 0);
  const Machine machine = cpu.open_as_nobody();
  EXPECT_TRUE(machine.devices.empty());
  ASSERT_EQ(machine.problems.size(), 1u);
  EXPECT_EQ(machine.problems[0].error.detail,
            "cannot open " + (cpu.root() / cpu.file("intel-rapl:0", "energy_uj")).string() +
                ": Permission denied, and perf has no power PMU here; join the group that owns "
                "this file, run zeusd, or run as root");
}

// field failure 35
TEST(RaplRights, TellTheVerdictOfEachZone) {
  Rights cpu;
  cpu.zone("intel-rapl:0", "package-0", 7);
  cpu.zone("intel-rapl:1", "package-1", 8);
  cpu.mode("intel-rapl:1", "energy_uj", 0);
  const Machine machine = cpu.open_as_nobody();
  EXPECT_EQ(machine.devices.size(), 1u);
  ASSERT_EQ(machine.problems.size(), 1u);
  EXPECT_EQ(machine.problems[0].where, "rapl intel-rapl:1");
}

// field failure 10
TEST(RaplRights, OfOneProviderDoNotMatterToTheOther) {
  Rights cpu;
  cpu.zone("intel-rapl:0", "package-0", 1);
  cpu.zone("intel-rapl-mmio:0", "package-0", 2);
  cpu.mode("intel-rapl-mmio:0", "energy_uj", 0);
  const Machine machine = cpu.open_as_nobody();
  EXPECT_EQ(machine.domains.all(), std::vector{kPackage});
  EXPECT_TRUE(machine.problems.empty());
}

// field failure 24: /proc/self/mem gives EIO at offset 0, a folder EISDIR.
TEST(RaplRights, SayOfWhichSocketsTheCountersAreOpenToEverybody) {
  Rights cpu;
  cpu.zone("intel-rapl:0", "package-0", 7);
  cpu.zone("intel-rapl:0:0", "dram", 8);
  cpu.zone("intel-rapl:1", "package-1", 9);
  cpu.zone("intel-rapl:1:0", "dram", 10);
  cpu.mode("intel-rapl:1:0", "energy_uj", 0400);
  const Machine machine = cpu.open();
  const auto open = [&](const char* id) {
    const auto& facts = machine.find(id)->info.facts;
    return std::find(facts.begin(), facts.end(),
                     std::pair<std::string, std::string>("counters", "world-readable")) !=
           facts.end();
  };
  EXPECT_TRUE(open("package-0"));
  EXPECT_FALSE(open("package-1"));
}

TEST(RaplErrors, KeepTheNumberOfTheSystemAndLoseOnlyTheirZone) {
  Powercap cpu;
  cpu.zone("intel-rapl:0", "package-0", 7);
  cpu.zone("intel-rapl:1", "package-1", 7);
  cpu.drop("intel-rapl:0", "energy_uj");
  fs::create_symlink("/proc/self/mem", cpu.root() / cpu.file("intel-rapl:0", "energy_uj"));
  cpu.drop("intel-rapl:1", "energy_uj");
  fs::create_directory(cpu.root() / cpu.file("intel-rapl:1", "energy_uj"));
  cpu.zone("intel-rapl:2", "package-2", 9);
  const Machine machine = cpu.open();
  ASSERT_EQ(machine.devices.size(), 1u);
  EXPECT_EQ(problem_at(machine, "rapl intel-rapl:0")->error.vendor, EIO);
  EXPECT_NE(problem_at(machine, "rapl intel-rapl:0")->error.detail.find("Input/output error"),
            std::string::npos);
  EXPECT_EQ(problem_at(machine, "rapl intel-rapl:1")->error.vendor, EISDIR);
}

// field failure 24
TEST(RaplErrors, OfEachKindTellTheirNumber) {
  constexpr const char* kZones = R"(
[[zone]]
path = "intel-rapl:0"
name = "package-0"
power = { kind = "constant", watts = 100 }
[[zone]]
path = "intel-rapl:1"
name = "package-1"
power = { kind = "constant", watts = 100 }
)";
  for (const int number : {ENODATA, EIO, ENODEV}) {
    test::Simulated sim(kZones);
    if (sim.session().files() != "fuse") GTEST_SKIP() << "needs /dev/fuse";
    sim::Fault fault;
    fault.target = sim::Fault::Target::zone;
    fault.what = sim::Fault::What::error_number;
    fault.device = 0;
    fault.calls = sim::calls_named("read");
    fault.code = number;
    ASSERT_TRUE(sim.session().fault(fault));
    const Machine machine = sim.open(rapl::kBackend);
    EXPECT_EQ(machine.devices.size(), 1u);
    ASSERT_EQ(machine.problems.size(), 1u) << test::sentences(machine);
    EXPECT_EQ(machine.problems[0].error.vendor, number);
  }
}

// field failure 25
TEST(RaplErrors, AreFilesWithoutANumber) {
  Powercap cpu;
  cpu.zone("intel-rapl:0", "package-0", 7);
  cpu.zone("intel-rapl:0:0", "dram", 7);
  for (const char* content : {"", "\n", "N/A\n", "-1\n"}) {
    cpu.write(cpu.file("intel-rapl:0:0", "energy_uj"), content);
    const Machine machine = cpu.open();
    EXPECT_EQ(machine.domains.all(), std::vector{kPackage});
    ASSERT_EQ(machine.problems.size(), 1u);
    EXPECT_EQ(machine.problems[0].where, "rapl intel-rapl:0:0");
    EXPECT_EQ(machine.problems[0].error.code, Errc::malformed);
    EXPECT_NE(machine.problems[0].error.detail.find("energy_uj"), std::string::npos);
  }
}

// field failure 26, field failure 37
TEST(RaplErrors, AMissingRangeIsSaidAndTheZoneMeasured) {
  Powercap cpu;
  cpu.zone("intel-rapl:0", "package-0", 4'000'000'000);
  for (const bool empty : {false, true}) {
    cpu.drop("intel-rapl:0", "max_energy_range_uj");
    if (empty) cpu.write(cpu.file("intel-rapl:0", "max_energy_range_uj"), "0\n");
    const Machine machine = cpu.open();
    ASSERT_EQ(machine.devices.size(), 1u);
    EXPECT_EQ(machine.devices[0].sensors[0].info.wrap, 0u);
    ASSERT_EQ(machine.problems.size(), 1u);
    EXPECT_EQ(machine.problems[0].where, "rapl intel-rapl:0");
    EXPECT_NE(machine.problems[0].error.detail.find("a wrap counts as a reset"), std::string::npos);
  }
}

// field failure 28
TEST(RaplErrors, OfAnUncoreAreNoConcernOfThePackage) {
  Powercap cpu;
  cpu.zone("intel-rapl:0", "package-0", 7);
  cpu.zone("intel-rapl:0:1", "uncore", 7);
  cpu.drop("intel-rapl:0:1", "energy_uj");
  const Machine machine = cpu.open();
  EXPECT_EQ(machine.domains.all(), std::vector{kPackage});
  ASSERT_EQ(machine.problems.size(), 1u);
  EXPECT_EQ(machine.problems[0].where, "rapl intel-rapl:0:1");
}

// field failure 144
TEST(RaplErrors, SayWhatIsMissingAndGuessNothing) {
  Powercap cpu;
  cpu.zone("intel-rapl:0", "package-0", 7);
  cpu.zone("intel-rapl:0:0", "dram", 8);
  cpu.drop("intel-rapl:0", "energy_uj");
  const Machine dram_only = cpu.open();
  EXPECT_EQ(dram_only.domains.all(), std::vector{kDram});
  EXPECT_NE(dram_only.problems.at(0).error.detail.find("energy_uj: No such file"),
            std::string::npos);
  cpu.drop("intel-rapl:0", "name");
  const Machine nameless = cpu.open();
  EXPECT_TRUE(nameless.devices.empty());
  EXPECT_NE(nameless.problems.at(0).error.detail.find("intel-rapl:0/name"), std::string::npos);
}

}  // namespace
}  // namespace zeus
