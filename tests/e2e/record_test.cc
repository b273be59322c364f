// What `zeus record` keeps, what `zeus verify` makes of it, and how it plays as a machine.

#include <gtest/gtest.h>

#include "e2e/cli.h"

namespace zeus::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

/// A recording of a simulated machine, and what was printed meanwhile.
struct Taped {
  explicit Taped(const std::string& machine, Words options = {},
                 const std::string& seconds = "0.6") {
    Words words = {"--host", "sim:" + machine, "record", "-o", file.string()};
    words.insert(words.end(), options.begin(), options.end());
    for (const std::string& word : Words{"--", "sleep", seconds}) {
      words.push_back(word);
    }
    printed = zeus(words);
  }
  Process::Result verify(Words options = {}) const {
    options.insert(options.begin(), "verify");
    options.push_back(file.string());
    return zeus(options);
  }
  Words on_it(Words words) const {
    words.insert(words.begin(), {"--host", "replay:" + file.string()});
    return words;
  }

  Tree tree;
  fs::path file = tree.root() / "a.zeus";
  Process::Result printed;
};

TEST(Record, PrintsTheReportOfRunAndTheFile) {
  const Taped taped("constant");

  EXPECT_EQ(taped.printed.status, 0) << taped.printed.err;
  EXPECT_NE(taped.printed.err.find("SIMULATED (scenario constant)"), std::string::npos);
  EXPECT_NE(taped.printed.err.find("\n  total  "), std::string::npos) << taped.printed.err;
  EXPECT_NE(taped.printed.err.find("recorded in " + taped.file.string() + ": "), std::string::npos);
}

TEST(Record, TakesFourBytesASampleAtMost) {
  const Taped taped("square", {"--json", "--period", "20ms"}, "1");
  const Json report = Json::parse(taped.printed.err, nullptr, false);

  EXPECT_EQ(report["schema"], "zeus.run/1") << taped.printed.err;
  EXPECT_GT(report["recording"]["samples"], 300);
  EXPECT_LE(report["recording"]["bytes_per_sample"], 4.0);
}

