#include <gtest/gtest.h>

#include "support/simulated.h"
#include "zeus/lease.h"

namespace zeus {
namespace nvml {
extern const Backend kBackend;
}
namespace {

using test::knob;
using test::Simulated;

constexpr const char* kTwo = R"(
[nvml]
control = "everyone"
[[gpu]]
count = 2
power = { kind = "constant", watts = 250 }
limit = { min = 200, max = 700, default = 650 }
sm_clocks = [210, 1980]
memory_clocks = [1593, 2619]
persistence = false
energy = {}
)";

struct NvmlKnobs : testing::Test {
  Result<Lease> take(std::string_view name, Setting value) {
    return Lease::take(machine, machine.devices[1].info.id, name, value, journal.root());
  }
  Simulated sim{kTwo};
  Machine machine = sim.open(nvml::kBackend);
  test::Tree journal;
};

TEST_F(NvmlKnobs, KnowTheirRangesInSi) {
  const Device& d = machine.devices[0];
  ASSERT_EQ(d.knobs.size(), 4u);
  const KnobInfo& limit = *knob(d, "power_limit");
  EXPECT_DOUBLE_EQ(limit.min, 200);
  EXPECT_DOUBLE_EQ(limit.max, 700);
  EXPECT_DOUBLE_EQ(limit.standard, 650);
  EXPECT_DOUBLE_EQ(knob(d, "sm_clock")->min, 210e6);
  EXPECT_DOUBLE_EQ(knob(d, "sm_clock")->max, 1980e6);
  EXPECT_DOUBLE_EQ(knob(d, "sm_clock")->standard, 0);
  EXPECT_DOUBLE_EQ(knob(d, "memory_clock")->min, 1593e6);
  EXPECT_DOUBLE_EQ(knob(d, "memory_clock")->max, 2619e6);
  EXPECT_EQ(knob(d, "persistence")->quantity, Quantity::state);
}

TEST_F(NvmlKnobs, SetAPowerLimitUnderALeaseAndRestoreIt) {
  {
    auto lease = take("power_limit", 412.5);
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->former(), 650);
    EXPECT_DOUBLE_EQ(sim.session().machine().limit_watts(1), 412.5);
    EXPECT_DOUBLE_EQ(sim.session().machine().limit_watts(0), 650);
  }
  EXPECT_DOUBLE_EQ(sim.session().machine().limit_watts(1), 650);
}

TEST_F(NvmlKnobs, LockClocksAndUnlockThemAgain) {
  const auto& state = sim.session().machine().state().device(1);
  {
    auto lease = take("sm_clock", 1200e6);
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->former(), 0);
    EXPECT_EQ(state.sm_lock.load(), std::uint64_t{1200} << 32 | 1200);
    EXPECT_TRUE(lease->turn(0));
    EXPECT_EQ(state.sm_lock.load(), 0u);
    EXPECT_TRUE(lease->turn(1500e6));
  }
  EXPECT_EQ(state.sm_lock.load(), 0u);
  {
    auto range = take("sm_clock", {600e6, 1800e6});
    ASSERT_TRUE(range);
    EXPECT_EQ(state.sm_lock.load(), std::uint64_t{600} << 32 | 1800);
  }
  EXPECT_EQ(state.sm_lock.load(), 0u);
  auto memory = take("memory_clock", 1593e6);
  ASSERT_TRUE(memory);
  EXPECT_EQ(state.memory_lock.load(), std::uint64_t{1593} << 32 | 1593);
}

TEST_F(NvmlKnobs, SwitchPersistence) {
  auto lease = take("persistence", 1);
  ASSERT_TRUE(lease) << lease.error().detail;
  EXPECT_EQ(lease->former(), 0);
}

// field failure 82
TEST_F(NvmlKnobs, ReadBackWhatTheySetAndFindTheirGpuByUuid) {
  const auto reload = sim.fault("fields", 1);
  EXPECT_EQ(test::read(test::sensor(machine.devices[1], "energy")).error, Errc::lost);
  sim.remove(reload);
  ASSERT_TRUE(take("power_limit", 300));
  EXPECT_GE(sim.calls("nvmlDeviceGetHandleByUUID"), 2u);
  sim.value("nvmlDeviceGetPowerManagementLimit", 650'000);
  const auto lease = take("power_limit", 300);
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().detail, "nvmlDeviceSetPowerManagementLimit on " +
                                      machine.devices[1].info.id +
                                      " was accepted for 300000, but it reads back as 650000");
}

TEST(NvmlKnobsDenied, SayWhoMayTurnThem) {
  Simulated sim(
      "[nvml]\ncontrol = \"nobody\"\n[[gpu]]\npower = { kind = \"constant\", watts = 9 "
      "}\nlimit = { min = 100, max = 300 }\n");
  const Machine machine = sim.open(nvml::kBackend);
  const test::Tree journal;
  const auto lease =
      Lease::take(machine, machine.devices.at(0).info.id, "power_limit", 200, journal.root());
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().code, Errc::denied);
  EXPECT_TRUE(lease.error().detail.ends_with("; run as root or through zeusd"));
  EXPECT_DOUBLE_EQ(sim.session().machine().limit_watts(0), 300);
}

// field failure 88
TEST(NvmlKnobsMissing, AreAbsentWhereTheGpuHasNone) {
  Simulated sim("[[gpu]]\npower = { kind = \"constant\", watts = 9 }\n");
  sim.fault("persistence", 3);
  sim.fault("clocks", 3);
  EXPECT_TRUE(sim.open(nvml::kBackend).devices.at(0).knobs.empty());
}

}  // namespace
}  // namespace zeus
