// Who may ask what: groups, tokens, hosts, users.

#include <gtest/gtest.h>

#include "support/daemon.h"
#include "support/signed_token.h"

namespace zeus::test {
namespace {

const std::string kKey = "integration-test-signing-key!!!!";
// The vectors of the wire's section 4.3.
const std::string kReader =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ0ZXN0dXNlciIsInNjb3BlcyI6WyJncHUtcmVhZCJdLCJle"
    "HAiOjk5OTk5OTk5OTl9.uiJPBfP5-zQ6ZaSCvx8KPbb7BE980zC_WfWX4vyCOEU";
const std::string kBob =
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IiLCJzY29wZXMiOlsiZ3B1LWNvbnRyb2wiXX0."
    "Uq4pXoWc1LafweJ69g1uPPJ7jctcdfI-iYKzFeQIwbA";

std::string bearer(const std::string& token) { return "Authorization: Bearer " + token + "\r\n"; }
std::string token(const std::string& claims, const std::string& key = kKey) {
  return bearer(signed_token(R"({"typ":"JWT","alg":"HS256"})", claims, key));
}

const std::vector<std::string> kReads = {
    "GET /gpu/get_power", "GET /gpu/get_cumulative_energy", "GET /gpu/get_power_limit",
    "GET /gpu/get_power_limit_constraints", "GET /gpu/get_persistence_mode"};
const std::vector<std::string> kCpuReads = {"GET /cpu/get_cumulative_energy?cpu=true&dram=true",
                                            "GET /cpu/get_power"};
const std::vector<std::string> kWrites = {
    "POST /gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true",
    "POST /gpu/set_persistence_mode?gpu_ids=0&enabled=true&block=true",
    "POST /gpu/set_gpu_locked_clocks?gpu_ids=0&min_clock_mhz=300&max_clock_mhz=900&block=true",
    "POST /gpu/set_mem_locked_clocks?gpu_ids=0&min_clock_mhz=2619&max_clock_mhz=2619&block=true",
    "POST /gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true",
    "POST /gpu/reset_mem_locked_clocks?gpu_ids=0&block=true",
    "POST /gpu/reset_locked_clocks?gpu_ids=0&block=true"};

struct ZeusdAccess : testing::Test {
  Simulated sim{four_gpus_and_a_cpu()};
  Tree tree;

