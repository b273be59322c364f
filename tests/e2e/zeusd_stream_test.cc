// Power as events: what comes first, what comes when nothing changes, and who is polled for whom.

#include <gtest/gtest.h>

#include <set>

#include "support/daemon.h"
#include "support/signed_token.h"

namespace zeus::test {
namespace {

std::int64_t unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The object of an event; discarded where the text is none.
Json event(const std::string& text) {
  if (!text.starts_with("data: ") || !text.ends_with("\n\n") ||
      text.find('\n') != text.size() - 2) {
    return Json(Json::value_t::discarded);
  }
  return Json::parse(text.substr(6), nullptr, false);
}

struct ZeusdStream : testing::Test {
  Simulated sim{four_gpus_and_a_cpu()};
  std::uint64_t polls() const { return sim.calls("fields"); }
};

TEST_F(ZeusdStream, BeginsWithOneWholeEventInOneChunk) {
  const Daemon daemon(sim);
  Wire wire = daemon.stream("/gpu/stream_power?gpu_ids=0");
  const std::string first = wire.chunk(2s);
  const auto time = [](const Json& e) {
    return std::to_string(e["timestamp_ms"].get<unsigned long>());
  };
  EXPECT_EQ(first, "data: {\"timestamp_ms\":" + time(event(first)) +
                       ",\"gpu_id\":0,\"power_mw\":150000}\n\n");

  Wire cpu = daemon.stream("/cpu/stream_power?cpu_ids=0");
  const std::string text = cpu.chunk(2s);
  const Json e = event(text);
  EXPECT_EQ(text, "data: {\"timestamp_ms\":" + time(e) + ",\"cpu_id\":0,\"cpu_mw\":" +
                      e["cpu_mw"].dump() + ",\"dram_mw\":" + e["dram_mw"].dump() + "}\n\n");
  EXPECT_NEAR(e["cpu_mw"].get<double>(), 60000, 6000);
  EXPECT_NEAR(e["dram_mw"].get<double>(), 10000, 1000);
}

TEST_F(ZeusdStream, TellsNoCacheToKeepIt) {
  const Daemon daemon(sim);
  Wire wire(daemon.socket());
  wire.request("GET /gpu/stream_power");
  const Answer a = wire.answer();
  EXPECT_EQ(a.header("cache-control"), "no-cache");
  EXPECT_EQ(a.header("content-length"), "");
}

TEST_F(ZeusdStream, NobodyIsPolledWhileNobodyListens) {
  const Daemon daemon(sim, {"--gpu-power-poll-hz", "100"});
  (void)daemon.get("/metrics");  // What is read at the start has been read.
  const auto before = polls();
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(polls(), before);

  Wire wire = daemon.stream("/gpu/stream_power?gpu_ids=2");
  EXPECT_NE(wire.chunk(), "");
  EXPECT_TRUE(eventually([&] { return polls() > before + 5; }));

  wire.close();
  std::this_thread::sleep_for(100ms);
  const auto after = polls();
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(polls(), after);
}

TEST_F(ZeusdStream, TheLastOfSeveralReadersEndsThePolling) {
  const Daemon daemon(sim, {"--gpu-power-poll-hz", "100"});
  (void)daemon.get("/metrics");
  Wire first = daemon.stream("/gpu/stream_power?gpu_ids=2"),
       second = daemon.stream("/gpu/stream_power?gpu_ids=2");
  first.close();
  const auto one = polls();
  EXPECT_TRUE(eventually([&] { return polls() > one + 5; }));
  second.close();
  std::this_thread::sleep_for(100ms);
  const auto none = polls();
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(polls(), none);
}

// The GPUs differ in the call that tells their power, so that calls can be told apart.
TEST(ZeusdStreams, OfOneGpuNeverPollAnother) {
  const std::string gpu = "[[gpu]]\npower = { kind = \"constant\", watts = 75 }\n";
  Simulated sim("[nvml]\n" + gpu + "power_usage = { kind = \"instant\", update = \"1ms\" }\n" +
                gpu + "power_instant = { kind = \"instant\", update = \"1ms\" }\n");
  const Daemon daemon(sim, {"--gpu-power-poll-hz", "100"});
  (void)daemon.get("/metrics");
  const auto usage = sim.calls("nvmlDeviceGetPowerUsage"), fields = sim.calls("fields");
  Wire wire = daemon.stream("/gpu/stream_power?gpu_ids=1");
  EXPECT_EQ(event(wire.chunk())["gpu_id"], 1);
  EXPECT_TRUE(eventually([&] { return sim.calls("fields") > fields + 5; }));
  EXPECT_EQ(sim.calls("nvmlDeviceGetPowerUsage"), usage);

  Wire other = daemon.stream("/gpu/stream_power?gpu_ids=0");
  EXPECT_EQ(event(other.chunk())["power_mw"], 75000);
  EXPECT_GT(sim.calls("nvmlDeviceGetPowerUsage"), usage);
}

TEST_F(ZeusdStream, WhoJoinsLateGetsAFreshValueThoughNothingChanges) {
  const Daemon daemon(sim);
  Wire early = daemon.stream("/gpu/stream_power?gpu_ids=0");
  EXPECT_EQ(event(early.chunk())["power_mw"], 150000);
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(400ms);
    const auto joined = unix_ms();
    Wire late = daemon.stream("/gpu/stream_power?gpu_ids=0");
    const Json e = event(late.chunk());
    EXPECT_EQ(e["power_mw"], 150000);
    EXPECT_GT(e["timestamp_ms"], joined - 100) << "older than a poll";
  }
}

// field failure 165
TEST_F(ZeusdStream, RepeatsAConstantValueEverySecond) {
  const Daemon daemon(sim);
  Wire wire = daemon.stream("/gpu/stream_power?gpu_ids=0");
  std::int64_t last = event(wire.chunk())["timestamp_ms"];
  for (int i = 0; i < 2; ++i) {
    const Json e = event(wire.chunk(5s));
    EXPECT_EQ(e["power_mw"], 150000);
    EXPECT_GE(e["timestamp_ms"].get<std::int64_t>(), last + 900) << "nothing had changed";
    last = e["timestamp_ms"];
  }
}

TEST_F(ZeusdStream, TellsAChangeAtTheNextPoll) {
  const Daemon daemon(sim);
  Wire wire = daemon.stream("/gpu/stream_power?gpu_ids=0");
  (void)wire.chunk();
  for (const unsigned mw : {80000U, 90000U, 100000U}) {
    const auto value = sim.value("field:power", mw, 0);
    std::string text;
    do {
      text = wire.chunk();
    } while (!text.empty() && event(text)["power_mw"] == 150000);
    EXPECT_EQ(event(text)["power_mw"], mw);
    sim.remove(value);
    EXPECT_EQ(event(wire.chunk())["power_mw"], 150000);
  }
}

// field failure 165
TEST_F(ZeusdStream, SaysThatItLivesWhereADeviceCannotBeReadAndGoesOnWhenItCan) {
  const Daemon daemon(sim);
  const auto broken = sim.fault("fields", 999, 0);
  Wire wire = daemon.stream("/gpu/stream_power?gpu_ids=0");
  const std::string beat = wire.chunk();
  ASSERT_TRUE(beat.starts_with(": heartbeat ")) << beat;
  EXPECT_NEAR(std::stod(beat.substr(12)), static_cast<double>(unix_ms()), 60e3) << beat;
  EXPECT_TRUE(beat.ends_with("\n\n"));
  sim.remove(broken);
  EXPECT_EQ(event(wire.chunk())["power_mw"], 150000);
}

TEST_F(ZeusdStream, OfSeveralDevicesComesOnOneConnection) {
  const Daemon daemon(sim);
  Wire wire = daemon.stream("/gpu/stream_power?gpu_ids=3,1");
  std::set<unsigned> seen;
  for (int i = 0; i < 4; ++i) {
    const Json e = event(wire.chunk());
    ASSERT_TRUE(e.is_object());
    seen.insert(e["gpu_id"].get<unsigned>());
  }
  EXPECT_EQ(seen, (std::set<unsigned>{1, 3}));
  Wire all = daemon.stream("/gpu/stream_power");
  seen.clear();
  for (int i = 0; i < 8 && seen.size() < 4; ++i) {
    seen.insert(event(all.chunk())["gpu_id"].get<unsigned>());
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST(ZeusdStreams, OfAPackageWithoutDramHaveNullForIt) {
  Simulated sim(
      "[[zone]]\npath = \"intel-rapl:0\"\nname = \"package-0\"\npower = { watts = 60 }\n");
  const Daemon daemon(sim);
  Wire wire = daemon.stream("/cpu/stream_power");
  const Json e = event(wire.chunk());
  EXPECT_TRUE(e["dram_mw"].is_null()) << e;
  EXPECT_NEAR(e["cpu_mw"].get<double>(), 60000, 6000);
  EXPECT_TRUE(daemon.get("/cpu/get_power").json()["power_mw"]["0"]["dram_mw"].is_null());
}

TEST(ZeusdStreams, OfASlowReaderMissValuesAndGoOnWithTheNewest) {
  Simulated sim(
      "[nvml]\n[[gpu]]\npower_instant = { kind = \"instant\", update = \"1ms\" }\n"
      "power = { kind = \"square\", low = 100, high = 200, period = \"4ms\", duty = 0.5 }\n");
  const Daemon daemon(sim, {"--gpu-power-poll-hz", "1000"});
  Wire slow = daemon.stream("/gpu/stream_power?gpu_ids=0"),
       quick = daemon.stream("/gpu/stream_power?gpu_ids=0");
  (void)slow.chunk();
  const auto dropped = [&] {
    const std::string page = daemon.get("/metrics").body;
    const std::string name = "\nzeusd_events_dropped_total ";
    return std::stoul(page.substr(page.find(name) + name.size()));
  };
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 50; ++i) (void)quick.chunk();
    return dropped() > 10;
  }));
  sim.value("field:power", 77, 0);
  while (event(quick.chunk())["power_mw"] != 77) {
  }
  Json e;
  std::int64_t last = 0;
  do {
    e = event(slow.chunk());
    ASSERT_TRUE(e.is_object()) << "it was disconnected";
    EXPECT_GE(e["timestamp_ms"], last);
    last = e["timestamp_ms"];
  } while (e["power_mw"] != 77);
}

