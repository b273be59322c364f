// The daemon lets go of the GPUs' driver, so that it can be unloaded or a GPU be reset, and takes
// hold of it again.

#include <gtest/gtest.h>

#include <fstream>

#include "support/daemon.h"
#include "support/signed_token.h"

namespace zeus::test {
namespace {

struct ZeusdRelease : testing::Test {
  Simulated sim{four_gpus_and_a_cpu()};

  std::uint64_t held() const { return sim.calls("init") - sim.calls("shutdown"); }
  /// All that a driver could be asked for.
  std::uint64_t asked() const {
    return sim.calls("fields") + sim.calls("limit") + sim.calls("persistence") +
           sim.calls("set_limit") + sim.calls("init");
  }
};

/// The first point of a metric that has these labels.
std::optional<double> metric(const Daemon& daemon, const std::string& name,
                             const Words& labels = {}) {
  std::istringstream in(daemon.get("/metrics").body);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name + ' ') && !line.starts_with(name + '{')) continue;
    if (std::all_of(labels.begin(), labels.end(),
                    [&](const std::string& l) { return line.find(l) != std::string::npos; })) {
      return std::stod(line.substr(line.rfind(' ')));
    }
  }
  return std::nullopt;
}

// field failure 93
TEST_F(ZeusdRelease, ShutsTheDriverUntilItIsTakenAgain) {
  const Daemon daemon(sim);
  const std::string discovered = daemon.get("/discover").body;
  const auto energy_mj = [&] {
    return daemon.get("/gpu/get_cumulative_energy?gpu_ids=2").json()["2"]["energy_mj"].get<long>();
  };
  const long before = energy_mj();
  EXPECT_EQ(held(), 1U);

  const Answer released = daemon.post("/gpu/release?seconds=600");
  ASSERT_EQ(released.status, 200) << released.body;
  const auto until_ms = released.json()["until_ms"].get<std::int64_t>();
  EXPECT_EQ(held(), 0U);
  const auto calls = asked();

  for (const char* route :
       {"get_power", "get_power?partial=true", "get_cumulative_energy", "get_power_limit",
        "get_power_limit_constraints", "get_persistence_mode"}) {
    const Answer a = daemon.get(std::string("/gpu/") + route);
    EXPECT_EQ(a.status, 503) << route;
    EXPECT_NE(a.error().find("the GPUs are let go of until 20"), std::string::npos) << a.body;
    const int left_s = std::stoi("0" + a.header("retry-after"));
    EXPECT_TRUE(left_s > 540 && left_s <= 600) << left_s;
  }
  const Answer write = daemon.set_limit("1", 200000);
  EXPECT_EQ(write.status, 503);
  EXPECT_NE(write.error("1").find("POST /gpu/acquire"), std::string::npos) << write.body;
  EXPECT_EQ(daemon.get("/gpu/get_power?gpu_ids=9").status, 400) << "what cannot be is said first";

  EXPECT_EQ(daemon.get("/discover").body, discovered);
  EXPECT_EQ(daemon.get("/cpu/get_power").status, 200);
  const Answer health = daemon.get("/healthz");
  EXPECT_EQ(health.status, 200) << "a restart would not help";
  EXPECT_EQ(health.json()["gpus_released_until_ms"], until_ms);
  EXPECT_EQ(metric(daemon, "zeusd_gpus_released"), 1);
  EXPECT_EQ(metric(daemon, "zeus_up", {"kind=\"gpu\""}), 0);
  EXPECT_FALSE(metric(daemon, "zeus_power_watts", {"domain=\"gpu\""}));
  EXPECT_TRUE(metric(daemon, "zeus_energy_joules_total", {"domain=\"package\""}));
  EXPECT_EQ(asked(), calls) << "nothing reached the driver";

  const Answer taken = daemon.post("/gpu/acquire");
  EXPECT_EQ(taken.status, 200) << taken.body;
  EXPECT_EQ(held(), 1U);
  EXPECT_GE(energy_mj(), before);
  EXPECT_EQ(daemon.set_limit("1", 200000).status, 200);
  EXPECT_EQ(limit_w(sim, 1), 200);
  EXPECT_TRUE(daemon.get("/healthz").json()["gpus_released_until_ms"].is_null());
  EXPECT_EQ(metric(daemon, "zeusd_gpus_released"), 0);
  EXPECT_EQ(metric(daemon, "zeus_up", {"kind=\"gpu\""}), 1);
}