  Words key() {
    tree.write("key", kKey);
    ::chmod((tree.root() / "key").c_str(), 0600);
    return {"--signing-key-path", tree.root() / "key"};
  }
  Words key_and(Words more) {
    Words words = key();
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static int status(const Daemon& daemon, const std::string& line, const std::string& head = {}) {
    return Wire(daemon.socket()).ask(line, head).status;
  }
};

TEST_F(ZeusdAccess, OnlyGpuReadServesReadsOfGpusAndHidesTheRest) {
  const Daemon daemon(sim, {"--enable", "gpu-read"});
  for (const auto& line : kReads) EXPECT_EQ(status(daemon, line), 200) << line;
  for (const auto& line : kWrites) EXPECT_EQ(status(daemon, line), 404) << line;
  for (const auto& line : kCpuReads) EXPECT_EQ(status(daemon, line), 404) << line;
  EXPECT_NE(daemon.get("/cpu/get_power").error().find("cpu-read is not enabled"),
            std::string::npos);
  EXPECT_EQ(status(daemon, "POST /lease/open"), 404);
  const Json j = daemon.get("/discover").json();
  EXPECT_EQ(j["enabled_api_groups"], Json::parse(R"(["gpu-read"])"));
  EXPECT_EQ(j["gpus"].size(), 4U);
  EXPECT_EQ(j["cpus"].size(), 0U);
}

TEST_F(ZeusdAccess, OnlyGpuControlServesWrites) {
  const Daemon daemon(sim, {"--enable", "gpu-control"});
  for (const auto& line : kWrites) EXPECT_EQ(status(daemon, line), 200) << line;
  for (const auto& line : kReads) EXPECT_EQ(status(daemon, line), 404) << line;
  EXPECT_EQ(daemon.get("/discover").json()["gpus"].size(), 4U);
}

TEST_F(ZeusdAccess, OnlyCpuReadServesProcessors) {
  const Daemon daemon(sim, {"--enable", "cpu-read"});
  for (const auto& line : kCpuReads) EXPECT_EQ(status(daemon, line), 200) << line;
  for (const auto& line : kReads) EXPECT_EQ(status(daemon, line), 404) << line;
  for (const auto& line : kWrites) EXPECT_EQ(status(daemon, line), 404) << line;
  const Json j = daemon.get("/discover").json();
  EXPECT_EQ(j["gpus"].size(), 0U);
  EXPECT_EQ(j["cpus"].size(), 1U);
  EXPECT_EQ(j["enabled_api_groups"], Json::parse(R"(["cpu-read"])"));
}

TEST_F(ZeusdAccess, ADisabledGroupIsNotFoundBeforeAnyTokenIsLookedAt) {
  const Daemon daemon(sim, key_and({"--enable", "gpu-read"}));
  for (const std::string& head :
       {std::string(), bearer("garbage"), bearer(kReader), bearer(kBob)}) {
    for (const auto& line : kWrites) EXPECT_EQ(status(daemon, line, head), 404) << line << head;
    EXPECT_EQ(status(daemon, "GET /cpu/get_power", head), 404) << head;
    EXPECT_EQ(status(daemon, "GET /cpu/whatever", head), 404) << head;
  }
}

TEST_F(ZeusdAccess, DiscoverAndTimeAreOpenAndSayWhetherATokenIsWanted) {
  const Daemon open(sim), closed(sim, key());
  EXPECT_EQ(open.get("/discover").json()["auth_required"], false);
  EXPECT_EQ(closed.get("/discover").json()["auth_required"], true);
  for (const Daemon* d : {&open, &closed}) {
    EXPECT_EQ(d->get("/time").status, 200);
    EXPECT_EQ(d->get("/time", bearer("garbage")).status, 200);
    EXPECT_EQ(d->get("/healthz").status, 200);
  }
}

TEST_F(ZeusdAccess, WithoutAKeyNoTokenIsLookedAt) {
  const Daemon daemon(sim);
  EXPECT_EQ(status(daemon, "GET /gpu/get_power"), 200);
  EXPECT_EQ(status(daemon, "GET /gpu/get_power", bearer("garbage")), 200);
  for (const char* path : {"/auth/whoami", "/auth/whatever"}) {
    const Answer a = daemon.get(path);
    EXPECT_EQ(a.status, 404);
    EXPECT_FALSE(a.error().empty()) << a.body;
  }
}

TEST_F(ZeusdAccess, ATokenMustBeThereValidAndInTime) {
  const Daemon daemon(sim, key());
  const std::string long_past = token(R"({"sub":"t","scopes":["gpu-read"],"exp":1000000000})"),
                    wrong_key =
                        token(R"({"sub":"t","scopes":["gpu-read"]})", "another key of this");
  for (const std::string& head :
       {std::string(), bearer("garbage"), long_past, wrong_key,
        "Authorization: bearer " + kReader + "\r\n", "Authorization: Basic " + kReader + "\r\n"}) {
    for (const char* path : {"/gpu/get_power", "/auth/whoami", "/nothing", "/metrics"}) {
      const Answer a = daemon.get(path, head);
      EXPECT_EQ(a.status, 401) << path << head;
      EXPECT_EQ(a.header("www-authenticate"), "Bearer realm=\"zeusd\"");
      EXPECT_FALSE(a.error().empty()) << a.body;
    }
  }
  EXPECT_NE(daemon.get("/gpu/get_power", long_past).error().find("expired"), std::string::npos);
}

// Section 18.1.10: sixty seconds for clocks that differ.
TEST_F(ZeusdAccess, ATokenIsGoodForAMinuteAfterItExpired) {
  const Daemon daemon(sim, key());
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const auto expired = [&](std::int64_t ago) {
    return token(R"({"sub":"t","scopes":[],"exp":)" + std::to_string(now - ago) + "}");
  };
  EXPECT_EQ(daemon.get("/auth/whoami", expired(40)).status, 200);
  EXPECT_EQ(daemon.get("/auth/whoami", expired(120)).status, 401);
}

TEST_F(ZeusdAccess, AScopeOpensItsGroupAlone) {
  const Daemon daemon(sim, key());
  const auto scope = [](const char* name) {
    return token(std::string(R"({"sub":"t","scopes":[")") + name + "\"]}");
  };
  struct Row {
    const char* scope;
    int read, write, cpu;
  };
  for (const Row& row : {Row{"gpu-read", 200, 403, 403}, Row{"gpu-control", 403, 200, 403},
                         Row{"cpu-read", 403, 403, 200}}) {
    for (const auto& line : kReads) EXPECT_EQ(status(daemon, line, scope(row.scope)), row.read);
    for (const auto& line : kWrites) EXPECT_EQ(status(daemon, line, scope(row.scope)), row.write);
    for (const auto& line : kCpuReads) EXPECT_EQ(status(daemon, line, scope(row.scope)), row.cpu);
  }
  const Answer a = daemon.get("/gpu/get_power", bearer(kBob));
  EXPECT_EQ(a.status, 403);
  EXPECT_EQ(a.header("www-authenticate"), "");
  for (const char* part : {"bob", "gpu-read", "gpu-control"}) {
    EXPECT_NE(a.error().find(part), std::string::npos) << a.body;
  }
}

TEST_F(ZeusdAccess, WhoamiTellsWhatTheTokenSays) {
  const Daemon daemon(sim, key());
  EXPECT_EQ(daemon.get("/auth/whoami", bearer(kBob)).body,
            R"({"sub":"bob","scopes":["gpu-control"]})");
  EXPECT_EQ(daemon.get("/auth/whoami", bearer(kReader)).body,
            R"({"sub":"testuser","scopes":["gpu-read"],"exp":9999999999})");
  EXPECT_EQ(
      daemon.get("/auth/whoami", token(R"({"sub":"a","scopes":["cpu-read","gpu-read"]})")).json(),
      Json::parse(R"({"sub":"a","scopes":["cpu-read","gpu-read"]})"));
}

// Section 18.1.1: what is routed is what is judged.
TEST_F(ZeusdAccess, APathInPercentSignsIsJudgedByWhatItMeans) {
  const Daemon daemon(sim, key());
  const std::string write = "set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true";
  for (const std::string& path : {"/gpu/%73et_power_limit" + write.substr(15), "/%67pu/" + write,
                                  "/gpu/set%5fpower_limit" + write.substr(15),
                                  "/gp%75/se%74_power_limit" + write.substr(15)}) {
    EXPECT_EQ(status(daemon, "POST " + path, bearer(kReader)), 403) << path;
    EXPECT_EQ(status(daemon, "POST " + path), 401) << path;
    EXPECT_EQ(limit_w(sim), 300) << path;
    EXPECT_EQ(status(daemon, "POST " + path, bearer(kBob)), 200) << path;
    EXPECT_EQ(limit_w(sim), 200) << path;
    EXPECT_EQ(status(daemon, "POST /gpu/set_power_limit?gpu_ids=0&power_limit_mw=300000&block=true",
                     bearer(kBob)),
              200);
  }
  // Decoded once, and once only.
  EXPECT_NE(status(daemon, "POST /gpu/%2573et_power_limit" + write.substr(15), bearer(kBob)), 200);
  EXPECT_EQ(status(daemon, "POST /gpu%2f" + write, bearer(kReader)), 403);
}

TEST_F(ZeusdAccess, OverTcpANameThatIsNotOursIsRefused) {
  const Daemon daemon(sim, {"--allow-host", "node1"});
  const auto status_of = [&](const std::string& host, const std::string& origin) {
    Wire wire(daemon.tcp());
    wire.send(
        "POST /gpu/set_persistence_mode?gpu_ids=0&enabled=true&block=true HTTP/1.1\r\nHost: " +
        host + "\r\n" + (origin.empty() ? "" : "Origin: " + origin + "\r\n") + "\r\n");
    return wire.answer().status;
  };
  const std::string here = daemon.tcp();
  for (const std::string& host : {here, std::string("localhost"), std::string("localhost:4938"),
                                  std::string("node1:4938"), std::string("[::1]:4938")}) {
    EXPECT_EQ(status_of(host, ""), 200) << host;
    EXPECT_EQ(status_of(host, "http://" + host), 200) << host;
    EXPECT_EQ(status_of(host, "http://evil.example"), 403) << host;
    EXPECT_EQ(status_of(host, "null"), 403) << host;
  }
  for (const char* host : {"evil.example", "evil.example:4938", "node1.evil.example",
                           "127.0.0.1.evil.example", "localhost.evil.example"}) {
    EXPECT_EQ(status_of(host, ""), 403) << host;
  }
}

TEST_F(ZeusdAccess, OverTcpControlCanBeTakenAway) {
  const Daemon daemon(sim, {"--tcp-read-only"});
  Wire wire(daemon.tcp());
  EXPECT_EQ(wire.ask("GET /gpu/get_power").status, 200);
  for (const auto& line : kWrites) EXPECT_EQ(wire.ask(line).status, 403) << line;
  EXPECT_EQ(wire.ask("POST /lease/open?ttl_s=5").status, 403);
  EXPECT_EQ(daemon.set_limit("0", 200000).status, 200);
}

TEST_F(ZeusdAccess, RulesSayWhichUsersMayUseAGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const Daemon daemon(sim, {"--socket-permissions", "666", "--allow", "gpu-control=@65533,65532",
                            "--allow", "cpu-read=65531"});
  const std::string write = kWrites[0];
  const auto as = [&](uid_t uid, const std::string& line) {
    return ask_as(uid, daemon.socket(), line).status;
  };
  EXPECT_EQ(as(65534, write), 403);
  EXPECT_EQ(as(65532, write), 200);
  EXPECT_EQ(as(65533, write), 200);  // By its group.
  EXPECT_EQ(as(65531, write), 403);
  EXPECT_EQ(as(65534, "POST /lease/open?ttl_s=5"), 403);
  EXPECT_EQ(as(65534, "GET /gpu/get_power"), 200);
  EXPECT_EQ(as(65534, "GET /cpu/get_power"), 403);
  EXPECT_EQ(as(65531, "GET /cpu/get_power"), 200);
  EXPECT_EQ(status(daemon, write), 200);  // Root's own.
  // Nor does the page of metrics show what a user may not read.
  const std::string page = ask_as(65534, daemon.socket(), "GET /metrics").body;
  EXPECT_NE(page.find("domain=\"gpu\""), std::string::npos);
  EXPECT_EQ(page.find("domain=\"package\""), std::string::npos);
}

TEST_F(ZeusdAccess, MetricsShowWhatTheirReaderMayRead) {
  const Daemon daemon(sim, key());
  const auto page = [&](const char* scopes) {
    return daemon.get("/metrics", token(std::string(R"({"sub":"p","scopes":[)") + scopes + "]}"));
  };
  const Answer gpu = page("\"gpu-read\""), cpu = page("\"cpu-read\""), none = page("");
  EXPECT_NE(gpu.body.find("domain=\"gpu\""), std::string::npos);
  EXPECT_EQ(gpu.body.find("domain=\"package\""), std::string::npos);
  EXPECT_EQ(cpu.body.find("domain=\"gpu\""), std::string::npos);
  EXPECT_NE(cpu.body.find("domain=\"package\""), std::string::npos);
  EXPECT_EQ(none.status, 200);
  EXPECT_EQ(none.body.find("domain="), std::string::npos);
  EXPECT_EQ(none.body.find("device="), std::string::npos);
  EXPECT_NE(none.body.find("zeusd_build_info"), std::string::npos);
}

TEST_F(ZeusdAccess, ATokenWithAnOddNameHoldsLeasesAcrossACrashLikeAny) {
  Daemon daemon(sim, key());
  const std::string odd = token(R"({"sub":"a\nb %41\u0007 c","scopes":["gpu-control"]})"),
                    plain = token(R"({"sub":"a\nb A\u0007 c","scopes":["gpu-control"]})");
  const std::string id = daemon.post("/lease/open?ttl_s=60", odd).json().value("lease", "");
  ASSERT_FALSE(id.empty());
  const Answer set = daemon.post(
      "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true&lease=" + id, odd);
  EXPECT_EQ(set.status, 200) << set.body;
  daemon.stop(SIGKILL);
  daemon.start();
  EXPECT_EQ(daemon.post("/lease/renew?lease=" + id, plain).status, 403);
  EXPECT_EQ(daemon.post("/lease/renew?lease=" + id, odd).status, 200);
  EXPECT_EQ(limit_w(sim), 200);
  EXPECT_EQ(daemon.post("/lease/release?lease=" + id, odd).status, 200);
  EXPECT_EQ(limit_w(sim), 300);

  const std::string endless =
      token(R"({"sub":")" + std::string(3000, 'x') + R"(","scopes":["gpu-control"]})");
  EXPECT_EQ(daemon.post("/lease/open?ttl_s=60", endless).status, 400);
}

struct ZeusdStart : ZeusdAccess {
  Process::Result start(const Words& more) {
    Words words = {ZEUSD_BINARY,
                   "serve",
                   "--host",
                   "sim:" + sim.session().folder().string(),
                   "--allow-simulated",
                   "--socket-path",
                   tree.root() / "z.sock",
                   "--journal",
                   tree.root() / "journal"};
    words.insert(words.end(), more.begin(), more.end());
    return Process(words).wait();
  }
};

// field failure 160
TEST_F(ZeusdStart, MakesTheFolderOfItsSocket) {
  const Daemon daemon(sim);  // In a folder of a folder that is empty.
  EXPECT_EQ(daemon.socket(), daemon.folder() / "not/there/z.sock");
  EXPECT_EQ(daemon.get("/time").status, 200);
}

TEST_F(ZeusdStart, GivesItsSocketTheModeAndOwnersItIsTold) {
  const auto look = [](const Daemon& daemon) {
    struct stat s {};
    EXPECT_EQ(::stat(daemon.socket().c_str(), &s), 0);
    return s;
  };
  EXPECT_EQ(look(Daemon(sim)).st_mode & 0777U, 0660U);
  EXPECT_EQ(look(Daemon(sim, {"--compat"})).st_mode & 0777U, 0666U);
  if (::geteuid() != 0) return;
  const auto s = look(Daemon(
      sim, {"--socket-permissions", "640", "--socket-uid", "65532", "--socket-gid", "65533"}));
  EXPECT_EQ(s.st_mode & 0777U, 0640U);
  EXPECT_EQ(s.st_uid, 65532U);
  EXPECT_EQ(s.st_gid, 65533U);
}

TEST_F(ZeusdStart, RefusesControlForTheWholeNetworkWithoutAKey) {
  const auto r = start({"--mode", "tcp", "--tcp-bind-address", "0.0.0.0:0"});
  EXPECT_EQ(r.status, 1);
  for (const char* way : {"--signing-key-path", "--tcp-read-only", "--insecure-control"}) {
    EXPECT_NE(r.err.find(way), std::string::npos) << r.err;
  }
}

TEST_F(ZeusdStart, RefusesAJournalThatOthersMayWrite) {
  std::filesystem::create_directories(tree.root() / "journal");
  ::chmod((tree.root() / "journal").c_str(), 0777);
  const auto r = start({});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("others may write there"), std::string::npos) << r.err;
}

TEST_F(ZeusdStart, RefusesRulesForNobodyAndNumbersThatAreNone) {
  for (const char* rule :
       {"gpu-control=@99999999999", "gpu-control=99999999999", "gpu-control=root,,root",
        "gpu-control=nobody-of-this-name", "gpu=root", "gpu-control"}) {
    const auto r = start({"--allow", rule});
    EXPECT_EQ(r.status, 2) << rule << r.err;
  }
}

TEST_F(ZeusdStart, NamesTheOptionOfAFileThatIsNotThere) {
  for (const char* option : {"--signing-key-path", "--gpu-command-overrides", "--audit-log"}) {
    const auto r = start({option, (tree.root() / "none/of/this/name").string()});
    EXPECT_EQ(r.status, 1) << r.err;
    EXPECT_NE(r.err.find(std::string("it is named by ") + option), std::string::npos) << r.err;
  }
  const auto r = Process({ZEUSD_BINARY, "token", "issue", "--user", "a", "--expires", "1h",
                          "--signing-key-path", tree.root() / "none"})
                     .wait();
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("it is named by --signing-key-path"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace zeus::test
