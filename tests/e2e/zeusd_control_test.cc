// Who turns what in which order, and who waits for whom.

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "support/daemon.h"
#include "zeus/lease.h"

namespace zeus::test {
namespace {

struct ZeusdControl : testing::Test {
  Simulated sim{four_gpus_and_a_cpu()};
};

std::string limit(const std::string& gpus, unsigned mw, bool block) {
  return "POST /gpu/set_power_limit?gpu_ids=" + gpus + "&power_limit_mw=" + std::to_string(mw) +
         "&block=" + (block ? "true" : "false");
}

/// All at once, each on a connection of its own.
std::vector<Answer> ask_together(const std::string& where, const std::vector<std::string>& lines) {
  std::vector<Wire> wires;
  for (std::size_t i = 0; i < lines.size(); ++i) wires.emplace_back(where);
  for (std::size_t i = 0; i < lines.size(); ++i) wires[i].request(lines[i]);
  std::vector<Answer> out;
  for (Wire& w : wires) out.push_back(w.answer());
  return out;
}

// Section 19.1: ten that do not wait and one that does make eleven calls of the driver.
TEST_F(ZeusdControl, AWriteThatWaitsComesAfterTenThatDoNotAndEachIsOneCall) {
  struct Kind {
    std::string calls, route;
    std::function<std::string(unsigned)> arguments;
  };
  const auto sm = [](unsigned i) {
    return "min_clock_mhz=" + std::to_string(300 + 15 * i) + "&max_clock_mhz=1980";
  };
  const Kind kinds[] = {
      {"set_persistence", "set_persistence_mode",
       [](unsigned i) { return std::string("enabled=") + (i % 2 == 0 ? "true" : "false"); }},
      {"set_limit", "set_power_limit",
       [](unsigned i) { return "power_limit_mw=" + std::to_string(200000 + 1000 * i); }},
      {"nvmlDeviceSetGpuLockedClocks", "set_gpu_locked_clocks", sm},
      {"nvmlDeviceSetMemoryLockedClocks", "set_mem_locked_clocks",
       [](unsigned) { return std::string("min_clock_mhz=2619&max_clock_mhz=2619"); }}};
  const Daemon daemon(sim);
  for (const Kind& kind : kinds) {
    const auto slow = sim.block(kind.calls, 10ms, 0);
    const auto calls = sim.calls(kind.calls), lines = daemon.audit().size();
    const auto line = [&](unsigned i, const char* block) {
      return "POST /gpu/" + kind.route + "?gpu_ids=0&" + kind.arguments(i) + "&block=" + block;
    };
    std::vector<std::string> requests;
    for (unsigned i = 0; i < 10; ++i) requests.push_back(line(i, "false"));
    for (const Answer& a : ask_together(daemon.socket(), requests)) EXPECT_EQ(a.status, 200);

    EXPECT_EQ(Wire(daemon.socket()).ask(line(10, "true")).status, 200);

    EXPECT_EQ(sim.calls(kind.calls), calls + 11) << kind.route;
    const auto audit = daemon.audit();
    ASSERT_EQ(audit.size(), lines + 11) << kind.route;
    std::multiset<std::string> seen, sent;
    for (std::size_t i = lines; i < audit.size(); ++i) seen.insert(audit[i]["to"]);
    for (unsigned i = 0; i <= 10; ++i) {
      const unsigned mhz = 300 + 15 * i;
      sent.insert(kind.route == "set_persistence_mode" ? (i % 2 == 0 ? "on" : "off")
                  : kind.route == "set_power_limit"    ? std::to_string(200000 + 1000 * i) + " mW"
                  : kind.route == "set_gpu_locked_clocks" ? std::to_string(mhz) + "-1980 MHz"
                                                          : "2619-2619 MHz");
    }
    EXPECT_EQ(seen, sent) << kind.route;
    sim.remove(slow);
  }
  EXPECT_EQ(limit_w(sim), 210);
  EXPECT_EQ(sim.session().machine().state().device(0).sm_lock, 450ULL << 32 | 1980);
}

TEST_F(ZeusdControl, AWriteThatWaitsAndFailsComesAfterTheOnesBeforeItToo) {
  const Daemon daemon(sim);
  const auto slow = sim.block("set_limit", 10ms, 0);
  for (unsigned i = 0; i < 10; ++i) {
    EXPECT_EQ(Wire(daemon.socket()).ask(limit("0", 200000 + 1000 * i, false)).status, 200);
  }
  const Answer last = daemon.set_limit("0", 350000);
  EXPECT_EQ(last.status, 400);
  EXPECT_NE(last.error("0").find("Invalid request"), std::string::npos) << last.body;
  EXPECT_EQ(limit_w(sim), 209);
  sim.remove(slow);
}

TEST_F(ZeusdControl, WritesToOneGpuKeepTheirOrder) {
  const Daemon daemon(sim);
  const auto slow = sim.block("set_limit", 5ms, 2);
  Wire wire(daemon.socket());
  for (unsigned i = 0; i < 20; ++i) {
    EXPECT_EQ(wire.ask(limit("2", 200000 + 1000 * i, false)).status, 200);
  }
  EXPECT_EQ(wire.ask(limit("2", 299000, true)).status, 200);
  const auto audit = daemon.audit();
  ASSERT_EQ(audit.size(), 21U);
  for (unsigned i = 0; i < 20; ++i) {
    EXPECT_EQ(audit[i]["to"], std::to_string(200000 + 1000 * i) + " mW");
    EXPECT_EQ(audit[i]["from"], std::to_string(i == 0 ? 300000 : 199000 + 1000 * i) + " mW");
  }
  sim.remove(slow);
}

TEST_F(ZeusdControl, AFullQueueIsToldAndOtherGpusGoOn) {
  const Daemon daemon(sim);
  const auto calls = sim.calls("set_limit");
  const auto stuck = sim.block("set_limit", 4s, 0);
  Wire wire(daemon.socket());
  EXPECT_EQ(wire.ask(limit("0", 200000, false)).status, 200);
  ASSERT_TRUE(eventually([&] { return sim.calls("set_limit") > calls; }));
  sim.remove(stuck);  // This one call goes on hanging; those after it will not.
  for (unsigned i = 0; i < 64; ++i) {
    ASSERT_EQ(wire.ask(limit("0", 201000 + 1000 * i, false)).status, 200) << i;
  }

  const Answer full = wire.ask(limit("0,1", 290000, false));
  EXPECT_EQ(full.status, 429) << full.body;
  EXPECT_NE(full.error("0").find("queue"), std::string::npos) << full.body;
  EXPECT_EQ(full.error("1"), "");
  // Whatever other GPUs say at once, the full queue is told.
  sim.fault("set_limit", 15, 3);
  const Answer worse = wire.ask(limit("0,3", 290000, false));
  EXPECT_EQ(worse.status, 429) << worse.body;
  EXPECT_EQ(daemon.set_limit("1", 280000).status, 200);
  EXPECT_EQ(limit_w(sim, 1), 280);

  EXPECT_TRUE(eventually([&] { return limit_w(sim, 0) == 264; }));
  EXPECT_EQ(daemon.set_limit("0", 250000).status, 200);
  EXPECT_EQ(limit_w(sim, 0), 250);
}

TEST_F(ZeusdControl, AGpuThatHangsHoldsUpNobodyWhoAsksForOthers) {
  const Daemon daemon(sim);
  (void)daemon.get("/gpu/get_power");
  const auto calls = sim.calls("field:power") + sim.calls("fields");
  const auto stuck = sim.block("fields", 3s, 1);
  Wire waits(daemon.socket());
  waits.request("GET /gpu/get_power?gpu_ids=1");
  ASSERT_TRUE(eventually([&] { return sim.calls("field:power") + sim.calls("fields") > calls; }));

  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(daemon.get("/gpu/get_power?gpu_ids=0,2,3").status, 200);
    EXPECT_EQ(daemon.get("/gpu/get_cumulative_energy?gpu_ids=0").status, 200);
    EXPECT_EQ(daemon.get("/time").status, 200);
  }
  EXPECT_EQ(daemon.set_limit("0", 200000).status, 200);
  EXPECT_EQ(waits.chunk(0ms), "") << "it was answered already";
  sim.remove(stuck);
  EXPECT_EQ(waits.answer().status, 200);
}

TEST_F(ZeusdControl, WhoAsksForAGpuThatHangsIsTold) {
  const Daemon daemon(sim);
  (void)daemon.get("/gpu/get_power");
  sim.block("fields", 8s, 1);
  const auto answers = ask_together(
      daemon.socket(), {"GET /gpu/get_power", "GET /gpu/get_power?partial=true", "GET /metrics"});
  EXPECT_EQ(answers[0].status, 500) << answers[0].body;
  EXPECT_FALSE(answers[0].error("1").empty());
  EXPECT_EQ(answers[1].json()["power_mw"].size(), 3U) << answers[1].body;
  EXPECT_EQ(answers[2].status, 200);
  const auto series = [&](const std::string& name, unsigned gpu) {
    const std::string& page = answers[2].body;
    const auto at = page.find("\n" + name + "{device=\"" + sim.session().devices()[gpu].uuid);
    return at == std::string::npos ? "" : page.substr(at + 1, page.find('\n', at + 1) - at - 1);
  };
  EXPECT_NE(series("zeus_power_watts", 0), "");
  EXPECT_EQ(series("zeus_power_watts", 1), "");
}

TEST_F(ZeusdControl, AReadDoesNotWaitBehindASlowWriteToItsGpu) {
  const Daemon daemon(sim);
  const auto calls = sim.calls("set_limit");
  const auto slow = sim.block("set_limit", 2s, 0);
  Wire writes(daemon.socket());
  writes.request(limit("0", 200000, true));
  ASSERT_TRUE(eventually([&] { return sim.calls("set_limit") > calls; }));

  EXPECT_EQ(daemon.get("/gpu/get_power?gpu_ids=0").status, 200);
  EXPECT_EQ(daemon.get("/gpu/get_cumulative_energy?gpu_ids=0").status, 200);
  EXPECT_EQ(daemon.get("/gpu/get_power_limit?gpu_ids=0").body,
            R"({"0":{"power_limit_mw":300000}})");
  EXPECT_EQ(limit_w(sim), 300) << "the write was done already";
  sim.remove(slow);
  EXPECT_EQ(writes.answer().status, 200);
  EXPECT_EQ(daemon.get("/gpu/get_power_limit?gpu_ids=0").body,
            R"({"0":{"power_limit_mw":200000}})");
}

TEST_F(ZeusdControl, ReadsAtOneTimeShareTheirCalls) {
  const Daemon daemon(sim);
  const auto slow = sim.block("nvmlDeviceGetTotalEnergyConsumption", 200ms, 0);
  const auto before = sim.calls("nvmlDeviceGetTotalEnergyConsumption") + sim.calls("fields");
  const std::vector<std::string> lines(64, "GET /gpu/get_cumulative_energy?gpu_ids=0");
  const auto slow_fields = sim.block("fields", 200ms, 0);
  for (const Answer& a : ask_together(daemon.socket(), lines)) EXPECT_EQ(a.status, 200);
  // One for the first, one for all that came during it; some more where they came too slowly.
  EXPECT_LE(sim.calls("nvmlDeviceGetTotalEnergyConsumption") + sim.calls("fields"), before + 8);
  sim.remove(slow);
  sim.remove(slow_fields);
}

TEST_F(ZeusdControl, NoAnswerIsOlderThanItsQuestion) {
  const Daemon daemon(sim);
  std::atomic<bool> over{false};
  std::vector<std::thread> crowd;
  for (int i = 0; i < 6; ++i) {
    crowd.emplace_back([&] {
      Wire wire(daemon.socket());
      while (!over) EXPECT_EQ(wire.ask("GET /gpu/get_cumulative_energy").status, 200);
    });
  }
  Wire wire(daemon.socket());
  for (unsigned i = 1; i <= 500; ++i) {
    const std::uint64_t mj = 90'000'000ULL + i;
    sim.session().set_counter(0, mj);
    EXPECT_EQ(wire.ask("GET /gpu/get_cumulative_energy?gpu_ids=0").body,
              "{\"0\":{\"energy_mj\":" + std::to_string(mj) + "}}");
  }
  over = true;
  for (std::thread& t : crowd) t.join();
}

TEST_F(ZeusdControl, AKnobThatAnotherProcessHoldsIsAConflict) {
  const Daemon daemon(sim);
  const Machine machine = open({Address::Scheme::sim, sim.session().folder().string()}).value();
  auto lease =
      Lease::take(machine, sim.session().devices()[0].uuid, "power_limit", 120, daemon.journal());
  ASSERT_TRUE(lease) << lease.error().detail;
  const Answer a = daemon.set_limit("0", 200000);
  EXPECT_EQ(a.status, 409) << a.body;
  EXPECT_EQ(limit_w(sim), 120);
  EXPECT_TRUE(lease->release());
  EXPECT_EQ(daemon.set_limit("0", 200000).status, 200);
}

TEST_F(ZeusdControl, EachWriteIsALineOfTheAudit) {
  const Daemon daemon(sim);
  EXPECT_EQ(daemon.set_limit("1", 200000).status, 200);
  EXPECT_EQ(daemon.set_limit("1", 99000).status, 400);
  const std::string lease = daemon.open_lease("?ttl_s=60");
  EXPECT_EQ(daemon.set_limit("1", 150000, lease).status, 200);
  EXPECT_EQ(daemon.post("/lease/release?lease=" + lease).status, 200);

  const auto audit = daemon.audit();
  ASSERT_EQ(audit.size(), 4U);
  const std::string who =
      "uid " + std::to_string(::getuid()) + " pid " + std::to_string(::getpid());
  for (const Json& line : audit) {
    EXPECT_GT(line["time_ms"], 1'600'000'000'000) << line;
    EXPECT_EQ(line["gpu"], sim.session().devices()[1].uuid);
  }
  EXPECT_EQ(audit[0]["who"], who);
  EXPECT_EQ(audit[0]["operation"], "set_power_limit");
  EXPECT_EQ(audit[0]["from"], "300000 mW");
  EXPECT_EQ(audit[0]["to"], "200000 mW");
  EXPECT_EQ(audit[0]["status"], 200);
  EXPECT_FALSE(audit[0].contains("lease"));
  EXPECT_EQ(audit[1]["status"], 400);
  EXPECT_NE(audit[1]["error"].get<std::string>().find("100000-300000 mW"), std::string::npos);
  EXPECT_EQ(audit[2]["lease"], lease.substr(0, 8));
  EXPECT_EQ(audit[3]["who"], "zeusd");
  EXPECT_EQ(audit[3]["operation"], "restore power_limit");
  EXPECT_EQ(audit[3]["from"], "150000 mW");
  EXPECT_EQ(audit[3]["to"], "200000 mW");
}

struct ZeusdOverrides : ZeusdControl {
  Tree tree;
  Words with(const std::string& toml) {
    tree.write("overrides.toml", toml);
    return {"--gpu-command-overrides", tree.root() / "overrides.toml"};
  }
  std::string content() const {
    std::ifstream in(tree.root() / "log");
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
};

TEST_F(ZeusdOverrides, ACommandThatFailsIsToldAndTheOtherGpusGoOn) {
  const Daemon daemon(sim, with("[set_power_limit]\ncommands = [\"/bin/sh -c 'echo said {gpu_id}; "
                                "echo wrong >&2; test {gpu_id} != 1 || exit 7'\"]\n"));
  const auto calls = sim.calls("set_limit");

  const Answer a = daemon.set_limit("0,1,2", 200000);

  EXPECT_EQ(a.status, 500) << a.body;
  EXPECT_EQ(a.json()["errors"].size(), 1U) << a.body;
  for (const char* part : {"Override command failed", "exited with code 7", "said 1", "wrong"}) {
    EXPECT_NE(a.error("1").find(part), std::string::npos) << part << a.body;
  }
  EXPECT_EQ(sim.calls("set_limit"), calls);
  // What is not overridden is the driver's.
  EXPECT_EQ(daemon.post("/gpu/set_persistence_mode?gpu_ids=0&enabled=false&block=true").status,
            200);
  EXPECT_FALSE(sim.session().machine().state().device(0).persistence);
}

TEST_F(ZeusdOverrides, WhatACommandTurnedUnderALeaseACommandPutsBackAtTheStop) {
  Daemon daemon(sim, with("[set_power_limit]\ncommands = [\"/bin/sh -c 'sleep 0.2; echo "
                          "{gpu_id}:{power_limit_mw} >> " +
                          (tree.root() / "log").string() + "'\"]\n"));
  const std::string lease = daemon.open_lease();
  EXPECT_EQ(daemon.set_limit("2", 200000, lease).status, 200);
  EXPECT_EQ(content(), "2:200000\n");
  EXPECT_EQ(daemon.stop().status, 0);
  EXPECT_EQ(content(), "2:200000\n2:300000\n");
}

// field failure 161
TEST_F(ZeusdOverrides, WithoutAnyEffectRefuseToStart) {
  Words words = {ZEUSD_BINARY,
                 "serve",
                 "--host",
                 "sim:" + sim.session().folder().string(),
                 "--allow-simulated",
                 "--socket-path",
                 tree.root() / "z.sock",
                 "--enable",
                 "gpu-read"};
  const Words more = with("[reset_locked_clocks]\ncommands = [\"/bin/true\"]\n");
  words.insert(words.end(), more.begin(), more.end());
  const auto r = Process(words).wait();
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("would have no effect: gpu-control is not enabled"), std::string::npos)
      << r.err;
}

}  // namespace
}  // namespace zeus::test
