#include <gtest/gtest.h>

#include <array>

#include "support/allocations.h"
#include "support/simulated.h"

namespace zeus {
namespace nvml {
extern const Backend kBackend;
}
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::read;
using test::sensor;
using test::sentences;
using test::Simulated;

constexpr const char* kH200 = R"(
[[gpu]]
count = 2
model = "Simulated H200"
power = { kind = "constant", watts = 250 }
limit = { min = 200, max = 700 }
temperature = 35
energy = {}
power_instant = {}
power_average = { kind = "mean", window = "1s" }
power_usage = { kind = "mean", window = "1s" }
memory_power = { kind = "mean", window = "1s", gain = 0.2 }
)";

std::vector<std::string> names(const Device& device) {
  std::vector<std::string> out;
  for (const Sensor& s : device.sensors) out.push_back(s.info.name);
  return out;
}

bool tells(const Machine& machine, const std::string& part) {
  return sentences(machine).find(part) != std::string::npos;
}

// field failure 100
TEST(NvmlSensors, AreNamedByWhatTheyRead) {
  Simulated sim(kH200);
  const Machine machine = sim.open(nvml::kBackend);
  const Device& d = machine.devices.at(0);
  EXPECT_EQ(names(d), (std::vector<std::string>{
                          "energy", "power_instant", "power_average", "memory_power_average",
                          "temperature", "sm_clock", "memory_clock", "gpu_utilization",
                          "memory_utilization", "memory_used", "throttle_reasons"}));
  sim.session().set_counter(0, 5'000);
  EXPECT_EQ(read(sensor(d, "energy")).raw, 5'000u);
  EXPECT_EQ(read(sensor(d, "power_instant")).raw, 250'000u);
  EXPECT_EQ(read(sensor(d, "memory_power_average")).raw, 50'000u);
  EXPECT_EQ(sensor(d, "power_average")->info.profile.window, seconds(1));
  EXPECT_EQ(sensor(d, "memory_power_average")->info.domain, (DomainId{Scope::memory, 0}));
}

TEST(NvmlSensors, KnowTheirUnitsLimitsAndLineage) {
  const Simulated sim(kH200);
  const Machine machine = sim.open(nvml::kBackend);
  const Device& d = machine.devices.at(1);
  const SensorInfo& energy = sensor(d, "energy")->info;
  EXPECT_EQ(energy.scale, 1e-3);
  EXPECT_EQ(energy.wrap, 0u);
  EXPECT_EQ(energy.domain, (DomainId{Scope::gpu, 1}));
  EXPECT_EQ(energy.lineage, "nvidia-board:" + d.info.id);
  EXPECT_EQ(energy.lineage, sensor(d, "power_instant")->info.lineage);
  EXPECT_EQ(energy.profile.id, "nvml:83:scope0");
  EXPECT_EQ(energy.profile.update, milliseconds(100));
  EXPECT_DOUBLE_EQ(energy.profile.power_max_w, 840);  // 1.2 x 700 W.
  EXPECT_EQ(sensor(d, "power_instant")->info.profile.id, "nvml:186:scope0");
  EXPECT_EQ(sensor(d, "sm_clock")->info.scale, 1e6);
  EXPECT_EQ(sensor(d, "gpu_utilization")->info.scale, 1e-2);
  EXPECT_EQ(sensor(d, "memory_used")->info.scale, 1);
}

// field failure 117
TEST(NvmlSensors, CostOneCallAGpuAtTheEdgeOfAWindow) {
  const Simulated sim(kH200);
  const Machine machine = sim.open(nvml::kBackend);
  const auto all = sim.calls("all"), fields = sim.calls("field:energy");
  for (const Device& d : machine.devices) EXPECT_EQ(read(sensor(d, "energy")).error, Errc::ok);
  EXPECT_EQ(sim.calls("field:energy") - fields, 2u);  // And nothing else was asked for in it.
  EXPECT_EQ(sim.calls("all") - all, 4u);              // Two calls, with one field each.
}

TEST(NvmlSensors, ComeAllInOneCallWhereThereAreFields) {
  const Simulated sim(kH200);
  const Machine machine = sim.open(nvml::kBackend);
  const Device& d = machine.devices.at(0);
  EXPECT_EQ(sensor(d, "energy")->source, sensor(d, "memory_power_average")->source);
  const auto before = sim.calls("fields");
  std::array<Reading, 4> out;
  ASSERT_EQ(sensor(d, "energy")->source->read(out), Errc::ok);
  EXPECT_EQ(sim.calls("fields") - before, 1u);
  for (const Reading& r : out) EXPECT_EQ(r.error, Errc::ok);
}

// field failure 116
TEST(NvmlSensors, AskForWhatIsNotSupportedOnce) {
  Simulated sim(kH200);
  for (const char* call : {"utilization", "temperature", "throttle"}) sim.fault(call, 3);
  const Machine machine = sim.open(nvml::kBackend);
  EXPECT_EQ(sensor(machine.devices[0], "gpu_utilization"), nullptr);
  EXPECT_EQ(sim.calls("utilization"), 2u);  // Two GPUs.
  for (int i = 0; i < 10; ++i) {
    for (const Sensor& s : machine.devices[0].sensors) (void)read(&s);
  }
  EXPECT_EQ(sim.calls("utilization"), 2u);
  EXPECT_FALSE(tells(machine, "utilization"));
}

// field failure 85
TEST(NvmlSensors, OfACardWithoutACounterArePowerAndThatIsSaidOnce) {
  const Simulated sim(R"(
[nvml]
library = "old"
[[gpu]]
model = "GTX 1080"
architecture = "pascal"
power = { kind = "constant", watts = 26 }
limit = { min = 90, max = 217 }
power_usage = {}
)");
  const Machine machine = sim.open(nvml::kBackend);
  const Device& d = machine.devices.at(0);
  EXPECT_EQ(sensor(d, "energy"), nullptr);
  EXPECT_EQ(read(sensor(d, "power")).raw, 26'000u);
  EXPECT_EQ(read(sensor(d, "temperature")).error, Errc::ok);
  EXPECT_TRUE(machine.domains.all().empty());
  ASSERT_EQ(machine.problems.size(), 1u) << sentences(machine);
  EXPECT_EQ(machine.problems[0].error.code, Errc::unsupported);
  EXPECT_TRUE(tells(machine, "its energy is integrated from samples of its power"));
}

TEST(NvmlSensors, FallBackToTheCounterOfAnOldDriver) {
  Simulated sim(R"(
[nvml]
library = "old"
[[gpu]]
architecture = "volta"
power = { kind = "constant", watts = 100 }
energy = {}
power_usage = {}
)");
  const Machine machine = sim.open(nvml::kBackend);
  const Device& d = machine.devices.at(0);
  sim.session().set_counter(0, 1'234);
  EXPECT_EQ(read(sensor(d, "energy")).raw, 1'234u);
  EXPECT_EQ(read(sensor(d, "power")).raw, 100'000u);
  EXPECT_NE(sensor(d, "energy")->source, sensor(d, "power")->source);
}

TEST(NvmlSensors, UseTheCallWhereTheFieldCountsSomethingElse) {
  Simulated sim(kH200);
  sim.session().set_counter(0, 5'000);
  sim.value("field:energy", 900'000'000'000);
  const Machine machine = sim.open(nvml::kBackend);
  EXPECT_EQ(read(sensor(machine.devices.at(0), "energy")).raw, 5'000u);
}

// field failure 84: whatever the architecture says.
TEST(NvmlSensors, AreFoundByAskingAndNotByArchitecture) {
  for (const char* architecture : {"ampere", "blackwell", "kepler"}) {
    Simulated sim("[[gpu]]\narchitecture = \"" + std::string(architecture) +
                  "\"\npower = { kind = \"constant\", watts = 30 }\nenergy = {}\n"
                  "power_instant = {}\n");
    EXPECT_NE(sensor(sim.open(nvml::kBackend).devices.at(0), "energy"), nullptr);
    sim.fault("energy", 3);
    sim.value("nvmlDeviceGetArchitecture", 0xffffffff);
    const Machine machine = sim.open(nvml::kBackend);
    EXPECT_EQ(sensor(machine.devices.at(0), "energy"), nullptr) << architecture;
    EXPECT_EQ(read(sensor(machine.devices[0], "power_instant")).raw, 30'000u) << architecture;
  }
}

// field failure 87
TEST(NvmlSensors, OfADeviceThatAnswersNothingAreNone) {
  Simulated sim("[[gpu]]\nmodel = \"Orin (nvgpu)\"\npower = { kind = \"constant\", watts = 9 }\n");
  for (const char* call :
       {"temperature", "clocks", "utilization", "memory", "throttle", "persistence"}) {
    sim.fault(call, 3);
  }
  const Machine machine = sim.open(nvml::kBackend);
  EXPECT_TRUE(machine.devices.at(0).sensors.empty());
  EXPECT_TRUE(tells(machine, "Orin (nvgpu)"));
  EXPECT_TRUE(tells(machine, "tells neither energy nor power"));
}

// field failure 88
TEST(NvmlSensors, OfOneCardAreNoConcernOfTheOther) {
  const Simulated sim(R"(
[[gpu]]
power = { kind = "constant", watts = 50 }
[[gpu]]
power = { kind = "constant", watts = 250 }
power_usage = {}
)");
  const Machine machine = sim.open(nvml::kBackend);
  EXPECT_EQ(sensor(machine.devices.at(0), "power"), nullptr);
  EXPECT_EQ(read(sensor(machine.devices.at(1), "power")).raw, 250'000u);
  EXPECT_EQ(test::knob(machine.devices[1], "power_limit"), nullptr);
}

// field failure 141: WSL2 tells power, but neither its limit nor energy.
TEST(NvmlSensors, InWslArePowerOnly) {
  const Simulated sim("[[gpu]]\npower = { kind = \"constant\", watts = 40 }\npower_usage = {}\n");
  const Machine machine = sim.open(nvml::kBackend);
  const Sensor* power = sensor(machine.devices.at(0), "power");
  EXPECT_EQ(read(power).raw, 40'000u);
  EXPECT_EQ(power->info.profile.power_max_w, 0);
  EXPECT_TRUE(tells(machine, "integrated"));
}

// field failure 99: die, module and memory with 700, 900 and 120 W.
TEST(NvmlSensors, OfAllScopesAreReadableAndNamed) {
  const Simulated sim(R"(
[[gpu]]
power = { kind = "constant", watts = 700 }
energy = {}
module_energy = {}
power_instant = {}
power_average = { kind = "mean", window = "1s" }
module_power = { gain = 1.2857142857142858 }
memory_power = { gain = 0.17142857142857143 }
)");
  const Machine machine = sim.open(nvml::kBackend);
  const Device& d = machine.devices.at(0);
  EXPECT_EQ(read(sensor(d, "power_instant")).raw, 700'000u);
  EXPECT_EQ(read(sensor(d, "module_power_instant")).raw, 900'000u);
  EXPECT_EQ(read(sensor(d, "module_power_average")).raw, 900'000u);
  EXPECT_EQ(read(sensor(d, "memory_power_average")).raw, 120'000u);
  EXPECT_EQ(sensor(d, "module_power_instant")->info.domain, (DomainId{Scope::module, 0}));
  EXPECT_EQ(sensor(d, "module_energy")->info.profile.id, "nvml:191:scope1");
  EXPECT_EQ(machine.domains.roots(), (std::vector<DomainId>{{Scope::module, 0}}));
}

// field failure 97: a plain board answers for the GPU only.
TEST(NvmlSensors, OfAPlainBoardAreTheGpus) {
  const Simulated sim(
      "[[gpu]]\nc2c = true\npower = { kind = \"constant\", watts = 60 }\nenergy = {}\n"
      "power_instant = {}\n");
  const Machine machine = sim.open(nvml::kBackend);
  EXPECT_EQ(sensor(machine.devices.at(0), "power_instant")->info.domain, (DomainId{Scope::gpu, 0}));
  EXPECT_EQ(sensor(machine.devices[0], "module_power_instant"), nullptr);
}

// field failure 97, field failure 98: GH200 answers for the module only, and counts for it.
TEST(NvmlSensors, OfASuperchipAreTheModulesWhereTheGpuAloneIsNotTold) {
  const Simulated sim(
      "[[gpu]]\nc2c = true\npower = { kind = \"constant\", watts = 450 }\nenergy = {}\n"
      "module_power = {}\npower_usage = {}\n");
  const Machine machine = sim.open(nvml::kBackend);
  const Device& d = machine.devices.at(0);
  EXPECT_EQ(sensor(d, "power_instant"), nullptr);
  EXPECT_EQ(read(sensor(d, "module_power_instant")).raw, 450'000u);
  EXPECT_EQ(sensor(d, "energy"), nullptr);
  EXPECT_EQ(sensor(d, "module_energy")->info.domain, (DomainId{Scope::module, 0}));
  EXPECT_EQ(machine.domains.roots(), (std::vector<DomainId>{{Scope::module, 0}}));
  EXPECT_TRUE(covers({Scope::module, 0}, {Scope::package, 0}));
}

// A driver from before there were scopes answers the GPU's power for each of them.
TEST(NvmlSensors, OfADriverWithoutScopesAreTheGpusAlone) {
  const Simulated sim(
      "[nvml]\nscopes = false\n[[gpu]]\npower = { kind = \"constant\", watts = 60 }\n"
      "energy = {}\npower_instant = {}\npower_average = {}\n");
  const Machine machine = sim.open(nvml::kBackend);
  EXPECT_EQ(machine.domains.all(), (std::vector<DomainId>{{Scope::gpu, 0}}));
  for (const char* name :
       {"module_power_instant", "module_power_average", "module_energy", "memory_power_average"}) {
    EXPECT_EQ(sensor(machine.devices.at(0), name), nullptr) << name;
  }
  EXPECT_EQ(read(sensor(machine.devices[0], "power_average")).raw, 60'000u);
}

// field failure 104
TEST(NvmlReadings, OfNoPowerAreNone) {
  Simulated sim(kH200);
  const Machine machine = sim.open(nvml::kBackend);
  const Sensor* power = sensor(machine.devices.at(0), "power_instant");
  const auto zero = sim.value("field:power", 0);
  EXPECT_EQ(read(power).error, Errc::busy);
  sim.remove(zero);
  EXPECT_EQ(read(power).error, Errc::ok);
  sim.fault("nvmlDeviceGetFieldValues", 3, 0, 3);  // Every third call.
  int failed = 0;
  for (int i = 0; i < 9; ++i) failed += read(power).error == Errc::unsupported ? 1 : 0;
  EXPECT_EQ(failed, 3);
}

// field failure 96, field failure 112, field failure 113
TEST(NvmlReadings, OfGarbageAreMalformed) {
  Simulated sim(kH200);
  const Machine machine = sim.open(nvml::kBackend);
  const Device& d = machine.devices.at(0);
  // The limit is 700 W: 1050 W may be, more is not. 3.7e6 W is what a 32-bit library answered.
  for (const unsigned long long mw :
       {1'050'001ULL, 3'700'000'000ULL, 2'147'483'632ULL, 4'294'967'295ULL}) {
    const auto fault = sim.value("field:power", mw);
    EXPECT_EQ(read(sensor(d, "power_instant")).error, Errc::malformed) << mw;
    EXPECT_EQ(read(sensor(d, "energy")).error, Errc::ok);
    sim.remove(fault);
  }
  const auto most = sim.value("field:power", 1'050'000);
  EXPECT_EQ(read(sensor(d, "power_instant")).error, Errc::ok);
  sim.remove(most);
  for (const unsigned long long mj :
       {140737488355328ULL, 140737488355331ULL, 9223372036854775792ULL, 18446744073709551615ULL}) {
    const auto fault = sim.value("field:energy", mj);
    EXPECT_EQ(read(sensor(d, "energy")).error, Errc::malformed) << mj;
    sim.remove(fault);
  }
  sim.value("temperature", 2'147'483'632);
  EXPECT_EQ(read(sensor(d, "temperature")).error, Errc::malformed);
}

// field failure 96: the same where power has a call of its own, and nobody knows a limit.
TEST(NvmlReadings, OfMoreThanAnyBoardCanDrawAreMalformed) {
  Simulated sim("[[gpu]]\npower = { kind = \"constant\", watts = 40 }\npower_usage = {}\n");
  const Machine machine = sim.open(nvml::kBackend);
  const Sensor* power = sensor(machine.devices.at(0), "power");
  sim.value("power", 20'000'001);
  EXPECT_EQ(read(power).error, Errc::malformed);
  sim.value("power", 0);
  EXPECT_EQ(read(power).error, Errc::busy);
}

// field failure 86
TEST(NvmlReadings, WithACodeThatNobodyKnowsDegradeAlone) {
  Simulated sim(kH200);
  const Machine machine = sim.open(nvml::kBackend);
  const Device& d = machine.devices.at(0);
  std::array<Reading, 2> out;
  for (const auto& [code, error] :
       {std::pair{27, Errc::busy}, {77, Errc::malformed}, {4, Errc::denied}}) {
    const auto fault = sim.fault("field:energy", code);
    ASSERT_EQ(sensor(d, "energy")->source->read(out), Errc::ok);
    EXPECT_EQ(out[0].error, error) << code;
    EXPECT_EQ(out[1].error, Errc::ok);
    sim.remove(fault);
  }
  EXPECT_EQ(read(sensor(d, "energy")).error, Errc::ok);
}

// field failure 86: and so when opening.
TEST(NvmlReadings, ThatAreNotReadyWhenOpeningDoNotStopIt) {
  for (const int code : {27, 77}) {
    Simulated sim(kH200);
    sim.fault("energy", code);
    const Machine machine = sim.open(nvml::kBackend);
    ASSERT_EQ(machine.devices.size(), 2u);
    EXPECT_EQ(sensor(machine.devices[0], "energy"), nullptr);
    EXPECT_EQ(read(sensor(machine.devices[0], "power_instant")).error, Errc::ok);
    EXPECT_TRUE(tells(machine, "(NVML code " + std::to_string(code) + ")"));
  }
}

TEST(NvmlReadings, AllocateNothingWhetherTheyWorkOrFail) {
  for (const char* library : {"new", "old"}) {
    Simulated sim("[nvml]\nlibrary = \"" + std::string(library) + "\"\n" + kH200);
    const Machine machine = sim.open(nvml::kBackend);
    for (const int code : {0, 3, 15, 999}) {
      const std::size_t fault = code == 0 ? 0 : sim.fault("all", code);
      for (const Sensor& s : machine.devices[0].sensors) {
        std::array<Reading, 4> out;
        const auto before = test::allocations();
        (void)s.source->read(std::span(out).first(s.slot + 1));
        EXPECT_EQ(test::allocations(), before) << s.info.name << ' ' << code;
      }
      if (code != 0) sim.remove(fault);
    }
  }
}

}  // namespace
}  // namespace zeus
