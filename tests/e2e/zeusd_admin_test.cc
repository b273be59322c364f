// What an administrator relies on: what is read anew, what is logged, and who may take how much.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/daemon.h"
#include "support/signed_token.h"

namespace zeus::test {
namespace {

struct ZeusdAdmin : testing::Test {
  Simulated sim{four_gpus_and_a_cpu()};
  Tree tree;

  Words file(const std::string& option, const std::string& name, const std::string& text) {
    write(name, text);
    return {option, tree.root() / name};
  }
  void write(const std::string& name, const std::string& text) {
    tree.write(name, text);
    ::chmod((tree.root() / name).c_str(), 0600);
  }
  static std::string token(const std::string& key) {
    return "Authorization: Bearer " +
           signed_token(R"({"typ":"JWT","alg":"HS256"})", R"({"sub":"t","scopes":["gpu-read"]})",
                        key) +
           "\r\n";
  }
};

const std::string kOld = "a signing key of former times", kNew = "another signing key, and newer";

TEST_F(ZeusdAdmin, TakesANewSigningKeyOnSighupAndKeepsTheOldOneWhereThatIsBad) {
  Daemon daemon(sim, file("--signing-key-path", "key", kOld));
  const auto status = [&](const std::string& key) {
    return daemon.get("/gpu/get_power", token(key)).status;
  };
  EXPECT_EQ(status(kOld), 200);
  write("key", kNew);
  EXPECT_EQ(status(kNew), 401) << "not before it is told";
  ASSERT_EQ(::kill(daemon.pid(), SIGHUP), 0);
  EXPECT_TRUE(eventually([&] { return status(kNew) == 200; }));
  EXPECT_EQ(status(kOld), 401);

  write("key", "short");
  ASSERT_EQ(::kill(daemon.pid(), SIGHUP), 0);
  EXPECT_TRUE(daemon.says("it is named by --signing-key-path; the former stays in use"));
  EXPECT_EQ(status(kNew), 200);
  EXPECT_EQ(status("short"), 401);
}

TEST_F(ZeusdAdmin, TakesNewOverridesOnSighupAndKeepsTheOldOnesWhereTheyAreBad) {
  Daemon daemon(sim, file("--gpu-command-overrides", "o.toml",
                          "[set_power_limit]\ncommands = [\"/bin/false\"]\n"));
  EXPECT_EQ(daemon.set_limit("0", 200000).status, 500);
  write("o.toml", "[set_power_limit]\ncommands = [\"/bin/true\"]\n");
  ASSERT_EQ(::kill(daemon.pid(), SIGHUP), 0);
  EXPECT_TRUE(eventually([&] { return daemon.set_limit("0", 200000).status == 200; }));
  EXPECT_EQ(limit_w(sim), 300) << "by the command, which does nothing";

  write("o.toml", "[set_power_limit]\ncommands = [\"/none/of/this/name\"]\n");
  ASSERT_EQ(::kill(daemon.pid(), SIGHUP), 0);
  EXPECT_TRUE(daemon.says("it is named by --gpu-command-overrides; the former stays in use"));
  EXPECT_EQ(daemon.set_limit("0", 200000).status, 200);

  write("o.toml", "");
  ASSERT_EQ(::kill(daemon.pid(), SIGHUP), 0);
  EXPECT_TRUE(eventually([&] {
    return daemon.set_limit("0", 200000).status == 200 && limit_w(sim) == 200;
  })) << "by the driver again";
}

TEST_F(ZeusdAdmin, GoesOnInANewAuditLogWhereTheOldOneWasMovedAway) {
  Daemon daemon(sim);
  EXPECT_EQ(daemon.set_limit("0", 200000).status, 200);
  std::filesystem::rename(daemon.audit_file(), daemon.audit_file() + ".1");
  ASSERT_EQ(::kill(daemon.pid(), SIGHUP), 0);
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(daemon.audit_file()); }));
  EXPECT_EQ(daemon.set_limit("0", 210000).status, 200);
  ASSERT_EQ(daemon.audit().size(), 1U);
  EXPECT_EQ(daemon.audit()[0]["to"], "210000 mW");
}

