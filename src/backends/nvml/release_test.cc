// A driver that is let go of on request, so that it can be unloaded or a GPU be reset.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/simulated.h"

namespace zeus {
namespace nvml {
extern const Backend kBackend;
}
namespace {

using test::knob;
using test::read;
using test::sensor;
using test::Simulated;

constexpr const char* kTwo = R"(
[nvml]
control = "everyone"
[[gpu]]
count = 2
power = { kind = "constant", watts = 250 }
limit = { min = 200, max = 700 }
energy = {}
power_instant = {}
)";

Driver& driver_of(const Machine& machine) {
  EXPECT_EQ(machine.drivers.size(), 1u);
  return *machine.drivers.at(0);
}

// field failure 93
TEST(NvmlRelease, LeavesNothingOpenUntilItIsTakenAgain) {
  Simulated sim(kTwo);
  const Machine machine = sim.open(nvml::kBackend);
  Driver& driver = driver_of(machine);
  const Sensor* energy = sensor(machine.devices.at(1), "energy");
  const std::uint64_t before = read(energy).raw;
  ASSERT_TRUE(driver.release());
  EXPECT_EQ(sim.calls("init"), 1u);
  EXPECT_EQ(sim.calls("shutdown"), 1u);

  const auto fields = sim.calls("fields"), limits = sim.calls("limit");
  for (const Device& d : machine.devices) {
    for (const Sensor& s : d.sensors) EXPECT_EQ(read(&s).error, Errc::busy) << s.info.name;
    const auto limit = knob(d, "power_limit")->knob->get();
    EXPECT_EQ(limit ? Errc::ok : limit.error().code, Errc::busy);
  }
  EXPECT_EQ(sim.calls("init"), 1u) << "a read must not open it";
  EXPECT_EQ(sim.calls("fields"), fields);
  EXPECT_EQ(sim.calls("limit"), limits);

  ASSERT_TRUE(driver.acquire());
  EXPECT_EQ(sim.calls("init"), 2u);
  EXPECT_EQ(sim.calls("nvmlDeviceGetHandleByUUID"), 2u) << "numbers may have moved";
  const Reading after = read(energy);
  EXPECT_EQ(after.error, Errc::ok);
  EXPECT_GE(after.raw, before);
}

TEST(NvmlRelease, IsBalancedHoweverOftenAndInWhateverStateTheMachineIsClosed) {
  Simulated sim(kTwo);
  {
    const Machine machine = sim.open(nvml::kBackend);
    Driver& driver = driver_of(machine);
    EXPECT_TRUE(driver.acquire()) << "it is held";
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(driver.release());
      EXPECT_TRUE(driver.release());
      EXPECT_TRUE(driver.acquire());
      EXPECT_TRUE(driver.acquire());
    }
    EXPECT_EQ(sim.calls("init"), 6u);
    EXPECT_EQ(sim.calls("shutdown"), 5u);
    EXPECT_TRUE(driver.release());
  }
  EXPECT_EQ(sim.calls("init"), 6u);
  EXPECT_EQ(sim.calls("shutdown"), 6u);
}

// While it was away the driver was unloaded, and comes back later than promised.
TEST(NvmlRelease, OfADriverThatIsNotBackYetSaysSoAndAsksAgain) {
  Simulated sim(kTwo);
  const Machine machine = sim.open(nvml::kBackend);
  const Sensor* energy = sensor(machine.devices.at(0), "energy");
  ASSERT_TRUE(driver_of(machine).release());
  const auto unloaded = sim.fault("init", 9);
  const Status back = driver_of(machine).acquire();
  ASSERT_FALSE(back);
  EXPECT_NE(back.error().detail.find("cannot open NVML again: Driver Not Loaded"),
            std::string::npos)
      << back.error().detail;
  EXPECT_EQ(read(energy).error, Errc::lost);
  sim.remove(unloaded);
  EXPECT_EQ(test::read_until_ok(energy).error, Errc::ok);
}

TEST(NvmlRelease, HoldsForAForkedChildToo) {
  Simulated sim(kTwo);
  const Machine machine = sim.open(nvml::kBackend);
  const Sensor* energy = sensor(machine.devices.at(0), "energy");
  ASSERT_TRUE(driver_of(machine).release());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(read(energy).error == Errc::busy ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sim.calls("init"), 1u);
}

TEST(NvmlRelease, WinsOverThreadsThatRead) {
  Simulated sim(kTwo);
  const Machine machine = sim.open(nvml::kBackend);
  Driver& driver = driver_of(machine);
  std::atomic<bool> stop{false};
  std::atomic<int> odd{0};
  std::vector<std::thread> threads;
  for (const Device& d : machine.devices) {
    threads.emplace_back([&, energy = sensor(d, "energy")] {
      while (!stop) {
        const Errc e = read(energy).error;
        if (e != Errc::ok && e != Errc::lost && e != Errc::busy) ++odd;
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(driver.release());
    EXPECT_EQ(sim.calls("init"), sim.calls("shutdown"));
    ASSERT_TRUE(driver.acquire());
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(odd, 0);
  EXPECT_EQ(sim.calls("init"), sim.calls("shutdown") + 1);
}

}  // namespace
}  // namespace zeus