// field failure 93
TEST_F(ZeusdRelease, EndsByItselfWhenItsTimeIsOver) {
  const Daemon daemon(sim);
  ASSERT_EQ(daemon.post("/gpu/release?seconds=1").status, 200);
  EXPECT_EQ(held(), 0U);
  EXPECT_TRUE(eventually([&] { return daemon.get("/gpu/get_power").status == 200; }));
  EXPECT_EQ(held(), 1U);
  EXPECT_EQ(daemon.audit().back()["operation"], "acquire");
  EXPECT_EQ(daemon.audit().back()["who"], "zeusd");
}

TEST_F(ZeusdRelease, AskedForTwiceLastsFromTheSecond) {
  const Daemon daemon(sim);
  const auto first = daemon.post("/gpu/release?seconds=1").json()["until_ms"].get<std::int64_t>();
  const auto second = daemon.post("/gpu/release").json()["until_ms"].get<std::int64_t>();
  EXPECT_GE(second - first, 59000) << "a minute, where nothing is said";
  EXPECT_EQ(sim.calls("shutdown"), 1U);
  EXPECT_EQ(daemon.post("/gpu/acquire").status, 200);
  EXPECT_EQ(daemon.post("/gpu/acquire").status, 200) << "it is held";
  EXPECT_EQ(sim.calls("init"), 2U);
}

TEST_F(ZeusdRelease, TakesABoundedTime) {
  const Daemon daemon(sim);
  for (const char* seconds : {"0", "3601", "-1", "x", ""}) {
    EXPECT_EQ(daemon.post(std::string("/gpu/release?seconds=") + seconds).status, 400) << seconds;
  }
  EXPECT_EQ(held(), 1U);
}

// What streams said last is not said again of a driver that is away.
TEST_F(ZeusdRelease, LeavesAGapInStreamsAndNoStaleValue) {
  const Daemon daemon(sim);
  Wire wire = daemon.stream("/gpu/stream_power?gpu_ids=0");
  EXPECT_TRUE(wire.chunk().starts_with("data: "));
  ASSERT_EQ(daemon.post("/gpu/release").status, 200);
  // What was on its way when the driver was shut, and then nothing but the sign of life.
  std::string chunk = wire.chunk();
  for (int i = 0; i < 5 && chunk.starts_with("data: "); ++i) chunk = wire.chunk();
  EXPECT_TRUE(chunk.starts_with(": heartbeat ")) << chunk;
  ASSERT_EQ(daemon.post("/gpu/acquire").status, 200);
  EXPECT_TRUE(wire.chunk().starts_with("data: "));
}

TEST_F(ZeusdRelease, IsRefusedWhileALeaseHoldsAGpuAndNamesTheHolder) {
  const Daemon daemon(sim);
  const std::string lease = daemon.open_lease("?ttl_s=600");
  EXPECT_EQ(daemon.set_limit("3", 200000, lease).status, 200);
  const Answer a = daemon.post("/gpu/release");
  EXPECT_EQ(a.status, 409);
  EXPECT_NE(a.error().find("GPU 3 is set under a lease of uid " + std::to_string(::getuid())),
            std::string::npos)
      << a.body;
  EXPECT_EQ(held(), 1U);
  EXPECT_EQ(daemon.get("/gpu/get_power").status, 200) << "nothing has changed";
  EXPECT_EQ(daemon.set_limit("2", 150000).status, 200);

  EXPECT_EQ(daemon.post("/lease/release?lease=" + lease).status, 200);
  EXPECT_EQ(daemon.post("/gpu/release").status, 200);
  EXPECT_EQ(limit_w(sim, 3), 300);
}

TEST_F(ZeusdRelease, WaitsForTheWriteThatIsUnderWay) {
  const Daemon daemon(sim);
  const auto slow = sim.block("set_limit", 300ms, 0);
  Wire writer(daemon.socket());
  const auto sets = sim.calls("set_limit");
  writer.request("POST /gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true");
  ASSERT_TRUE(eventually([&] { return sim.calls("set_limit") > sets; }));
  EXPECT_EQ(daemon.post("/gpu/release").status, 200);
  EXPECT_EQ(writer.answer().status, 200);
  EXPECT_EQ(limit_w(sim, 0), 200);
  EXPECT_EQ(held(), 0U);
  sim.remove(slow);
}

