#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "e2e/cli.h"
#include "support/peer.h"

// The command line beside a daemon, which is a script on a real socket.

namespace zeus {
namespace {

using test::Peer;

/// One GPU that draws 100 W, by a counter that follows the clock, and by its stream.
bool answer(const Peer::Call& call) {
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  if (call.target() == "/discover") {
    call.answer(200, R"({"gpus":[{"id":0,"name":"A","pci_address":"0000:19:00.0",)"
                     R"("cumulative_energy_available":true}],"cpus":[],)"
                     R"("enabled_api_groups":["gpu-read"],"auth_required":false})");
  } else if (call.target() == "/time") {
    call.answer(200, "{\"timestamp_ms\":" + std::to_string(now) + '}');
  } else if (call.target().starts_with("/gpu/get_cumulative_energy")) {
    call.answer(200, "{\"0\":{\"energy_mj\":" + std::to_string(now * 100) + "}}");
  } else if (call.target().starts_with("/gpu/get_power")) {
    call.answer(200, "{\"timestamp_ms\":1,\"power_mw\":{\"0\":100000}}");
  } else {
    call.send(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        "data: {\"timestamp_ms\":1,\"gpu_id\":0,\"power_mw\":100000}\n\n");
    call.wait();
    return false;
  }
  return true;
}

TEST(CliRemote, MeasuresWhatADaemonServes) {
  Peer peer = Peer::at_path(answer);
  const auto r =
      test::zeus({"--host", "zeusd:" + peer.where(), "--json", "run", "--", "sleep", "0.3"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto json = nlohmann::json::parse(r.err);
  const auto& domain = json.at("runs").at(0).at("domains").at(0);
  EXPECT_EQ(domain.at("domain"), "gpu:0");
  const double joules = domain.at("energy_j"), u = domain.at("u_abs_j");
  const double length_s = json.at("runs").at(0).at("window").at("duration_s");
  EXPECT_NEAR(joules, 100 * length_s, 3 * u) << r.err;
}

// field failure 159: with GPUs and a typo in the variable there is an error, and no total of 0 J.
TEST(CliRemote, EndsWhereTheDaemonOfTheEnvironmentDoesNotAnswer) {
  const auto r = test::zeus({"run", "--", "true"},
                            {.environment = {{"ZEUSD_SOCK_PATH", "/nonexistent/zeusd.sock"}}});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("cannot reach zeusd at /nonexistent/zeusd.sock"), std::string::npos)
      << r.err;
  EXPECT_NE(r.err.find("ZEUSD_SOCK_PATH"), std::string::npos);
  EXPECT_EQ(r.err.find(" J"), std::string::npos);
  const auto local = test::zeus({"--host", "local:", "run", "--", "true"},
                                {.environment = {{"ZEUSD_SOCK_PATH", "/nonexistent/zeusd.sock"}}});
  EXPECT_EQ(local.status, 0) << local.err;
}

TEST(CliRemote, FollowsAFleetAndSaysWhoWasNeverReached) {
  std::string gone;
  {
    Peer peer(answer);
    gone = peer.where();
  }
  Peer peer(answer);
  const auto alone =
      test::zeus({"fleet", "--json", "-I", "200ms", "--duration", "1s", peer.where()});
  EXPECT_EQ(alone.status, 0) << alone.err;
  const auto last =
      nlohmann::json::parse(alone.out.substr(alone.out.rfind('\n', alone.out.size() - 2) + 1));
  EXPECT_EQ(last.at("host"), peer.where());
  EXPECT_EQ(last.at("state"), "live");
  EXPECT_EQ(last.at("gpu").at("0").at("power_w"), 100);
  EXPECT_GT(last.at("gpu").at("0").at("energy_j"), 0);

  const auto both =
      test::zeus({"fleet", "-v", "-I", "200ms", "--duration", "500ms", peer.where(), gone});
  EXPECT_EQ(both.status, 1);
  EXPECT_NE(both.out.find("100.0 W"), std::string::npos) << both.out;
  EXPECT_NE(both.out.find("connection refused"), std::string::npos) << both.out;
  EXPECT_NE(both.err.find("never reached"), std::string::npos) << both.err;
}

TEST(CliRemote, RefusesAFleetThatMakesNoSense) {
  EXPECT_EQ(test::zeus({"fleet"}).status, 2);
  EXPECT_EQ(test::zeus({"fleet", "a b"}).status, 2);
  EXPECT_EQ(test::zeus({"fleet", "node1", "node1:4938"}).status, 2);
  EXPECT_EQ(test::zeus({"fleet", "-I", "1ms", "node1"}).status, 2);
}

}  // namespace
}  // namespace zeus
