// What a client set for as long as it lives goes back when it does not: whatever ends first.

#include <gtest/gtest.h>

#include <charconv>

#include "support/daemon.h"
#include "zeus/lease.h"

namespace zeus::test {
namespace {

namespace fs = std::filesystem;

std::string set_limit(const std::string& lease, unsigned mw, const std::string& gpus = "0") {
  return "POST /gpu/set_power_limit?gpu_ids=" + gpus + "&power_limit_mw=" + std::to_string(mw) +
         "&block=true&lease=" + lease;
}

/// A client that opens a lease on its own life and turns knobs under it. Its text is the id.
std::string lease_and_write(const std::string& socket, const std::vector<std::string>& lines) {
  Wire wire(socket);
  const std::string id = wire.ask("POST /lease/open").json().value("lease", "");
  for (const std::string& line : lines) {
    if (wire.ask(line + "&lease=" + id).status != 200) return "refused: " + line;
  }
  return id;
}
std::string limit_line(const std::string& gpus, unsigned mw) {
  return "POST /gpu/set_power_limit?gpu_ids=" + gpus + "&power_limit_mw=" + std::to_string(mw) +
         "&block=true";
}

struct ZeusdLease : testing::Test {
  Simulated sim{four_gpus_and_a_cpu()};

  sim::DeviceState& state(std::size_t gpu) { return sim.session().machine().state().device(gpu); }
  static std::vector<std::string> journals(const Daemon& daemon) {
    std::vector<std::string> out;
    for (const auto& e : fs::directory_iterator(daemon.journal()))
      out.push_back(e.path().filename());
    return out;
  }
};

// Two seconds are what is promised.
TEST_F(ZeusdLease, OfAClientThatIsKilledIsPutBackWithinTwoSeconds) {
  const Daemon daemon(sim);
  Child client([&] { return lease_and_write(daemon.socket(), {limit_line("0", 200000)}); });
  ASSERT_EQ(client.text().size(), 32U) << client.text();
  ASSERT_EQ(limit_w(sim), 200);

  const auto begin = std::chrono::steady_clock::now();
  client.kill();
  EXPECT_TRUE(eventually([&] { return limit_w(sim) == 300; }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  EXPECT_TRUE(eventually([&] { return journals(daemon).empty(); }));
}

TEST_F(ZeusdLease, OfAClientThatEndsOrderlyIsPutBackToo) {
  const Daemon daemon(sim);
  {
    const Child client([&] { return lease_and_write(daemon.socket(), {limit_line("0", 200000)}); });
    ASSERT_EQ(limit_w(sim), 200);
  }
  EXPECT_TRUE(eventually([&] { return limit_w(sim) == 300; }));
}

TEST_F(ZeusdLease, DoesNotDependOnItsConnection) {
  const Daemon daemon(sim);
  const std::string lease = daemon.open_lease();  // On a connection that is closed by now.
  EXPECT_EQ(daemon.set_limit("0", 200000, lease).status, 200);
  std::this_thread::sleep_for(600ms);  // Two rounds of whatever looks for leases to end.
  EXPECT_EQ(limit_w(sim), 200);
  EXPECT_EQ(daemon.post("/lease/release?lease=" + lease).status, 200);
}

TEST_F(ZeusdLease, OfAKilledClientPutsBackEveryKnobOfEveryGpu) {
  const Daemon daemon(sim);
  Child client([&] {
    return lease_and_write(
        daemon.socket(),
        {limit_line("0,2,3", 150000),
         "POST /gpu/set_persistence_mode?gpu_ids=1&enabled=false&block=true",
         "POST "
         "/gpu/set_gpu_locked_clocks?gpu_ids=1,2&min_clock_mhz=300&max_clock_mhz=900&block=true",
         "POST "
         "/gpu/set_mem_locked_clocks?gpu_ids=3&min_clock_mhz=2619&max_clock_mhz=2619&block=true"});
  });
  ASSERT_EQ(client.text().size(), 32U) << client.text();
  EXPECT_EQ(limit_w(sim, 3), 150);
  EXPECT_FALSE(state(1).persistence);
  EXPECT_NE(state(2).sm_lock, 0U);
  EXPECT_NE(state(3).memory_lock, 0U);
  EXPECT_EQ(journals(daemon).size(), 7U);

  client.kill();
  EXPECT_TRUE(eventually([&] { return journals(daemon).empty(); }));
  for (unsigned i = 0; i < 4; ++i) {
    EXPECT_EQ(limit_w(sim, i), 300) << i;
    EXPECT_TRUE(state(i).persistence) << i;
    EXPECT_EQ(state(i).sm_lock, 0U) << i;
    EXPECT_EQ(state(i).memory_lock, 0U) << i;
  }
}

TEST_F(ZeusdLease, OfSeveralClientsEachEndsByItself) {
  const Daemon daemon(sim);
  Child first([&] { return lease_and_write(daemon.socket(), {limit_line("0,1", 150000)}); });
  Child second([&] { return lease_and_write(daemon.socket(), {limit_line("2", 160000)}); });
  ASSERT_EQ(second.text().size(), 32U);
  EXPECT_EQ(daemon.get("/lease/list").json().size(), 2U);

  first.kill();
  EXPECT_TRUE(eventually([&] { return limit_w(sim, 0) == 300 && limit_w(sim, 1) == 300; }));
  EXPECT_EQ(limit_w(sim, 2), 160);
  EXPECT_EQ(daemon.get("/lease/list").json().size(), 1U);
  second.kill();
  EXPECT_TRUE(eventually([&] { return limit_w(sim, 2) == 300; }));
}

TEST_F(ZeusdLease, GoesBackToTheFirstValueHoweverOftenItTurned) {
  const Daemon daemon(sim);
  EXPECT_EQ(daemon.set_limit("0", 250000).status, 200);
  const std::string lease = daemon.open_lease();
  for (const unsigned mw : {200000U, 100000U, 300000U, 150000U}) {
    EXPECT_EQ(daemon.set_limit("0", mw, lease).status, 200);
  }
  EXPECT_EQ(limit_w(sim), 150);
  EXPECT_EQ(daemon.post("/lease/release?lease=" + lease).status, 200);
  EXPECT_EQ(limit_w(sim), 250);
}

TEST_F(ZeusdLease, IsAnsweredAfterItsRestoreWhenReleased) {
  const Daemon daemon(sim);
  const std::string lease = daemon.open_lease();
  EXPECT_EQ(daemon.set_limit("0,1", 200000, lease).status, 200);
  const auto slow = sim.block("set_limit", 100ms);

  const Answer a = daemon.post("/lease/release?lease=" + lease);
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(a.body, "");
  EXPECT_EQ(limit_w(sim, 0), 300);
  EXPECT_EQ(limit_w(sim, 1), 300);
  sim.remove(slow);

  const Answer again = daemon.post("/lease/release?lease=" + lease);
  EXPECT_EQ(again.status, 404);
  EXPECT_NE(again.error().find("it has ended"), std::string::npos) << again.body;
}

TEST_F(ZeusdLease, ThatCannotBePutBackSaysSoAndIsTriedAgain) {
  const Daemon daemon(sim);
  const std::string lease = daemon.open_lease();
  EXPECT_EQ(daemon.set_limit("0,1", 200000, lease).status, 200);
  const auto broken = sim.fault("set_limit", 999, 1);

  const Answer a = daemon.post("/lease/release?lease=" + lease);
  EXPECT_EQ(a.status, 500);
  EXPECT_NE(a.error().find("nvmlDeviceSetPowerManagementLimit"), std::string::npos) << a.body;
  EXPECT_EQ(limit_w(sim, 0), 300);
  EXPECT_EQ(limit_w(sim, 1), 200);
  EXPECT_EQ(journals(daemon).size(), 1U);

  sim.remove(broken);
  EXPECT_TRUE(eventually([&] { return limit_w(sim, 1) == 300; }));
  EXPECT_TRUE(eventually([&] { return journals(daemon).empty(); }));
}

TEST_F(ZeusdLease, KeepsOthersFromItsKnobAndFromNoOther) {
  const Daemon daemon(sim);
  const std::string mine = daemon.open_lease(), other = daemon.open_lease();
  EXPECT_EQ(daemon.set_limit("0", 200000, mine).status, 200);

  for (const std::string& lease : {std::string(), other}) {
    const Answer a = daemon.set_limit("0,1", lease.empty() ? 250000 : 260000, lease);
    EXPECT_EQ(a.status, 409) << a.body;
    EXPECT_NE(a.error("0").find("lease of another client"), std::string::npos) << a.body;
    EXPECT_EQ(limit_w(sim, 0), 200);
    EXPECT_EQ(limit_w(sim, 1), lease.empty() ? 250 : 260);
  }
  EXPECT_EQ(daemon.post("/lease/release?lease=" + other).status, 200);
  EXPECT_EQ(limit_w(sim, 1), 250);
  EXPECT_EQ(daemon.post("/gpu/set_persistence_mode?gpu_ids=0&enabled=false&block=true").status,
            200);
  EXPECT_EQ(daemon.post("/lease/release?lease=" + mine).status, 200);
  EXPECT_EQ(limit_w(sim, 0), 300);
  EXPECT_FALSE(state(0).persistence);
}

TEST_F(ZeusdLease, WritesWithoutOneStay) {
  Daemon daemon(sim);
  {
    const Child client(
        [&] { return std::to_string(Wire(daemon.socket()).ask(limit_line("0", 200000)).status); });
    EXPECT_EQ(client.text(), "200");
  }
  EXPECT_TRUE(journals(daemon).empty());
  EXPECT_EQ(daemon.stop().status, 0);
  EXPECT_EQ(limit_w(sim), 200);
  daemon.start();
  EXPECT_EQ(limit_w(sim), 200);
}

TEST_F(ZeusdLease, WithoutHeartbeatsEndsAndWithThemLives) {
  const Daemon daemon(sim);
  Wire wire(daemon.tcp());  // No process to be watched.
  EXPECT_EQ(wire.ask("POST /lease/open").status, 400);
  EXPECT_EQ(wire.ask("POST /lease/open?ttl_s=0").status, 400);
  EXPECT_EQ(wire.ask("POST /lease/open?ttl_s=3601").status, 400);
  const Json lease = wire.ask("POST /lease/open?ttl_s=1").json();
  const std::string id = lease["lease"];
  EXPECT_EQ(lease["ttl_s"], 1);
  EXPECT_TRUE(lease["pid"].is_null()) << lease;
  EXPECT_EQ(wire.ask(set_limit(id, 200000)).status, 200);

  for (int i = 0; i < 4; ++i) {
    std::this_thread::sleep_for(400ms);
    EXPECT_EQ(wire.ask("POST /lease/renew?lease=" + id).status, 200);
    EXPECT_EQ(limit_w(sim), 200);
  }
  EXPECT_TRUE(eventually([&] { return limit_w(sim) == 300; }));
  EXPECT_EQ(wire.ask("POST /lease/renew?lease=" + id).status, 404);
  EXPECT_EQ(wire.ask(set_limit(id, 200000)).status, 404);
  EXPECT_EQ(limit_w(sim), 300);
}

TEST_F(ZeusdLease, ThatEndsWhileItsWriteIsQueuedChangesNothing) {
  const Daemon daemon(sim);
  const std::string lease = daemon.open_lease();
  const auto calls = sim.calls("set_limit");
  const auto slow = sim.block("set_limit", 500ms, 0);
  Wire first(daemon.socket()), queued(daemon.socket()), release(daemon.socket());
  first.request(limit_line("0", 250000));
  ASSERT_TRUE(eventually([&] { return sim.calls("set_limit") > calls; }));
  queued.request(set_limit(lease, 200000));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(release.ask("POST /lease/release?lease=" + lease).status, 200);

  EXPECT_EQ(first.answer().status, 200);
  const Answer a = queued.answer();
  EXPECT_EQ(a.status, 409) << a.body;
  EXPECT_NE(a.error("0").find("ended meanwhile"), std::string::npos) << a.body;
  EXPECT_EQ(sim.calls("set_limit"), calls + 1);
  EXPECT_EQ(limit_w(sim), 250);
  sim.remove(slow);
}

TEST_F(ZeusdLease, ThatEndsWhileItsWriteIsDoneIsPutBack) {
  const Daemon daemon(sim);
  const auto calls = sim.calls("set_limit");
  const auto slow = sim.block("set_limit", 300ms, 0);
  Child client([&] {
    Wire wire(daemon.socket());
    const std::string id = wire.ask("POST /lease/open").json().value("lease", "");
    (void)wire.ask("POST /gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=false&lease=" +
                   id);
    return id;
  });
  ASSERT_TRUE(eventually([&] { return sim.calls("set_limit") > calls; }));
  client.kill();
  EXPECT_TRUE(eventually([&] { return sim.calls("set_limit") == calls + 2; }));
  EXPECT_TRUE(eventually([&] { return limit_w(sim) == 300 && journals(daemon).empty(); }));
  sim.remove(slow);
}

TEST_F(ZeusdLease, IsTheRightOfWhoKnowsItsIdAndIsItsUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const Daemon daemon(sim, {"--socket-permissions", "666"});
  const std::string lease = daemon.open_lease();
  EXPECT_EQ(daemon.set_limit("0", 200000, lease).status, 200);

  for (const std::string& line : {set_limit(lease, 150000), "POST /lease/renew?lease=" + lease,
                                  "POST /lease/release?lease=" + lease}) {
    const Answer a = ask_as(65534, daemon.socket(), line);
    EXPECT_EQ(a.status, 403) << line << a.body;
  }
  // Nor does the list tell it what it would need.
  const Answer list = ask_as(65534, daemon.socket(), "GET /lease/list");
  EXPECT_EQ(list.status, 200);
  EXPECT_EQ(list.body.find(lease), std::string::npos) << list.body;
  EXPECT_EQ(list.json()[0]["holder"], "uid 0");
  EXPECT_EQ(daemon.get("/lease/list").json()[0]["lease"], lease);
  // Another user's own works like anybody's.
  EXPECT_EQ(ask_as(65534, daemon.socket(), "POST /lease/open?ttl_s=5").status, 200);
  EXPECT_EQ(daemon.set_limit("0", 200000, std::string(32, '0')).status, 404);
  EXPECT_EQ(limit_w(sim), 200);
}

TEST_F(ZeusdLease, OfTheNamelessIsListedWithoutItsId) {
  const Daemon daemon(sim);
  Wire wire(daemon.tcp());
  const std::string id = wire.ask("POST /lease/open?ttl_s=60").json()["lease"];
  const Json list = wire.ask("GET /lease/list").json();
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0]["lease"], id.substr(0, 8) + "...");
}

TEST_F(ZeusdLease, IsPutBackAtAnOrderlyStop) {
  Daemon daemon(sim);
  const std::string lease = daemon.open_lease();
  EXPECT_EQ(daemon.set_limit("0,1,2", 200000, lease).status, 200);
  const auto r = daemon.stop(SIGTERM);
  EXPECT_EQ(r.status, 0) << r.err;
  for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(limit_w(sim, i), 300);
  EXPECT_TRUE(journals(daemon).empty());
}

struct ZeusdRestart : ZeusdLease {};

TEST_F(ZeusdRestart, AfterAKillWaitsForTheHolderThenPutsBack) {
  Daemon daemon(sim);
  const std::string lease = daemon.open_lease("?ttl_s=60");
  EXPECT_EQ(daemon.set_limit("0,1", 200000, lease).status, 200);
  daemon.stop(SIGKILL);
  EXPECT_EQ(limit_w(sim), 200);

  daemon.start({"--adoption-seconds", "1"});
  const Json list = daemon.get("/lease/list").json();
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0]["lease"], lease);
  EXPECT_EQ(list[0]["waiting"], true);
  EXPECT_EQ(list[0]["gpus"], Json::parse("[0,1]"));
  EXPECT_EQ(limit_w(sim), 200);  // It waits.
  // Whoever comes meanwhile does not get in between.
  EXPECT_EQ(daemon.set_limit("0", 250000).status, 409);

