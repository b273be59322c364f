#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "support/simulated.h"

namespace zeus {
namespace nvml {
extern const Backend kBackend;
}
namespace {

using test::read;
using test::read_until_ok;
using test::sensor;
using test::Simulated;

constexpr const char* kFour = R"(
[[gpu]]
count = 4
power = { kind = "constant", watts = 250 }
limit = { min = 200, max = 700 }
energy = {}
power_instant = {}
)";

/// The sentence that says why there are no GPUs.
std::string why(const Machine& machine) {
  EXPECT_TRUE(machine.devices.empty());
  EXPECT_EQ(machine.problems.size(), 1u);
  return machine.problems.at(0).error.detail;
}

// field failure 94
TEST(NvmlSession, TakesTheLibraryByEitherName) {
  const Simulated sim(kFour);
  const auto folder = sim.host().libraries;
  EXPECT_EQ(sim.open(nvml::kBackend).devices.size(), 4u);
  std::filesystem::rename(folder / "libnvidia-ml.so.1", folder / "libnvidia-ml.so");
  EXPECT_EQ(sim.open(nvml::kBackend).devices.size(), 4u);
}

// field failure 95, field failure 142: what is loaded is the driver's own library or nothing.
TEST(NvmlSession, IsAbsentWithoutALibraryAndNamesIt) {
  const Machine machine = open_local({"/nowhere", "/nowhere"}, {&nvml::kBackend, 1});
  const std::string text = why(machine);
  EXPECT_EQ(machine.problems[0].error.code, Errc::absent);
  EXPECT_NE(text.find("libnvidia-ml.so.1"), std::string::npos);
  EXPECT_NE(text.find("no NVIDIA driver here"), std::string::npos);
}

TEST(NvmlSession, IsAbsentInASimulatedMachineWithoutBlamingADriver) {
  const Machine machine = open_local({"/nowhere", "/nowhere", true}, {&nvml::kBackend, 1});
  EXPECT_EQ(why(machine), "the scenario has no NVIDIA GPU");
}

TEST(NvmlSession, SaysWhatTheLoaderSaysOfALibraryThatIsThereAndBroken) {
  test::Tree tree;
  tree.write("libnvidia-ml.so.1", "not a library");
  const Machine machine = open_local({"/nowhere", tree.root()}, {&nvml::kBackend, 1});
  EXPECT_EQ(machine.problems[0].error.code, Errc::absent);
  EXPECT_NE(why(machine).find("file too short"), std::string::npos) << why(machine);
}

// field failure 90, field failure 91
TEST(NvmlSession, ExplainsWhyItCannotBegin) {
  const std::tuple<int, Errc, const char*> cases[] = {
      {18, Errc::lost, "reload the module or reboot"},
      {9, Errc::absent, "modprobe nvidia"},
      {12, Errc::absent, "--gpus all"},
      {4, Errc::denied, "/dev/nvidiactl"},
      {999, Errc::lost, "restart the container"},
      {77, Errc::malformed, "NVML code 77"},
  };
  for (const auto& [code, errc, sentence] : cases) {
    Simulated sim(kFour);
    sim.fault("init", code);
    const Machine machine = sim.open(nvml::kBackend);
    EXPECT_NE(why(machine).find(sentence), std::string::npos) << why(machine);
    EXPECT_EQ(machine.problems[0].error.code, errc) << code;
    EXPECT_EQ(machine.problems[0].error.vendor, code);
  }
}

// field failure 156
TEST(NvmlSession, GivesBackEveryReferenceThatItTook) {
  Simulated sim(kFour);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(sim.open(nvml::kBackend).devices.size(), 4u);
  EXPECT_EQ(sim.calls("init"), 100u);
  EXPECT_EQ(sim.calls("shutdown"), 100u);
  sim.fault("count", 999);
  (void)sim.open(nvml::kBackend);
  EXPECT_EQ(sim.calls("init"), sim.calls("shutdown"));
}

// field failure 89: a GPU is lost while it is being measured, and comes back.
TEST(NvmlSession, LosesOneGpuAloneAndAsksForItAgain) {
  Simulated sim(kFour);
  const Machine machine = sim.open(nvml::kBackend);
  const Sensor* dead = sensor(machine.devices.at(1), "energy");
  const auto fault = sim.fault("fields", 15, 1);
  EXPECT_EQ(read(dead).error, Errc::lost);
  const auto calls = sim.calls("fields");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(dead).error, Errc::lost);
  EXPECT_LE(sim.calls("fields") - calls, 2u);  // It is left in peace between.
  for (const std::size_t i : {0u, 2u, 3u}) {
    EXPECT_EQ(read(sensor(machine.devices[i], "energy")).error, Errc::ok);
  }
  EXPECT_EQ(sim.calls("init"), 1u);
  sim.remove(fault);
  EXPECT_EQ(read_until_ok(dead).error, Errc::ok);
}

