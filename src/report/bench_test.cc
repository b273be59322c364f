#include "report/bench.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/json.h"

namespace zeus::report {
namespace {

/// Runs of one second of two commands in blocks, with these joules and no common uncertainty.
Bench of_joules(const std::vector<double>& a, const std::vector<double>& b) {
  Bench bench;
  bench.commands = {{"A", "./a"}, {"B", "./b"}};
  bench.runs = a.size();
  bench.seed = 7;
  bench.period_s = 0.1;
  bench.phases = solve::phases(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t c = 0; c < 2; ++c) {
      BenchRun run{.command = c, .block = i, .place = 2 * i + c};
      run.exit.code = 0;
      run.window.end = run.window.begin + std::chrono::seconds(1);
      run.window.total.value = c == 0 ? a[i] : b[i];
      run.window.total.method = "counter";
      bench.done.push_back(run);
    }
  }
  return bench;
}

const std::vector<double> kA = {100, 101, 99, 100, 102, 98}, kB = {110, 112, 109, 109, 113, 107};

bool warns(const Findings& f, std::string_view of) {
  return std::any_of(f.warnings.begin(), f.warnings.end(),
                     [of](const std::string& w) { return w.find(of) != std::string::npos; });
}

Findings judged(Bench bench, const std::vector<const char*>& fail_if,
                const std::vector<const char*>& no_worse_than = {}) {
  for (const char* text : fail_if) bench.conditions.push_back(*parse_fail_if(text));
  for (const char* text : no_worse_than) bench.conditions.push_back(*parse_no_worse_than(text));
  return analyze(bench);
}

TEST(Bench, ComparesWithTheReference) {
  Bench bench = of_joules(kA, kB);
  const double forward = analyze(bench).energy.comparisons[1].ratio();
  bench.reference = 1;
  const Findings f = analyze(bench);

  EXPECT_NEAR(forward, 1.1, 0.003);
  EXPECT_NEAR(f.energy.comparisons[0].ratio(), 1 / forward, 1e-12);
  EXPECT_NEAR(f.time.comparisons[0].ratio(), 1, 1e-12);
  EXPECT_NEAR(f.power.comparisons[0].ratio(), 1 / forward, 1e-12);
}

// The three answers of a gate, from the one-sided limits of 95 %; B needs 1.100 +- 0.003 times A.
TEST(Bench, FailsOnlyOnWhatTheRunsShow) {
  const Bench bench = of_joules(kA, kB);

  EXPECT_TRUE(judged(bench, {"energy > 1.05x"}).fails());
  EXPECT_FALSE(judged(bench, {"energy > 1.2x"}).fails());
  EXPECT_FALSE(judged(bench, {"energy > 1.1x"}).fails()) << "the interval holds the limit";
  EXPECT_EQ(judged(bench, {"energy > 1.1x"}).rulings[0].answer, solve::Answer::undecided);
  EXPECT_TRUE(judged(bench, {"energy < 1.2x"}).fails());
  EXPECT_TRUE(judged(bench, {"power > 104"}).fails()) << "B needs 110 W";
  EXPECT_FALSE(judged(bench, {"time > 1.5"}).fails());
}

TEST(Bench, ThatMustBeNoWorseFailsWhereThatIsNotShown) {
  const Bench bench = of_joules(kA, kB);

  EXPECT_FALSE(judged(bench, {}, {"1.2x"}).fails());
  EXPECT_TRUE(judged(bench, {}, {"1.1x"}).fails()) << "not shown";
  EXPECT_TRUE(judged(bench, {}, {"1.05x"}).fails()) << "shown to be worse";
}

TEST(Bench, WithoutEnergyIsNeverAPass) {
  const std::vector<double> none(6, kNan);
  const Findings f = judged(of_joules(kA, none), {"energy > 1.05x", "time > 2x"});

  EXPECT_FALSE(f.judged());
  EXPECT_FALSE(f.fails());
  EXPECT_FALSE(f.rulings[0].judged);
  EXPECT_TRUE(f.rulings[1].judged) << "times are there";
  EXPECT_TRUE(warns(f, "B: 6 of 6 runs have no energy"));
  EXPECT_EQ(f.energy.comparisons[1].n, 0u);
}

TEST(Bench, ComparesBlocksInWhichBothHaveAnEnergy) {
  std::vector<double> b = kB;
  b[2] = kNan;
  Bench bench = of_joules(kA, b);
  bench.done[0].window.missing = {"gpu:0 (lost)"};
  bench.done[3].window.total.flags = Flag::reset;
  const Findings f = analyze(bench);

  EXPECT_EQ(f.energy.comparisons[1].n, 3u);
  EXPECT_TRUE(
      warns(f, "A: 1 of 6 runs have no energy that can be compared (without gpu:0 (lost))"));
  EXPECT_TRUE(warns(f, "B: 2 of 6 runs"));
}

TEST(Bench, ThatAlwaysMissesAPartIsComparedAndSaysSo) {
  Bench bench = of_joules(kA, kB);
  for (BenchRun& r : bench.done) r.window.missing = {"gpu 3 (lost)"};
  const Findings f = analyze(bench);

  EXPECT_EQ(f.energy.comparisons[1].n, 6u);
  EXPECT_TRUE(warns(f, "every energy is incomplete: without gpu 3 (lost)"));
}

TEST(Bench, WarnsOfWhatMakesAComparisonUnfair) {
  std::vector<double> rising = {100, 101, 102, 103, 104, 105.2};
  Bench bench = of_joules(rising, {100.6, 101.4, 102.5, 103.6, 104.4, 105.6});
  bench.order = solve::Order::sequential;
  for (BenchRun& r : bench.done) r.start_temperature_c = r.command == 0 ? 40 : 45;
  bench.done[1].cooled = false;
  bench.done[2].exit = {.code = 3, .signal = std::nullopt};
  bench.done[4].window.total.flags = Flag::aliased;
  bench.ended_early = "stopped by signal 2";
  const Findings f = analyze(bench);

  EXPECT_TRUE(f.per_run.drifts());
  for (const char* text :
       {"drift: the energy changes by +0.5 % a run", "one command after the other",
        "not start equally warm: 40.0 to 45.0", "1 of 12 runs began hotter",
        "A: 1 of 6 runs failed (exit status 3)", "1 of 12 runs: the load runs in step",
        "stopped by signal 2: 12 of 12"}) {
    EXPECT_TRUE(warns(f, text)) << text;
  }
  EXPECT_TRUE(analyze(of_joules(kA, kB)).warnings.empty());
}

TEST(Bench, TellsOutliersAndKeepsThem) {
  std::vector<double> b = kB;
  b[4] = 300;
  const Findings f = analyze(of_joules(kA, b));

  EXPECT_EQ(f.outliers, std::vector<std::size_t>{9});
  EXPECT_EQ(f.energy.levels[1].summary.n, 6u);
  EXPECT_TRUE(warns(f, "run 10 (B): 300.0 J lies far"));
}

// Specification of accuracy, 5.8: systematic terms are added, not divided.
TEST(CommonU, IsAllOfItUnlessStartsAreSpread) {
  Estimate e;
  e.budget = {.edges = 8, .quantum = 1, .timing = 2, .gain = 0, .coverage = 6};
  e.u_cmp = std::sqrt(64.0 + 1 + 4 + 36);

  EXPECT_DOUBLE_EQ(common_u(e, 0), e.u_cmp);
  EXPECT_NEAR(common_u(e, 5), std::hypot(2, 10.0 / 5), 1e-12);
}

// Runs of 2.04 updates of steady power, at every place of the comb: each reads two updates or
// three. What is left of their mean, over all places, is what common_u says of the edges.
TEST(CommonU, CoversWhatFivePhasesLeaveOfRunsOfOneLength) {
  constexpr double kPeriod = 0.1, kWatts = 100, kLength = 0.204;
  constexpr int kPhases = 5, kPlaces = 1000;
  Estimate e;
  e.budget.edges = e.u_cmp = kWatts * kPeriod / std::sqrt(6.0);
  double squares = 0;
  for (int i = 0; i < kPlaces; ++i) {
    double mean = 0;
    for (int k = 0; k < kPhases; ++k) {
      const double start = (i + 0.5) / kPlaces * kPeriod + k * kPeriod / kPhases;
      const double updates = std::floor((start + kLength) / kPeriod) - std::floor(start / kPeriod);
      mean += updates * kPeriod * kWatts / kPhases;
    }
    squares += std::pow(mean - kWatts * kLength, 2) / kPlaces;
  }
  EXPECT_LE(std::sqrt(squares), 1.05 * common_u(e, kPhases));
  EXPECT_GT(std::sqrt(squares), 0.5 * common_u(e, kPhases));
}

TEST(BenchText, SaysWhatIsCompared) {
  Bench bench = of_joules(kA, kB);
  bench.conditions = {*parse_fail_if("energy > 1.05x"), *parse_no_worse_than("power 150W")};
  const std::string text = to_text(bench, analyze(bench), {});

  for (const char* part :
       {"zeus bench 6 runs each of 2 commands, random blocks (seed 7), starts at 6 phases of 100 "
        "ms",
        "100.0 J ± 1.5 J", "98.0 … 102.0 J", "B uses 1.0999 times the energy of A (95 %: 1.09",
        "p < 0.0001; detectable: ", "--fail-if energy > 1.05x: B: FAILS: 1.0999x, at least 1.09",
        "--no-worse-than power 150W: A: holds: 100.0", "--no-worse-than power 150W: B: holds: "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
  }
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
}

TEST(BenchText, OfOneRunHasNoIntervalAndSaysSo) {
  const Bench bench = of_joules({100}, {110});
  const std::string text = to_text(bench, analyze(bench), {});

  EXPECT_NE(text.find("single runs give no interval"), std::string::npos) << text;
  EXPECT_NE(text.find("(from 1: no interval)"), std::string::npos) << text;
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
}

TEST(BenchCsv, HasALineForEveryRun) {
  Bench bench = of_joules(kA, kB);
  bench.commands[1].name = "B, \"new\"";
  bench.done[0].window.total.value = kNan;
  bench.done[1].start_temperature_c = 40.5;
  const std::string csv = to_csv(bench, analyze(bench));

  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 13);
  EXPECT_NE(csv.find("\n1,1,A,1,,,1,,,0,\n"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\n2,2,\"B, \"\"new\"\"\",1,110,0,1,110,40.5,0,\n"), std::string::npos) << csv;
}

TEST(BenchMarkdown, IsATableWhateverTheNames) {
  Bench bench = of_joules(kA, kB);
  bench.commands[1].name = "a | b\n";
  const std::string table = to_markdown(bench, analyze(bench));

  EXPECT_NE(table.find("\n| `A` | 100.0 J ± 1.5 J |"), std::string::npos) << table;
  EXPECT_NE(table.find("\n| `a \\| b ` | 110.0 J"), std::string::npos) << table;
}

TEST(BenchJson, HasTheDocumentedKeysAndNullForWhatIsNotKnown) {
  Bench bench = of_joules(kA, kB);
  bench.conditions = {*parse_fail_if("energy > 1.05x")};
  const Json out = to_json(bench, analyze(bench));
  std::vector<std::string> keys;
  for (const auto& [key, value] : out.items()) keys.push_back(key);

  EXPECT_EQ(keys, (std::vector<std::string>{
                      "schema", "zeus", "host", "complete", "design", "reference", "gain_included",
                      "commands", "comparisons", "conditions", "drift", "outliers", "warnings",
                      "selection", "devices", "problems", "overhead", "runs"}));
  EXPECT_EQ(out["schema"], "zeus.bench/1");
  EXPECT_EQ(out["runs"].size(), 12u);
  EXPECT_EQ(out["runs"][3]["command"], 2);
  EXPECT_EQ(out["runs"][3]["block"], 2);
  EXPECT_TRUE(out["runs"][3]["start_temperature_c"].is_null());
  EXPECT_EQ(out["conditions"][0]["answer"], "shown");
  EXPECT_EQ(out["conditions"][0]["fails"], true);
  EXPECT_EQ(out["comparisons"][0]["energy"]["n"], 6);
  EXPECT_TRUE(to_json(of_joules({1}, {1}),
                      analyze(of_joules({1}, {1})))["comparisons"][0]["energy"]["low_95"]
                  .is_null());
}

}  // namespace
}  // namespace zeus::report