  EXPECT_TRUE(eventually([&] { return limit_w(sim, 0) == 300 && limit_w(sim, 1) == 300; }));
  EXPECT_TRUE(eventually([&] { return journals(daemon).empty(); }));
  EXPECT_EQ(daemon.post("/lease/renew?lease=" + lease).status, 404);
}

TEST_F(ZeusdRestart, WaitsTenSecondsWhereNothingElseIsSaid) {
  Daemon daemon(sim);
  const std::string lease = daemon.open_lease();
  EXPECT_EQ(daemon.set_limit("0", 200000, lease).status, 200);
  daemon.stop(SIGKILL);
  daemon.start();
  const double left = daemon.get("/lease/list").json()[0]["ends_in_s"];
  EXPECT_GT(left, 5);
  EXPECT_LE(left, 10);
}

TEST_F(ZeusdRestart, KeepsTheValueOfAHolderWhoRenewsInTime) {
  Daemon daemon(sim);
  const std::string lease = daemon.open_lease();  // On the life of this very process.
  EXPECT_EQ(daemon.set_limit("0", 200000, lease).status, 200);
  daemon.stop(SIGKILL);
  daemon.start({"--adoption-seconds", "1"});

  const Json renewed = daemon.post("/lease/renew?lease=" + lease).json();
  EXPECT_EQ(renewed["waiting"], false) << renewed;
  EXPECT_EQ(renewed["pid"], ::getpid());
  std::this_thread::sleep_for(1500ms);  // Beyond the time of waiting.
  EXPECT_EQ(limit_w(sim), 200);
  EXPECT_EQ(daemon.set_limit("0", 180000, lease).status, 200);
  EXPECT_EQ(daemon.post("/lease/release?lease=" + lease).status, 200);
  EXPECT_EQ(limit_w(sim), 300);
}