// field failure 89: the loss may be told in every slot of a call that succeeds.
TEST(NvmlSession, KnowsALostGpuByItsSlots) {
  Simulated sim(kFour);
  const Machine machine = sim.open(nvml::kBackend);
  sim.fault("field:energy", 15, 1);
  sim.fault("field:power", 15, 1);
  const auto calls = sim.calls("fields");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(read(sensor(machine.devices.at(1), "power_instant")).error, Errc::lost);
  }
  EXPECT_LE(sim.calls("fields") - calls, 3u);
  EXPECT_EQ(read(sensor(machine.devices[0], "power_instant")).error, Errc::ok);
}

// field failure 91
TEST(NvmlSession, IsOpenedAnewAfterTheDeviceFilesWereTakenAway) {
  Simulated sim(kFour);
  const Machine machine = sim.open(nvml::kBackend);
  const auto gone = sim.fault("all", 999);
  for (int i = 0; i < 10; ++i) {
    for (const Device& d : machine.devices) EXPECT_EQ(read(sensor(d, "energy")).error, Errc::lost);
  }
  EXPECT_LE(sim.calls("init"), 4u);  // The first, and a few in vain: it backs off.
  sim.remove(gone);
  for (const Device& d : machine.devices) {
    EXPECT_EQ(read_until_ok(sensor(d, "energy")).error, Errc::ok);
  }
}

// field failure 91: one GPU that answers 999 for reasons of its own does not cost the others.
TEST(NvmlSession, IsNotOpenedAnewForOneGpuThatFails) {
  Simulated sim(kFour);
  const Machine machine = sim.open(nvml::kBackend);
  sim.fault("fields", 999, 2);
  for (int i = 0; i < 10; ++i) {
    for (const Device& d : machine.devices) {
      EXPECT_EQ(read(sensor(d, "energy")).error, d.info.index == 2 ? Errc::lost : Errc::ok);
    }
  }
  EXPECT_EQ(sim.calls("init"), 1u);
}

TEST(NvmlSession, IsOpenedAnewAtOnceAfterADriverReload) {
  Simulated sim(kFour);
  const Machine machine = sim.open(nvml::kBackend);
  const Sensor* energy = sensor(machine.devices.at(3), "energy");
  const auto unloaded = sim.fault("fields", 1);
  EXPECT_EQ(read(energy).error, Errc::lost);
  sim.remove(unloaded);
  EXPECT_EQ(read(energy).error, Errc::ok);
  EXPECT_EQ(sim.calls("init"), 2u);
  EXPECT_EQ(sim.calls("shutdown"), 1u);
  EXPECT_EQ(sim.calls("nvmlDeviceGetHandleByUUID"), 4u);  // Numbers may have moved.
}

// The simulated driver serves only the process that called nvmlInit, as the real one does.
TEST(NvmlSession, IsOpenedByAForkedChildOnFirstUse) {
  Simulated sim(kFour);
  const Machine machine = sim.open(nvml::kBackend);
  const Sensor* energy = sensor(machine.devices.at(0), "energy");
  const pid_t child = ::fork();
  if (child == 0) {
    const bool good = read(energy).error == Errc::ok && read(energy).error == Errc::ok;
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sim.calls("init"), 2u);
  EXPECT_EQ(sim.calls("shutdown"), 0u);  // The parent's reference is not the child's to give back.
  EXPECT_EQ(read(energy).error, Errc::ok);
}

TEST(NvmlSession, ServesManyThreadsWhileTheDriverIsReloaded) {
  Simulated sim(kFour);
  const Machine machine = sim.open(nvml::kBackend);
  std::atomic<bool> stop{false};
  std::atomic<int> odd{0};
  std::vector<std::thread> threads;
  for (const Device& d : machine.devices) {
    threads.emplace_back([&stop, &odd, energy = sensor(d, "energy")] {
      while (!stop) {
        const Errc e = read(energy).error;
        if (e != Errc::ok && e != Errc::lost && e != Errc::busy) ++odd;
      }
    });
  }
  for (int i = 0; i < 3; ++i) sim.remove(sim.fault("fields", 1));
  stop = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(odd, 0);
  for (const Device& d : machine.devices) {
    EXPECT_EQ(read_until_ok(sensor(d, "energy")).error, Errc::ok);
  }
}

}  // namespace
}  // namespace zeus
