// `zeus bench`: commands that are compared on simulated machines whose truth is known.

#include <gtest/gtest.h>

#include <cmath>

#include "e2e/cli.h"

namespace zeus::test {
namespace {

using namespace std::chrono_literals;

Words bench_words(const Words& more) {
  Words words = {"--host", "sim:constant", "bench"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
Process::Result bench(const Words& more) { return zeus(bench_words(more)); }

std::size_t lines_of(const std::filesystem::path& path) {
  const std::string text = content(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Bench, OfIdenticalCommandsShowsNoDifference) {
  const auto r = bench({"-r", "4", "-w", "0", "--json", "sleep 0.3", "sleep 0.3", "--fail-if",
                        "energy > 1.5x", "--fail-if", "energy < 0.6x"});
  const Json out = Json::parse(r.out, nullptr, false);

  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(out["schema"], "zeus.bench/1");
  EXPECT_EQ(out["host"]["simulation"]["scenario"], "constant");
  ASSERT_EQ(out["comparisons"].size(), 1u) << r.out;
  const Json& energy = out["comparisons"][0]["energy"];
  EXPECT_EQ(energy["method"], "paired");
  EXPECT_EQ(energy["n"], 4);
  EXPECT_NEAR(energy["ratio"].get<double>(), 1, 0.3);
  EXPECT_LE(energy["low_95"], energy["ratio"]);
  EXPECT_GE(energy["high_95"], energy["ratio"]);
  EXPECT_TRUE(out["complete"]);
}

// 100 W for two and a half times as long.
TEST(Bench, EndsWithThreeWhereTheRunsShowWhatMustNotBe) {
  const Words commands = {"sleep 0.2", "sleep 0.5", "-r", "3", "-w", "0"};
  const auto with = [&](Words options) {
    options.insert(options.end(), commands.begin(), commands.end());
    return bench(options);
  };
  const auto failed = with({"--fail-if", "energy > 1.05x"});
  EXPECT_EQ(failed.status, 3) << failed.err;
  EXPECT_NE(failed.out.find("sleep 0.5 uses "), std::string::npos) << failed.out;
  EXPECT_NE(failed.out.find("--fail-if energy > 1.05x: sleep 0.5: FAILS"), std::string::npos);
  EXPECT_NE(failed.out.find("SIMULATED (scenario constant)"), std::string::npos);

  EXPECT_EQ(
      with({"--fail-if", "time > 4x", "--fail-if", "energy > 1kJ", "--no-worse-than", "4x"}).status,
      0);
  EXPECT_EQ(with({"--no-worse-than", "1.05x"}).status, 3);
  EXPECT_EQ(with({"--reference", "2", "--fail-if", "energy > 1.05x"}).status, 0);
}

TEST(Bench, ExportsEveryRunAndKeepsItsOrder) {
  const Tree tree;
  const auto json = tree.root() / "b.json", csv = tree.root() / "b.csv", md = tree.root() / "b.md";
  const auto log = tree.root() / "log";
  const std::string a = "echo A >> " + log.string() + "; sleep 0.15";
  const std::string b = "echo B >> " + log.string() + "; sleep 0.15";
  const auto r =
      bench({"-r", "3", "-w", "1", "--seed", "5", "--name", "old", "--name", "new", "--export-json",
             json.string(), "--export-csv", csv.string(), "--export-markdown", md.string(), a, b});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json out = json_of(json);
  ASSERT_EQ(out["runs"].size(), 6u);
  std::string order = "A\nB\n";  // To warm up.
  for (const Json& run : out["runs"]) order += run["command"] == 1 ? "A\n" : "B\n";
  EXPECT_EQ(content(log), order);
  for (std::size_t i = 0; i < 6; ++i) {
    const Json& run = out["runs"][i];
    EXPECT_EQ(run["run"], i + 1);
    EXPECT_EQ(run["block"], i / 2 + 1);
    EXPECT_NEAR(run["start_temperature_c"].get<double>(), 50, 50);
    EXPECT_EQ(run["exit"]["code"], 0);
    EXPECT_EQ(run["total"]["flags"][0], "short_window");
  }
  EXPECT_EQ(out["design"]["seed"], 5);
  EXPECT_EQ(out["design"]["warmup"], 1);
  EXPECT_EQ(out["design"]["phases"], 3);
  EXPECT_EQ(out["commands"][1]["name"], "new");
  EXPECT_EQ(lines_of(csv), 7u);
  EXPECT_NE(content(md).find("| `new` | "), std::string::npos) << content(md);
}

// T8: the starts of runs k = 0, 1, 2 ... lie k / n of the sensor's period behind its multiples.
TEST(Bench, SpreadsTheStartsOverThePeriodOfTheSensor) {
  const Json out = Json::parse(bench({"-r", "4", "-w", "0", "--json", "true"}).out, nullptr, false);
  EXPECT_EQ(out["design"]["phases"], 4);
  EXPECT_EQ(out["design"]["period_s"], 0.1);
  std::vector<std::int64_t> begins;
  for (const Json& run : out["runs"]) begins.push_back(run["window"]["begin_monotonic_ns"]);
  ASSERT_EQ(begins.size(), 4u);
  for (std::size_t k = 1; k < 4; ++k) {
    EXPECT_GE(begins[k] - begins[k - 1], 100'000'000) << "no rest of a period before run " << k;
  }
  EXPECT_EQ(Json::parse(bench({"-r", "1", "--no-phase", "--json", "true"}).out)["design"]["phases"],
            0);
}

TEST(Bench, StopsAtACommandThatFails) {
  const Tree tree;
  const auto log = (tree.root() / "log").string();
  const std::string command = "echo x >> " + log + "; exit 7";
  const auto r = bench({"-r", "3", "true", command});
  EXPECT_EQ(r.status, 7);
  EXPECT_TRUE(one_sentence(r.err)) << r.err;
  EXPECT_NE(r.err.find("exit status 7"), std::string::npos) << r.err;
  EXPECT_EQ(lines_of(log), 1u);

  const auto on = bench({"-r", "3", "-w", "0", "--ignore-failure", "true", command});
  EXPECT_EQ(on.status, 0) << on.err;
  EXPECT_EQ(lines_of(log), 4u);
  EXPECT_NE(on.out.find("3 of 3 runs failed (exit status 7)"), std::string::npos) << on.out;

  EXPECT_EQ(bench({"no-such-command"}).status, 127);
  EXPECT_EQ(bench({"--shell", "none", "no-such-command"}).status, 127);
  EXPECT_EQ(bench({"--prepare", "exit 9", "true"}).status, 9);
}

TEST(Bench, RunsWithoutAShellWhereItIsTold) {
  const Tree tree;
  const auto made = tree.root() / "a b";
  const Words words = {"-r", "1", "-w", "0", "--shell", "none", "touch '" + made.string() + "'"};

  EXPECT_EQ(bench(words).status, 0);
  EXPECT_TRUE(std::filesystem::exists(made));
}

TEST(Bench, PreparesEachRunAndHidesWhatCommandsPrint) {
  const Tree tree;
  const auto log = (tree.root() / "log").string();
  const Words words = {"-r",   "2",  "--prepare", "echo p >> " + log, "echo seen; echo also >&2",
                       "true", "-w", "1"};
  const auto hidden = bench(words);
  EXPECT_EQ(hidden.status, 0) << hidden.err;
  EXPECT_EQ(lines_of(log), 6u);
  EXPECT_EQ(hidden.err, "");

  const auto shown = bench({"-r", "1", "-w", "0", "--show-output", "echo seen; echo also >&2"});
  EXPECT_EQ(shown.err, "seen\nalso\n");
}

TEST(Bench, SaysThatAGpuDidNotCoolInTime) {
  const auto r = bench({"-r", "3", "-w", "0", "--cool-to", "1", "--cool-limit", "50ms", "true"});

  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("3 of 3 runs began hotter than asked"), std::string::npos) << r.out;
}

// Runs shorter than the counter's step have no energy: then only times are compared.
TEST(Bench, WithoutEnergyComparesTimesAndNeverPasses) {
  const auto r = bench(
      {"-r", "3", "-w", "0", "--no-phase", "true", "sleep 0.02", "--fail-if", "energy > 1.05x"});
  EXPECT_EQ(r.status, 1) << r.out;
  EXPECT_NE(r.out.find("CANNOT BE JUDGED"), std::string::npos) << r.out;
  EXPECT_NE(r.err.find("could not be judged"), std::string::npos) << r.err;

  const auto times = zeus(
      {"bench", "-r", "3", "--no-gpu", "--no-cpu", "true", "sleep 0.2", "--fail-if", "time > 2x"});
  EXPECT_EQ(times.status, 3) << times.err;
  EXPECT_NE(times.out.find("no energy to compare"), std::string::npos) << times.out;
}

TEST(Bench, ReportsWhatItHasWhenAskedToEnd) {
  const Tree tree;
  const auto json = tree.root() / "b.json", second = tree.root() / "second";
  Process p(zeus_words(bench_words({"-r", "50", "-w", "0", "--export-json", json.string(),
                                    "echo x >> " + second.string() + "; sleep 0.1"})));
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (lines_of(second) < 3 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(20ms);
  }
  p.signal(SIGINT);
  const auto r = p.wait();
  const Json out = json_of(json);

  EXPECT_EQ(r.status, 130) << r.err;
  EXPECT_NE(r.out.find("stopped by signal 2: "), std::string::npos) << r.out;
  EXPECT_FALSE(out["complete"]);
  EXPECT_GE(out["runs"].size(), 2u);
  EXPECT_LT(out["runs"].size(), 50u);
}

}  // namespace
}  // namespace zeus::test