TEST_F(ZeusdRestart, WhoeverOfTheSameUserRenewsGoesOnByHeartbeats) {
  Daemon daemon(sim);
  std::string id;
  {
    Child client([&] { return lease_and_write(daemon.socket(), {limit_line("0", 200000)}); });
    id = client.text();
    daemon.stop(SIGKILL);
    daemon.start({"--adoption-seconds", "2"});
    const Json renewed = daemon.post("/lease/renew?lease=" + id).json();
    EXPECT_TRUE(renewed["pid"].is_null()) << renewed;
    EXPECT_EQ(renewed["ttl_s"], 30) << renewed;
  }
  EXPECT_EQ(limit_w(sim), 200);
  EXPECT_EQ(daemon.post("/lease/release?lease=" + id).status, 200);
  EXPECT_EQ(limit_w(sim), 300);
}

TEST_F(ZeusdRestart, PutsBackWhatWaitsWhenItIsStopped) {
  Daemon daemon(sim);
  const std::string lease = daemon.open_lease();
  EXPECT_EQ(daemon.set_limit("0", 200000, lease).status, 200);
  daemon.stop(SIGKILL);
  daemon.start();
  EXPECT_EQ(limit_w(sim), 200);
  EXPECT_EQ(daemon.stop().status, 0);
  EXPECT_EQ(limit_w(sim), 300);
}