// field failure 164
TEST_F(ZeusdStream, CpuPowerIsDividedByTheTimeThatWentByAndNotByThePeriod) {
  const Daemon daemon(sim);
  Wire wire = daemon.stream("/cpu/stream_power");
  (void)wire.chunk();
  for (int i = 0; i < 4; ++i) {
    ::kill(daemon.pid(), SIGSTOP);  // Its timers come late by three periods.
    std::this_thread::sleep_for(300ms);
    ::kill(daemon.pid(), SIGCONT);
    for (int j = 0; j < 3; ++j) {
      const Json e = event(wire.chunk());
      EXPECT_NEAR(e["cpu_mw"].get<double>(), 60000, 6000) << e;
      EXPECT_NEAR(e["dram_mw"].get<double>(), 10000, 1000) << e;
    }
  }
}

TEST_F(ZeusdStream, EndsWithTheTokenThatOpenedIt) {
  const std::string key = "integration-test-signing-key!!!!";
  Tree tree;
  tree.write("key", key);
  ::chmod((tree.root() / "key").c_str(), 0600);
  const Daemon daemon(sim, {"--signing-key-path", tree.root() / "key"});
  const auto token = [&](std::int64_t exp) {
    return "Authorization: Bearer " +
           signed_token(R"({"typ":"JWT","alg":"HS256"})",
                        R"({"sub":"t","scopes":["gpu-read"],"exp":)" + std::to_string(exp) + "}",
                        key) +
           "\r\n";
  };
  const std::int64_t now = unix_ms() / 1000;
  Wire brief = daemon.stream("/gpu/stream_power?gpu_ids=0", token(now + 1)),
       lasting = daemon.stream("/gpu/stream_power?gpu_ids=0", token(now + 3600));
  EXPECT_NE(brief.chunk(), "");
  std::string text;
  do {
    text = brief.chunk();
  } while (!text.empty());
  EXPECT_GE(unix_ms() / 1000, now + 1);
  EXPECT_TRUE(brief.ended());
  (void)lasting.chunk();
  EXPECT_NE(lasting.chunk(), "") << "the other's end is not its own";
}

TEST_F(ZeusdStream, AnOrderlyStopEndsEveryStream) {
  Daemon daemon(sim);
  std::vector<Wire> wires;
  for (int i = 0; i < 8; ++i) {
    wires.push_back(daemon.stream("/gpu/stream_power"));
    EXPECT_NE(wires.back().chunk(), "");
  }
  const auto r = daemon.stop(SIGTERM);
  EXPECT_EQ(r.status, 0) << r.err;
  for (Wire& w : wires) {
    while (!w.chunk().empty()) {
    }
    EXPECT_TRUE(w.ended());
  }
  EXPECT_FALSE(std::filesystem::exists(daemon.socket()));
}

}  // namespace
}  // namespace zeus::test
