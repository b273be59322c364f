// zeus processes: the energy of a GPU, divided among the processes on it.

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "cli.h"

namespace zeus::test {
namespace {

std::string gpu(const std::string& more) {
  return "[[gpu]]\nmodel = \"One\"\npower = { watts = 300 }\nenergy = { update = \"20ms\" }\n" +
         more + "\n";
}

struct ZeusProcesses : testing::Test {
  Tree tree;
  Process::Result run(const std::string& scenario, Words more = {}) {
    tree.write("shared.toml", scenario);
    Words words = {"--host", "sim:" + (tree.root() / "shared.toml").string(), "processes",
                   "--duration", "1s"};
    words.insert(words.end(), more.begin(), more.end());
    return zeus(words);
  }
};

// field failure 108
TEST_F(ZeusProcesses, DividesNineToOneAndAddsUpToTheWhole) {
  const std::string mine = std::to_string(::getpid());
  const auto r = run(
      gpu("processes = [{ pid = " + mine + ", sm = 90 }, { pid = 4194400, sm = 10 }]"), {"--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json out = Json::parse(r.out);
  EXPECT_EQ(out["schema"], "zeus.processes/1");
  EXPECT_EQ(out["attribution"], "model: shares of SM time");
  const Json& one = out["gpus"][0];
  const auto whole = one["energy_uj"].get<std::uint64_t>();
  EXPECT_NEAR(static_cast<double>(whole) * 1e-6, 300 * out["duration_s"].get<double>(), 15);
  EXPECT_NEAR(one["energy"]["energy_j"].get<double>(), static_cast<double>(whole) * 1e-6, 1e-6);
  ASSERT_EQ(one["processes"].size(), 2U);
  const Json &first = one["processes"][0], &second = one["processes"][1];
  EXPECT_EQ(first["pid"], ::getpid());
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  EXPECT_EQ(first["name"], name);
  EXPECT_NEAR(first["share"].get<double>(), 0.9, 1e-6);
  EXPECT_EQ(second["pid"], 4194400);
  EXPECT_TRUE(second["name"].is_null());
  EXPECT_NEAR(second["share"].get<double>(), 0.1, 1e-6);
  EXPECT_EQ(first["energy_uj"].get<std::uint64_t>() + second["energy_uj"].get<std::uint64_t>() +
                one["idle_uj"].get<std::uint64_t>(),
            whole);
}

// field failure 108
TEST_F(ZeusProcesses, LeavesToIdleWhatNobodyUsed) {
  const auto r = run(gpu("processes = [{ pid = 4194400, sm = 25 }]") + gpu(""), {"--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json out = Json::parse(r.out);
  EXPECT_NEAR(out["gpus"][0]["processes"][0]["share"].get<double>(), 0.25, 1e-6);
  EXPECT_TRUE(out["gpus"][1]["processes"].empty());
  EXPECT_EQ(out["gpus"][1]["idle_uj"], out["gpus"][1]["energy_uj"]);
}

// field failure 109
TEST_F(ZeusProcesses, AreUnavailableUnderMigWithTheReasonAndTheOthersAreDivided) {
  const std::string cut = gpu("mig = [\"MIG-1\"]\nprocesses = [{ pid = 4194400, sm = 50 }]");
  const auto r = run(cut + gpu("processes = [{ pid = 4194401, sm = 100 }]"));
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("GPU 0 One: unavailable: NVML gives no process utilisation while MIG is on"),
            std::string::npos)
      << r.out;
  EXPECT_NE(r.out.find("joules of processes are a model: shares of SM time"), std::string::npos);
  EXPECT_NE(r.out.find("4194401  ?"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("SIMULATED"), std::string::npos);

  const auto alone = run(cut, {"--json"});
  EXPECT_EQ(alone.status, 1);
  EXPECT_TRUE(one_sentence(alone.err)) << alone.err;
  EXPECT_EQ(Json::parse(alone.out)["gpus"][0]["unavailable"],
            "NVML gives no process utilisation while MIG is on");
}

TEST_F(ZeusProcesses, SaysWhatIsWrongInOneSentence) {
  const auto none =
      run("[[zone]]\npath = \"intel-rapl:0\"\nname = \"package-0\"\n"
          "power = { watts = 60 }\n");
  EXPECT_EQ(none.status, 1);
  EXPECT_TRUE(one_sentence(none.err)) << none.err;
  const auto brief = zeus({"processes", "--duration", "100ms"});
  EXPECT_EQ(brief.status, 2);
  EXPECT_TRUE(one_sentence(brief.err)) << brief.err;
}

TEST_F(ZeusProcesses, WritesItsReportToAFile) {
  const std::string file = (tree.root() / "p.json").string();
  const auto r = run(gpu("processes = [{ pid = 4194400, sm = 25 }]"), {"--json", "-o", file});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_EQ(json_of(file)["gpus"].size(), 1U);
}

}  // namespace
}  // namespace zeus::test