TEST_F(ZeusdRestart, BelievesNoJournalOfAnotherBoot) {
  Daemon daemon(sim);
  const std::string lease = daemon.open_lease();
  EXPECT_EQ(daemon.set_limit("0", 200000, lease).status, 200);
  daemon.stop(SIGKILL);
  ASSERT_EQ(journals(daemon).size(), 1U);
  const fs::path file = fs::path(daemon.journal()) / journals(daemon)[0];
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  std::ofstream(file) << "00000000-0000-4000-8000-000000000000"
                      << text.str().substr(text.str().find('\n'));

  daemon.start({"--adoption-seconds", "0"});
  EXPECT_EQ(daemon.get("/lease/list").json(), Json::array());
  EXPECT_TRUE(journals(daemon).empty());
  EXPECT_EQ(limit_w(sim), 200);
}

TEST_F(ZeusdRestart, LeavesTheJournalOfADeviceThatIsAwayAndSaysSo) {
  Daemon daemon(sim);
  const std::string lease = daemon.open_lease();
  EXPECT_EQ(daemon.set_limit("0", 200000, lease).status, 200);
  daemon.stop(SIGKILL);
  const fs::path file = fs::path(daemon.journal()) / journals(daemon).at(0);
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  const std::string uuid = sim.session().devices()[0].uuid,
                    gone = "GPU-00000000-0000-4000-8000-000000000000";
  std::string away = text.str();
  away.replace(away.find(uuid), uuid.size(), gone);
  fs::remove(file);
  std::ofstream(fs::path(daemon.journal()) / (gone + "+power_limit.lease")) << away;

  daemon.start();
  EXPECT_EQ(journals(daemon).size(), 1U);
  const auto r = daemon.stop();
  EXPECT_NE(r.err.find("cannot restore power_limit of " + gone + ": it is not here now"),
            std::string::npos)
      << r.err;
  EXPECT_EQ(journals(daemon).size(), 1U);
}

TEST_F(ZeusdRestart, AStrayOfAnotherProcessIsPutBackWhileItRunsAndWhenItStarts) {
  Daemon daemon(sim);
  const auto stray = [&] {
    const auto machine = open({Address::Scheme::sim, sim.session().folder().string()});
    const auto lease = machine ? Lease::take(*machine, sim.session().devices()[3].uuid,
                                             "power_limit", 120, daemon.journal())
                               : Result<Lease>(machine.error());
    if (!lease) return lease.error().detail;
    ::kill(::getpid(), SIGKILL);  // With its hand on the knob.
    return std::string();
  };
  { const Child child(stray); }
  EXPECT_TRUE(eventually([&] { return limit_w(sim, 3) == 300; }));
  EXPECT_TRUE(eventually([&] { return journals(daemon).empty(); }));
  EXPECT_TRUE(eventually([&] { return daemon.audit().size() == 1; }));
  EXPECT_EQ(daemon.audit()[0]["operation"], "restore power_limit");

  daemon.stop(SIGKILL);
  { const Child child(stray); }
  ASSERT_EQ(limit_w(sim, 3), 120);
  daemon.start();
  EXPECT_EQ(limit_w(sim, 3), 300);
}

}  // namespace
}  // namespace zeus::test