// A GPU that hangs keeps the driver open whatever we do.
TEST_F(ZeusdRelease, IsRefusedWhileAReadingHangsAndChangesNothing) {
  const Daemon daemon(sim);
  const auto hangs = sim.block("fields", 7s, 2);
  Wire reader(daemon.socket());
  const auto reads = sim.calls("fields");
  reader.request("GET /gpu/get_power?gpu_ids=2");
  ASSERT_TRUE(eventually([&] { return sim.calls("fields") > reads; }));
  const Answer a = daemon.post("/gpu/release");
  EXPECT_EQ(a.status, 409);
  EXPECT_NE(a.error().find("a reading of a GPU does not end"), std::string::npos) << a.body;
  EXPECT_EQ(held(), 1U);
  EXPECT_EQ(daemon.get("/gpu/get_power?gpu_ids=0,1,3").status, 200);
  sim.remove(hangs);
}

// field failure 93: the driver is unloaded meanwhile, so that its counters begin anew, and is not
// yet back when it is asked for.
TEST_F(ZeusdRelease, GoesOnWithADriverThatWasReloaded) {
  const Daemon daemon(sim);
  const Words first = {"domain=\"gpu\"", "index=\"0\""};
  const auto joules = [&] { return metric(daemon, "zeus_energy_joules_total", first); };
  sim.session().set_counter(0, 5'000'000);
  EXPECT_TRUE(joules());
  sim.session().set_counter(0, 5'010'000);
  const double before = joules().value();
  const auto resets = [&] { return metric(daemon, "zeus_energy_resets_total", first); };
  const double resets_before = resets().value();
  ASSERT_EQ(daemon.post("/gpu/release").status, 200);

  const auto unloaded = sim.fault("init", 9);
  const Answer early = daemon.post("/gpu/acquire");
  EXPECT_EQ(early.status, 500);
  EXPECT_NE(early.error().find("cannot open NVML again: Driver Not Loaded"), std::string::npos)
      << early.body;
  EXPECT_EQ(daemon.get("/gpu/get_power").status, 500) << "it is no longer let go of, but lost";

  sim.session().set_counter(0, 1'000);
  sim.remove(unloaded);
  EXPECT_TRUE(eventually([&] { return daemon.get("/gpu/get_power").status == 200; }));
  const Json energy = daemon.get("/gpu/get_cumulative_energy?gpu_ids=0").json();
  EXPECT_EQ(energy["0"]["energy_mj"], 1000) << "as the vendor counts";
  EXPECT_EQ(joules(), before) << "a fall adds nothing, and takes nothing away";
  EXPECT_EQ(resets(), resets_before + 1);
  sim.session().set_counter(0, 3'000);
  EXPECT_NEAR(joules().value(), before + 2, 1e-9);
}

TEST_F(ZeusdRelease, IsAWriteToTheRulesAndToTheAudit) {
  const Daemon daemon(sim, {"--enable", "gpu-read"});
  EXPECT_EQ(daemon.post("/gpu/release").status, 404);
  EXPECT_EQ(daemon.post("/gpu/acquire").status, 404);
  const Daemon open(sim);
  EXPECT_EQ(open.get("/gpu/release").status, 404) << "no GET lets go";
  EXPECT_EQ(Wire(open.tcp()).ask("POST /gpu/release", "Origin: http://elsewhere\r\n").status, 403);
  EXPECT_EQ(open.post("/gpu/release?seconds=600").status, 200);
  EXPECT_EQ(open.post("/gpu/acquire").status, 200);
  const auto audit = open.audit();
  ASSERT_EQ(audit.size(), 2U);
  EXPECT_EQ(audit[0]["operation"], "release");
  EXPECT_EQ(audit[0]["gpu"], "all");
  EXPECT_TRUE(audit[0]["to"].get<std::string>().starts_with("until 20")) << audit[0];
  EXPECT_NE(audit[0]["who"].get<std::string>().find("uid "), std::string::npos);
  EXPECT_EQ(audit[1]["operation"], "acquire");
  const Json features = open.get("/discover").json()["features"];
  EXPECT_NE(std::find(features.begin(), features.end(), "release"), features.end());
}

TEST_F(ZeusdRelease, OfAMachineWithoutGpusIsRefused) {
  Simulated bare(
      "[[zone]]\npath = \"intel-rapl:0\"\nname = \"package-0\"\npower = { watts = 60 }\n");
  const Daemon daemon(bare);
  const Answer a = daemon.post("/gpu/release");
  EXPECT_EQ(a.status, 400) << a.body;
}

TEST_F(ZeusdRelease, DoesNotKeepTheDaemonFromEnding) {
  Daemon daemon(sim);
  ASSERT_EQ(daemon.post("/gpu/release?seconds=3600").status, 200);
  EXPECT_EQ(daemon.stop().status, 0);
  EXPECT_EQ(held(), 0U);
}

}  // namespace
}  // namespace zeus::test