TEST_F(ZeusdAdmin, AnswersWhileNobodyReadsItsLogAndSaysHowMuchThatLacks) {
  Daemon daemon(sim);
  constexpr std::size_t kLines = 600;  // Each is a line of 200 bytes; the pipe takes 64 KiB.
  for (std::size_t i = 0; i < kLines; ++i) {
    ASSERT_EQ(daemon.set_limit("0", 200000 + static_cast<unsigned>(i)).status, 200) << i;
  }
  EXPECT_EQ(daemon.get("/gpu/get_power").status, 200);
  EXPECT_EQ(daemon.audit().size(), kLines);
  // Once it is read again, it says so with the next line.
  std::atomic<bool> over{false};
  std::thread writer([&] {
    while (!over) (void)daemon.set_limit("0", 100000);
  });
  EXPECT_TRUE(daemon.says(" lines of this log were dropped"));
  over = true;
  writer.join();
}

TEST_F(ZeusdAdmin, DoesNoWriteThatItsAuditLogHasNoRoomForAndLosesNoLine) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to mount a disk that is full";
  const std::string disk = tree.root() / "disk", log = disk + "/audit.log";
  std::filesystem::create_directories(disk);
  Process process({"/usr/bin/unshare", "-m", "/bin/sh", "-c",
                   "mount -t tmpfs -o size=8k none " + disk + " && { cat /dev/zero > " + disk +
                       "/full 2>/dev/null; exec \"$@\"; }",
                   "sh", ZEUSD_BINARY, "serve", "--host", "sim:" + sim.session().folder().string(),
                   "--allow-simulated", "--socket-path", tree.root() / "z.sock", "--journal",
                   tree.root() / "journal", "--audit-log", log});
  ASSERT_TRUE(process.says(" serves ")) << process.said();
  const auto set = [&](unsigned mw) {
    return Wire(tree.root() / "z.sock")
        .ask("POST /gpu/set_power_limit?gpu_ids=0&block=true&power_limit_mw=" + std::to_string(mw));
  };
  EXPECT_EQ(set(200000).status, 200) << "it was done before its line had no room";
  const Answer refused = set(210000);
  EXPECT_EQ(refused.status, 503);
  for (const char* part : {"nothing was changed", "audit log", "No space left on device"}) {
    EXPECT_NE(refused.error("0").find(part), std::string::npos) << refused.body;
  }
  EXPECT_EQ(limit_w(sim), 200);
  EXPECT_EQ(Wire(tree.root() / "z.sock").ask("GET /gpu/get_power").status, 200);

  const std::string inside = "/proc/" + std::to_string(process.pid()) + "/root" + disk;
  ASSERT_TRUE(std::filesystem::remove(inside + "/full"));
  EXPECT_EQ(set(220000).status, 200);
  std::ifstream in(inside + "/audit.log");
  std::vector<std::string> to;
  for (std::string line; std::getline(in, line);) to.push_back(Json::parse(line)["to"]);
  EXPECT_EQ(to, (Words{"200000 mW", "220000 mW"}));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().status, 0);
}

TEST_F(ZeusdAdmin, OneUserGetsNoMoreConnectionsThanHisShareAndRootAll) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const Daemon daemon(sim, {"--max-connections-per-peer", "3", "--socket-permissions", "666"});
  const auto greedy = [&] {
    std::vector<Wire> wires;
    std::string seen;
    for (int i = 0; i < 5; ++i) {
      wires.emplace_back(daemon.socket());
      wires.back().request("GET /gpu/stream_power");
      const Answer a = wires.back().answer();
      seen += std::to_string(a.status) + ' ' + a.error() + '\n';
    }
    return seen;
  };
  const std::string no =
      "429 uid 65534 has 3 connections open, the most of one user or host; close some, or start "
      "the daemon with a larger --max-connections-per-peer\n";
  EXPECT_EQ(Child(greedy, 65534).text(), "200 \n200 \n200 \n" + no + no);
  EXPECT_EQ(greedy(), "200 \n200 \n200 \n200 \n200 \n");
  // With the connections the share is free again.
  EXPECT_TRUE(eventually(
      [&] { return ask_as(65534, daemon.socket(), "GET /gpu/get_power").status == 200; }));
}

}  // namespace
}  // namespace zeus::test