TEST(Record, IsVerifiedBitForBitByTheSameBuild) {
  for (const char* machine : {"constant", "square"}) {
    const Taped taped(machine);
    const auto r = taped.verify();
    const Json json = Json::parse(taped.verify({"--json"}).out, nullptr, false);

    EXPECT_EQ(r.status, 0) << r.out << r.err;
    EXPECT_NE(r.out.find("bit for bit: this is the same build"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("SIMULATED"), std::string::npos);
    EXPECT_EQ(json["schema"], "zeus.verify/1");
    EXPECT_EQ(json["files"][0]["comparison"], "bits");
    EXPECT_GT(json["files"][0]["samples_checked"], 0);
  }
}

TEST(Record, OfSeveralRunsAndLapsIsVerified) {
  for (const Words& options : {Words{"-r", "2", "--warmup", "1", "--json"}, Words{"-I", "100"}}) {
    const Taped taped("square", options);
    const auto r = taped.verify();
    EXPECT_EQ(r.status, 0) << r.out << r.err;
  }
}

TEST(Record, WithoutACommandTakesATime) {
  const Tree tree;
  const std::string file = (tree.root() / "t.zeus").string();
  const auto r =
      zeus({"--host", "sim:constant", "record", "--json", "--duration", "300ms", "-o", file});

  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_GE(Json::parse(r.err)["window"]["duration_s"], 0.3);
  EXPECT_EQ(zeus({"verify", file}).status, 0);
}

TEST(Record, NamesItsFileByTheTimeAndLeavesNoneWhereNothingRan) {
  const Tree tree;
  Process::Options here;
  here.folder = tree.root().string();
  EXPECT_EQ(zeus({"--host", "sim:constant", "record", "--", "no-such-command"}, here).status, 127);
  EXPECT_TRUE(fs::is_empty(tree.root()));
  EXPECT_EQ(zeus({"--host", "sim:constant", "record", "--", "true"}, here).status, 0);
  const std::string name = fs::directory_iterator(tree.root())->path().filename().string();

  EXPECT_TRUE(name.starts_with("zeus-20") && name.ends_with("Z.zeus")) << name;
}

TEST(Record, IsWholeAfterAnInterrupt) {
  const Tree tree;
  const std::string file = (tree.root() / "i.zeus").string();
  Process p(zeus_words({"--host", "sim:constant", "record", "-o", file, "--", "sh", "-c",
                        "trap 'exit 7' INT; echo ready; while :; do sleep 0.02; done"}));
  ASSERT_TRUE(p.sees("ready\n"));
  p.signal(SIGINT);

  EXPECT_EQ(p.wait().status, 7);
  EXPECT_EQ(zeus({"verify", file}).status, 0);
}

TEST(Record, ThatWasKilledIsReadAndSaysThatItIsNotWhole) {
  const Tree tree;
  const fs::path file = tree.root() / "k.zeus";
  Process p(
      zeus_words({"--host", "sim:constant", "record", "--duration", "60s", "-o", file.string()}));
  std::error_code none;
  for (int i = 0; i < 3000 && (!fs::exists(file) || fs::file_size(file, none) < 100); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  p.signal(SIGKILL);
  EXPECT_EQ(p.wait().status, -SIGKILL);
  const auto verified = zeus({"verify", file.string()});
  const auto env = zeus({"--host", "replay:" + file.string(), "env"});

  EXPECT_EQ(verified.status, 1);
  EXPECT_TRUE(one_sentence(verified.err)) << verified.err;
  EXPECT_NE(verified.err.find("without its last block"), std::string::npos) << verified.err;
  EXPECT_EQ(env.status, 0) << env.err;
  EXPECT_NE(env.out.find("is not whole"), std::string::npos) << env.out;
  EXPECT_NE(env.out.find("Simulated 100 W"), std::string::npos) << env.out;
}

TEST(Record, GoesOnWithoutADiskAndFailsAtTheEnd) {
  const auto fine =
      zeus({"--host", "sim:constant", "record", "-o", "/dev/full", "--", "echo", "ran"});
  const auto failing =
      zeus({"--host", "sim:constant", "record", "-o", "/dev/full", "--", "sh", "-c", "exit 3"});

  EXPECT_EQ(fine.status, 1);
  EXPECT_EQ(fine.out, "ran\n");
  EXPECT_NE(fine.err.find("cannot write /dev/full"), std::string::npos) << fine.err;
  EXPECT_NE(fine.err.find("  total  "), std::string::npos) << "the report is printed all the same";
  EXPECT_EQ(failing.status, 3);
}

TEST(Verify, SaysWhereAFileIsDamaged) {
  const Taped taped("constant");
  const std::string whole = content(taped.file);
  for (const std::size_t at : {whole.size() / 8, whole.size() / 2, whole.size() - 3}) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    std::ofstream(taped.file, std::ios::binary) << flipped;
    const auto r = taped.verify();
    EXPECT_EQ(r.status, 1) << at;
    EXPECT_TRUE(one_sentence(r.err)) << r.err;
    EXPECT_NE(r.err.find("damaged: its checksum does not match"), std::string::npos) << r.err;
  }
  std::ofstream(taped.file, std::ios::binary) << whole.substr(0, whole.size() / 2);
  EXPECT_NE(taped.verify().err.find("is cut off"), std::string::npos);
}

TEST(Replay, IsMeasuredAndSaysWhatItIs) {
  const Taped taped("square", {}, "1.5");
  const auto run = zeus(taped.on_it({"run", "--", "sleep", "0.5"}));
  const auto json = zeus(taped.on_it({"run", "--json", "--", "sleep", "0.2"}));
  const auto env = zeus(taped.on_it({"env"}));
  const Json host = Json::parse(json.err, nullptr, false)["host"];

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("REPLAYED from " + taped.file.string() + ", recorded on "),
            std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("SIMULATED (scenario square)"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("not measured"), std::string::npos) << run.err;
  EXPECT_EQ(host["replay"]["file"], taped.file.string());
  EXPECT_EQ(host["simulation"]["scenario"], "square");
  EXPECT_NE(env.out.find("REPLAYED from "), std::string::npos);
  EXPECT_NE(env.out.find("Simulated square wave"), std::string::npos);
  EXPECT_EQ(env.out.find("knobs"), std::string::npos) << env.out;
}

// The file is older than whoever runs this: it must never be written anew.
TEST(Replay, OfTheFirstVersionOfTheFormatWillAlwaysPlay) {
  const auto env = zeus({"--host", "replay:" ZEUS_RECORDING, "--json", "env"});
  const Json json = Json::parse(env.out, nullptr, false);

  EXPECT_EQ(env.status, 0) << env.err;
  ASSERT_EQ(json["devices"].size(), 1u) << env.out;
  EXPECT_EQ(json["devices"][0]["id"], "package-0");
  EXPECT_EQ(json["devices"][0]["sensors"][0]["resolution"], 1e-6);
  EXPECT_EQ(json["host"]["replay"]["hostname"], "vm");
  for (const Json& p : json["problems"]) EXPECT_EQ(p["where"], "nvml") << p;
}

TEST(Replay, IsLostAfterItsEndAndHasNoTruth) {
  const Taped taped("constant", {}, "0.3");
  const fs::path report = taped.tree.root() / "r.json";
  const auto run = zeus(taped.on_it({"run", "--json", "-o", report.string(), "--", "sleep", "1"}));
  const Json json = json_of(report);
  const auto truth = zeus({"sim", "truth", report.string()});

  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(json["total"]["energy_j"].is_null()) << json["total"];
  EXPECT_EQ(json["domains"][0]["reason"], "its sensor could not be read: lost");
  EXPECT_EQ(truth.status, 2);
  EXPECT_NE(truth.err.find("it was replayed"), std::string::npos) << truth.err;
}

TEST(Replay, OfAConstantPowerIsThatPower) {
  const Taped taped("constant", {"--period", "20ms"}, "1.5");
  const auto run = zeus(taped.on_it({"run", "--json", "--", "sleep", "0.8"}));
  const Json report = Json::parse(run.err, nullptr, false);
  const double watts = 100, seconds = report["window"]["duration_s"];
  const Json& gpu = report["domains"][0];

  EXPECT_LE(gpu["low_j"].get<double>(), watts * seconds);
  EXPECT_GE(gpu["high_j"].get<double>(), watts * seconds);
}

}  // namespace
}  // namespace zeus::test
