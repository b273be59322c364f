#include <gtest/gtest.h>

#include <filesystem>

#include "support/simulated.h"
#include "zeus/device.h"

namespace zeus {
namespace {

using test::Simulated;

Result<Machine> open_sim(const std::string& what) { return open({Address::Scheme::sim, what}); }

TEST(OpenSim, GivesABuiltInMachineThatSaysWhatItIs) {
  const Machine machine = open_sim("constant").value();
  ASSERT_EQ(machine.devices.size(), 1u);
  EXPECT_EQ(machine.devices[0].info.model, "Simulated 100 W");
  ASSERT_TRUE(machine.simulation);
  EXPECT_EQ(machine.simulation->scenario, "constant");
  EXPECT_TRUE(std::filesystem::is_directory(machine.simulation->session));
  EXPECT_EQ(test::read(test::sensor(machine.devices[0], "power_instant")).raw, 100'000u);
}

TEST(OpenSim, DoesNotLookOnTheRealMachineForWhatTheScenarioLacks) {
  const Machine machine = open_sim("constant").value();  // It has no zones.
  const auto* rapl = [&]() -> const Problem* {
    for (const Problem& p : machine.problems) {
      if (p.where == "rapl") return &p;
    }
    return nullptr;
  }();
  ASSERT_NE(rapl, nullptr);
  EXPECT_EQ(rapl->error.code, Errc::absent);
  EXPECT_EQ(rapl->error.detail.find("there is no /sys"), std::string::npos) << rapl->error.detail;
}

TEST(OpenSim, JoinsASessionByItsFolderAndLeavesItRunning) {
  Simulated sim("[[gpu]]\npower = { kind = \"constant\", watts = 60 }\nenergy = {}\n");
  const auto folder = sim.session().folder().string();
  { EXPECT_EQ(open_sim(folder).value().devices.size(), 1u); }
  EXPECT_EQ(open_sim(folder).value().devices.size(), 1u);
}

TEST(OpenSim, EndsTheSessionWithTheLastCopyOfTheMachine) {
  std::string libraries;
  {
    const Machine copy = [] { return open_sim("constant").value(); }();
    libraries = copy.simulation->session + "/lib";
    EXPECT_TRUE(std::filesystem::exists(libraries));
    EXPECT_EQ(test::read(test::sensor(copy.devices.at(0), "energy")).error, Errc::ok);
  }
  EXPECT_FALSE(std::filesystem::exists(libraries));
}

TEST(OpenSim, PassesOnWhyAScenarioCannotBeOpened) {
  const auto machine = open_sim("no-such-machine");
  ASSERT_FALSE(machine);
  EXPECT_TRUE(machine.error().detail.starts_with("cannot open sim:no-such-machine: "))
      << machine.error().detail;
}

}  // namespace
}  // namespace zeus
