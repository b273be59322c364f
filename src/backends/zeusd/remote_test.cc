#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>

#include "device/backend.h"
#include "support/allocations.h"
#include "support/peer.h"
#include "support/simulated.h"
#include "zeus/device.h"
#include "zeus/monitor.h"

// The machines of daemons of every generation, opened through the real loader. The daemons are
// scripts on real sockets.

namespace zeus {
namespace {

using test::knob;
using test::Peer;
using test::read;
using test::sensor;
using Call = Peer::Call;
/// What each target answers; of those that are not here it is 404, as upstream answers.
using Answers = std::map<std::string, std::pair<int, std::string>>;

constexpr const char* kMaster =
    R"({"gpus":[{"id":0,"name":"NVIDIA A100","pci_address":"0000:19:00.0",)"
    R"("cumulative_energy_available":true},{"id":1,"name":"NVIDIA A100",)"
    R"("pci_address":"0000:C1:00.0","cumulative_energy_available":false}],)"
    R"("cpus":[{"id":0,"dram_available":true},{"id":1,"dram_available":false}],)"
    R"("enabled_api_groups":["gpu-control","gpu-read","cpu-read"],"auth_required":false})";
constexpr const char* kEnergy0 = "/gpu/get_cumulative_energy?gpu_ids=0";

constexpr const char* kEnergy01 = "/gpu/get_cumulative_energy?gpu_ids=0,1";
constexpr const char* kPower01 = "/gpu/get_power?gpu_ids=0,1";
constexpr const char* kCpu01 = "/cpu/get_cumulative_energy?cpu=true&dram=true&cpu_ids=0,1";
const std::string kWatts = R"({"timestamp_ms":1,"power_mw":{"0":75000,"1":60000}})";

Answers master() {
  return {{"/discover", {200, kMaster}},
          {kEnergy0, {200, R"({"0":{"energy_mj":5000}})"}},
          {kPower01, {200, kWatts}},
          {kCpu01,
           {200, R"({"0":{"cpu_energy_uj":123456,"dram_energy_uj":78901},)"
                 R"("1":{"cpu_energy_uj":234567,"dram_energy_uj":null}})"}},
          {"/gpu/get_power_limit?gpu_ids=0", {200, R"({"0":{"power_limit_mw":300000}})"}},
          {"/gpu/get_power_limit_constraints?gpu_ids=0",
           {200, R"({"0":{"min_power_limit_mw":100000,"max_power_limit_mw":400000}})"}},
          {"/gpu/get_persistence_mode?gpu_ids=0", {200, R"({"0":{"enabled":false}})"}}};
}
/// A daemon whose GPUs have nothing but numbers and names.
Answers v05() {
  return {{"/discover",
           {200, R"({"gpus":[{"id":0,"name":"a"},{"id":1,"name":"b"}],"cpus":[],)"
                 R"("enabled_api_groups":["gpu-read","gpu-control"],"auth_required":false})"}},
          {kEnergy01, {200, R"({"0":{"energy_mj":5},"1":{"energy_mj":6}})"}},
          {kPower01, {200, kWatts}}};
}

Peer::Script answering(Answers answers) {
  return [answers = std::move(answers)](const Call& call) {
    const auto it = answers.find(call.target());
    call.answer(it == answers.end() ? 404 : it->second.first,
                it == answers.end() ? "" : it->second.second);
    return true;
  };
}

Result<Machine> open_at(const std::string& where, const std::string& token = {}) {
  return open(Address{Address::Scheme::zeusd, where, token});
}
Machine opened(const Peer& peer) { return open_at(peer.where()).value(); }

TEST(Remote, IsAMachineLikeAnother) {
  Peer peer(answering(master()));
  const Machine m = opened(peer);
  ASSERT_EQ(m.devices.size(), 4u);
  EXPECT_EQ(m.devices[0].info.id, "0000:19:00.0");
  EXPECT_EQ(m.devices[1].info.id, "0000:c1:00.0") << "as sysfs writes it";
  EXPECT_EQ(m.devices[0].info.model, "NVIDIA A100");
  EXPECT_EQ(m.devices[3].info.id, "package-1");
  EXPECT_EQ(read(sensor(m.devices[0], "energy")).raw, 5'000u);
  EXPECT_EQ(sensor(m.devices[0], "energy")->info.scale, 1e-3);
  EXPECT_EQ(sensor(m.devices[1], "energy"), nullptr) << "the daemon said that it has none";
  EXPECT_EQ(read(sensor(m.devices[1], "power_instant")).raw, 60'000u);
  EXPECT_EQ(read(sensor(m.devices[2], "package")).raw, 123'456u);
  EXPECT_EQ(read(sensor(m.devices[2], "dram")).raw, 78'901u);
  EXPECT_EQ(sensor(m.devices[2], "dram")->info.scale, 1e-6);
  EXPECT_EQ(sensor(m.devices[3], "dram"), nullptr);
  EXPECT_EQ(m.domains.roots(),
            (std::vector<DomainId>{
                {Scope::package, 0}, {Scope::package, 1}, {Scope::dram, 0}, {Scope::gpu, 0}}));
  EXPECT_FALSE(sensor(m.devices[0], "energy")->info.by_index);
}

TEST(Remote, TellsGpusByUuidWhereTheDaemonDoesAndSaysThatAMachineIsNotReal) {
  Answers a = {
      {"/discover",
       {200, R"({"gpus":[{"id":0,"name":"a","uuid":"GPU-1","pci_address":"0000:01:00.0"}],)"
             R"("cpus":[],"enabled_api_groups":["gpu-read"],"version":"0.1.0",)"
             R"("features":["partial"],"simulation":{"scenario":"h100x8"}})"}},
      {"/gpu/get_cumulative_energy?gpu_ids=0&partial=true", {200, R"({"0":{"energy_mj":5}})"}},
      {"/gpu/get_power?gpu_ids=0&partial=true",
       {200, R"({"timestamp_ms":1,"power_mw":{},"errors":{"0":"GPU is lost"}})"}}};
  Peer peer(answering(a));
  const Machine m = opened(peer);
  EXPECT_EQ(m.devices[0].info.id, "GPU-1");
  EXPECT_EQ(m.devices[0].info.pci, "0000:01:00.0");
  EXPECT_EQ(read(sensor(m.devices[0], "energy")).raw, 5u);
  EXPECT_EQ(sensor(m.devices[0], "power_instant"), nullptr);
  EXPECT_NE(test::sentences(m).find("cannot read the power_instant of GPU-1"), std::string::npos);
  ASSERT_TRUE(m.simulation);
  EXPECT_EQ(m.simulation->scenario, "h100x8");
}

TEST(Remote, OfWhichOnlyNumbersAreKnownIsFlaggedAndNotTurned) {
  std::atomic<int> mj = 1'000;
  Peer peer([&, answer = answering(v05())](const Call& call) {
    if (call.target() != kEnergy01) return answer(call);
    const std::string value = std::to_string(++mj);
    call.answer(200, R"({"0":{"energy_mj":5},"1":{"energy_mj":)" + value + "}}");
    return true;
  });
  const Machine m = opened(peer);
  EXPECT_EQ(m.devices[1].info.id, "gpu-1");
  EXPECT_GT(read(sensor(m.devices[1], "energy")).raw, 1'000u);
  EXPECT_TRUE(sensor(m.devices[1], "energy")->info.by_index);
  EXPECT_TRUE(m.devices[1].knobs.empty());
  const auto& facts = m.devices[1].info.facts;
  EXPECT_NE(std::find(facts.begin(), facts.end(),
                      std::pair<std::string, std::string>("identity", "index")),
            facts.end());
  Monitor monitor = Monitor::open(m, {}).value();
  Measurement record;
  (void)monitor.end(monitor.begin("w"), record);
  EXPECT_TRUE(has(estimate(record, {Scope::gpu, 1}).flags, Flag::identity_by_index));
}

TEST(Remote, OfVersion04IsOpenedByItsArrays) {
  Answers a = v05();
  a["/discover"].second =
      R"({"gpu_ids":[0,1],"cpu_ids":[],"dram_available":[],"enabled_api_groups":["gpu-read"],)"
      R"("auth_required":false})";
  Peer peer(answering(a));
  const Machine m = opened(peer);
  EXPECT_EQ(read(sensor(m.devices[0], "energy")).raw, 5u);
}

// field failure 159: a daemon that is not there is an error, and no machine without energy.
TEST(Remote, ThatDoesNotAnswerIsAnError) {
  const auto typo = open_at("/nonexistent/zeusd.sock");
  ASSERT_FALSE(typo);
  EXPECT_EQ(typo.error().code, Errc::absent);
  EXPECT_NE(typo.error().detail.find("is zeusd running?"), std::string::npos);
  EXPECT_EQ(open_at("a b").error().code, Errc::invalid);
  for (const auto& [status, body] :
       {std::pair(503, ""), std::pair(200, "<html>"), std::pair(200, "[]")}) {
    Peer peer(answering({{"/discover", {status, body}}}));
    const auto m = open_at(peer.where());
    ASSERT_FALSE(m);
    EXPECT_TRUE(m.error().detail.starts_with("cannot use zeusd at " + peer.where()))
        << m.error().detail;
  }
}

TEST(Remote, WithoutTheRightTokenIsAnError) {
  Answers a = v05();
  a["/discover"].second = R"({"gpus":[],"auth_required":true})";
  a["/auth/whoami"] = {401, R"({"error":"the token has expired"})"};
  Peer peer(answering(a));
  const auto m = open_at(peer.where(), "old");
  ASSERT_FALSE(m);
  EXPECT_EQ(m.error().code, Errc::denied);
  EXPECT_NE(m.error().detail.find("the token has expired"), std::string::npos);
  EXPECT_NE(m.error().detail.find("ZEUSD_TOKEN"), std::string::npos);
}

TEST(Remote, GivesWhatTheTokenGrantsAndSaysWhatItDoesNot) {
  Answers a = master();
  std::string auth = kMaster;
  auth.replace(auth.find("\"auth_required\":false"), 21, "\"auth_required\":true");
  a["/discover"].second = auth;
  a["/auth/whoami"] = {200, R"({"sub":"bob","scopes":["cpu-read"]})"};
  std::atomic<bool> every = true;
  Peer peer([&, answer = answering(a)](const Call& call) {
    if (!call.has("Authorization: Bearer tok.en")) every = false;
    return answer(call);
  });
  const Machine m = open_at(peer.where(), "tok.en").value();
  EXPECT_TRUE(every);
  EXPECT_EQ(read(sensor(m.devices[2], "package")).raw, 123'456u);
  EXPECT_TRUE(m.devices[0].sensors.empty());
  EXPECT_TRUE(m.devices[0].knobs.empty());
  EXPECT_NE(test::sentences(m).find("the token does not grant gpu-read"), std::string::npos);
}

TEST(Remote, AsksTheOthersAgainWhereOneGpuFailsTheWholeRequest) {
  std::atomic<bool> broken = false;
  Peer peer([&, answer = answering(v05())](const Call& call) {
    if (!broken || call.target() == "/discover") return answer(call);
    if (call.target() == kEnergy0) {
      call.answer(200, R"({"0":{"energy_mj":9}})");
    } else {
      call.answer(500, R"({"errors":{"1":"NVML error: GPU is lost"}})");
    }
    return true;
  });
  const Machine m = opened(peer);
  broken = true;
  Reading out[2];
  Source* const source = sensor(m.devices[0], "energy")->source;
  EXPECT_EQ(source->read(out), Errc::ok);
  EXPECT_EQ(out[0].raw, 9u);
  EXPECT_EQ(out[0].error, Errc::ok);
  EXPECT_EQ(out[1].error, Errc::lost);
}

TEST(Remote, SaysOfAllWhatTheDaemonSaysOfAll) {
  std::atomic<int> status = 200;
  Peer peer([&, answer = answering(v05())](const Call& call) {
    if (status == 200 || call.target() == "/discover") return answer(call);
    call.answer(status, "{\"error\":\"x\"}");
    return true;
  });
  const Machine m = opened(peer);
  const Sensor* energy = sensor(m.devices[0], "energy");
  for (const auto& [code, error] : {std::pair(401, Errc::denied), std::pair(403, Errc::denied),
                                    std::pair(400, Errc::unsupported), std::pair(404, Errc::absent),
                                    std::pair(500, Errc::lost), std::pair(503, Errc::lost)}) {
    status = code;
    EXPECT_EQ(read(energy).error, error) << code;
  }
  status = 200;
  EXPECT_EQ(read(energy).error, Errc::ok);
}

TEST(Remote, ReadsGarbageForWhatItIs) {
  std::atomic<bool> broken = false;
  Peer peer([&, answer = answering(v05())](const Call& call) {
    if (!broken || call.target() == "/discover") return answer(call);
    call.answer(200, R"({"0":{"energy_mj":5},"1":{"energy_mj":)");
    return true;
  });
  const Machine m = opened(peer);
  broken = true;
  EXPECT_EQ(read(sensor(m.devices[0], "energy")).error, Errc::malformed);
}

// field failure 157: after a restart nothing is told of a device that another stands for now.
TEST(Remote, TrustsADaemonThatWasStartedAnewOnlyWhereItsDevicesAreTheSame) {
  Peer peer(answering(v05()));
  const Machine m = opened(peer);
  EXPECT_EQ(read(sensor(m.devices[1], "energy")).error, Errc::ok);
  peer.stop();
  EXPECT_EQ(read(sensor(m.devices[1], "energy")).error, Errc::lost);
  Answers other = v05();
  other["/discover"].second =
      R"({"gpus":[{"id":0,"name":"a"},{"id":1,"name":"c"}],"enabled_api_groups":["gpu-read"]})";
  peer.start(answering(other));
  const Reading first = test::read_until_ok(sensor(m.devices[0], "energy"));
  EXPECT_EQ(first.error, Errc::ok);
  EXPECT_EQ(first.raw, 5u);
  EXPECT_EQ(read(sensor(m.devices[1], "energy")).error, Errc::lost);
  EXPECT_EQ(read(sensor(m.devices[0], "energy")).error, Errc::ok);
}

TEST(Remote, IsReadWithoutAllocating) {
  Peer peer(answering(v05()));
  const Machine m = opened(peer);
  Reading out[2];
  Source* const source = sensor(m.devices[0], "energy")->source;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(source->read(out), Errc::ok);
  const std::size_t before = test::allocations();
  for (int i = 0; i < 10; ++i) (void)source->read(out);
  EXPECT_EQ(test::allocations(), before);
}

TEST(RemoteKnobs, AreTurnedByTheDaemonAndReadBack) {
  std::atomic<int> limit_mw = 300'000;
  std::string locked;
  Peer peer([&, answer = answering(master())](const Call& call) {
    if (call.target() == "/gpu/get_power_limit?gpu_ids=0") {
      call.answer(200, "{\"0\":{\"power_limit_mw\":" + std::to_string(limit_mw) + "}}");
    } else if (call.line().starts_with("POST /gpu/set_power_limit?gpu_ids=0&power_limit_mw=")) {
      limit_mw = std::stoi(call.target().substr(call.target().find("mw=") + 3));
      EXPECT_TRUE(call.target().ends_with("&block=true"));
      call.answer(200, "");
    } else if (call.line().starts_with("POST")) {
      locked = call.target();
      call.answer(200, "");
    } else {
      return answer(call);
    }
    return true;
  });
  const Machine m = opened(peer);
  const KnobInfo* limit = knob(m.devices[0], "power_limit");
  ASSERT_NE(limit, nullptr);
  EXPECT_EQ(limit->min, 100);
  EXPECT_EQ(limit->max, 400);
  EXPECT_EQ(limit->knob->get().value(), Setting(300));
  EXPECT_TRUE(limit->knob->set(250.5));
  EXPECT_EQ(limit_mw, 250'500);
  KnobInfo const* clock = knob(m.devices[0], "sm_clock");
  ASSERT_NE(clock, nullptr);
  EXPECT_TRUE(clock->range);
  EXPECT_TRUE(clock->knob->set({300e6, 1200e6}));
  EXPECT_EQ(locked,
            "/gpu/set_gpu_locked_clocks?gpu_ids=0&min_clock_mhz=300&max_clock_mhz=1200&block=true");
  EXPECT_EQ(clock->knob->get().value(), Setting(300e6, 1200e6));
  EXPECT_TRUE(clock->knob->set(0));
  EXPECT_EQ(locked, "/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true");
  EXPECT_EQ(knob(m.devices[0], "persistence")->knob->get().value(), Setting(0));
  EXPECT_EQ(knob(m.devices[1], "power_limit"), nullptr) << "the daemon cannot tell where it stands";
}

TEST(RemoteKnobs, SayWhatTheDaemonSaid) {
  Peer peer([answer = answering(master())](const Call& call) {
    if (!call.line().starts_with("POST")) return answer(call);
    call.answer(403, R"({"errors":{"0":"NVML error: no permission"}})");
    return true;
  });
  const Machine m = opened(peer);
  const auto done = knob(m.devices[0], "sm_clock")->knob->set(300e6);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::denied);
  EXPECT_EQ(done.error().detail,
            "cannot do /gpu/set_gpu_locked_clocks on 0000:19:00.0 through zeusd at " +
                peer.where() + ": NVML error: no permission (status 403)");
}

// field failure 139: a machine without zones of its own takes its CPUs from the daemon.
TEST(RemoteAndLocal, AreOneMachineInWhichTheDaemonServesWhatItCan) {
  Peer peer(answering(master()));
  const std::string where = peer.where();
  const Environment environment = [&](const char* name) -> std::optional<std::string> {
    if (std::string_view(name) == "ZEUSD_HOST_PORT") return where;
    return std::nullopt;
  };
  const Machine m = open(environment).value();
  const Device* package = m.find("package-0");
  ASSERT_NE(package, nullptr);
  EXPECT_EQ(read(sensor(*package, "package")).raw, 123'456u);
  for (const Problem& p : m.problems) EXPECT_NE(p.where, "rapl") << p.error.detail;
}

// field failure 159: nothing takes the place of a daemon that was named.
TEST(RemoteAndLocal, ADaemonThatIsNamedMustAnswer) {
  const Environment environment = [](const char* name) -> std::optional<std::string> {
    if (std::string_view(name) == "ZEUSD_SOCK_PATH") return "/nonexistent/zeusd.sock";
    if (std::string_view(name) == "ZEUSD_HOST_PORT") return "never-asked.invalid";
    return std::nullopt;
  };
  const auto m = open(environment);
  ASSERT_FALSE(m);
  EXPECT_EQ(m.error().detail,
            "cannot reach zeusd at /nonexistent/zeusd.sock: no such file or directory; is zeusd "
            "running? systemctl status zeusd; it is named by ZEUSD_SOCK_PATH, and --host local: "
            "does without it");
}

TEST(RemoteAndLocal, WithoutADaemonIsTheLocalMachine) {
  const Environment empty = [](const char*) { return std::optional<std::string>(""); };
  EXPECT_TRUE(open(empty));
}

Device gpu(const std::string& id, const std::string& pci, std::uint16_t index,
           std::initializer_list<const char*> names) {
  Device d;
  d.info = {.kind = DeviceInfo::Kind::gpu, .id = id, .index = index, .pci = pci};
  for (const char* name : names) {
    SensorInfo s;
    s.name = name;
    s.quantity = std::string_view(name) == "energy" ? Quantity::energy : Quantity::temperature;
    s.domain = {Scope::gpu, index};
    d.sensors.push_back({s});
  }
  return d;
}

TEST(RemoteAndLocal, JoinGpusByAddressAndCountAsThisProcessDoes) {
  Machine served, local;
  served.devices.push_back(gpu("0000:01:00.0", "0000:01:00.0", 6, {"energy"}));
  served.devices.push_back(gpu("0000:02:00.0", "0000:02:00.0", 7, {"energy"}));
  local.devices.push_back(gpu("GPU-1", "0000:01:00.0", 0, {"energy", "temperature"}));
  local.devices.push_back(gpu("GPU-2", "0000:03:00.0", 1, {"energy"}));
  served.devices[0].sensors[0].info.lineage = "daemon";
  const Machine m = joined(served, local, backends());
  ASSERT_EQ(m.devices.size(), 2u);
  EXPECT_EQ(m.devices[0].info.id, "GPU-1");
  ASSERT_EQ(m.devices[0].sensors.size(), 2u);
  EXPECT_EQ(m.devices[0].sensors[0].info.lineage, "daemon");
  EXPECT_EQ(m.devices[0].sensors[0].info.domain, (DomainId{Scope::gpu, 0}));
  EXPECT_EQ(m.devices[0].sensors[1].info.name, "temperature");
  EXPECT_EQ(m.devices[1].info.id, "GPU-2") << "what the daemon does not serve is taken here";
  EXPECT_NE(test::sentences(m).find("1 GPUs more"), std::string::npos);
  EXPECT_EQ(m.domains.roots(), (std::vector<DomainId>{{Scope::gpu, 0}, {Scope::gpu, 1}}));
}

TEST(RemoteAndLocal, AProcessWithoutGpusOfItsOwnHasTheDaemons) {
  Machine served, local;
  served.devices.push_back(gpu("0000:02:00.0", "0000:02:00.0", 7, {"energy"}));
  const Machine m = joined(served, local, backends());
  ASSERT_EQ(m.devices.size(), 1u);
  EXPECT_EQ(m.devices[0].info.index, 7);
}

}  // namespace
}  // namespace zeus
