// The library's own leases, over a daemon: the daemon watches whoever took them.

#include <gtest/gtest.h>

#include <string>

#include "support/daemon.h"
#include "zeus/lease.h"

namespace zeus::test {
namespace {

struct ZeusdLibrary : testing::Test {
  Machine open(const Daemon& daemon) const {
    return zeus::open(Address::parse("zeusd:" + daemon.socket()).value()).value();
  }
  Result<Lease> take(const Machine& machine, double watts) const {
    return Lease::take(machine, machine.devices.at(0).info.id, "power_limit", watts,
                       journal.root());
  }
  Simulated sim{four_gpus_and_a_cpu()};
  Tree journal;
};

// Two seconds are what is promised.
TEST_F(ZeusdLibrary, HasTheDaemonPutBackWhatAKilledProcessSet) {
  const Daemon daemon(sim);
  Child client([&] {
    const Machine machine = open(daemon);
    auto lease = take(machine, 200);
    if (!lease) return lease.error().detail;
    (void)new Lease(std::move(*lease));  // Held until the kill.
    return std::string("held");
  });
  ASSERT_EQ(client.text(), "held");
  ASSERT_EQ(limit_w(sim), 200);
  EXPECT_EQ(daemon.get("/lease/list").json().size(), 1U);
  const auto begin = std::chrono::steady_clock::now();
  client.kill();
  EXPECT_TRUE(eventually([&] { return limit_w(sim) == 300; }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
}

TEST_F(ZeusdLibrary, LeavesNoLeaseAtTheDaemonOnceAllIsBack) {
  const Daemon daemon(sim);
  const Machine machine = open(daemon);
  {
    auto lease = take(machine, 200);
    ASSERT_TRUE(lease) << lease.error().detail;
    EXPECT_EQ(lease->former(), 300);
    EXPECT_TRUE(lease->turn(150));
    EXPECT_EQ(limit_w(sim), 150);
    auto clocks = Lease::take(machine, machine.devices.at(1).info.id, "sm_clock", {900e6, 1200e6},
                              journal.root());
    ASSERT_TRUE(clocks) << clocks.error().detail;
    EXPECT_EQ(daemon.get("/lease/list").json().size(), 1U);
  }
  EXPECT_EQ(limit_w(sim), 300);
  EXPECT_EQ(daemon.get("/lease/list").json().size(), 0U);
}

TEST_F(ZeusdLibrary, LeavesWhatIsToStay) {
  const Daemon daemon(sim);
  {
    const Machine machine = open(daemon);
    auto lease = take(machine, 200);
    ASSERT_TRUE(lease) << lease.error().detail;
    EXPECT_TRUE(lease->keep());
  }
  EXPECT_EQ(limit_w(sim), 200);
  EXPECT_EQ(daemon.get("/lease/list").json().size(), 0U);
}

TEST_F(ZeusdLibrary, GoesOnUnderADaemonThatWasKilledAndCameBack) {
  Daemon daemon(sim);
  const Machine machine = open(daemon);
  auto lease = take(machine, 200);
  ASSERT_TRUE(lease) << lease.error().detail;
  (void)daemon.stop(SIGKILL);
  daemon.start();
  EXPECT_EQ(limit_w(sim), 200);
  // The first may find the connection of the dead daemon.
  EXPECT_TRUE(eventually([&] { return static_cast<bool>(lease->turn(250)); }));
  EXPECT_EQ(limit_w(sim), 250);
  // The write took the lease up: it waits no more, and is watched again.
  const Json leases = daemon.get("/lease/list").json();
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_EQ(leases[0]["waiting"], false);
  EXPECT_TRUE(lease->release());
  EXPECT_EQ(limit_w(sim), 300);
}

}  // namespace
}  // namespace zeus::test
