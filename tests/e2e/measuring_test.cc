// What `zeus run`, `zeus monitor` and `zeus sim` say of simulated machines whose truth is known.

#include <gtest/gtest.h>

#include <cmath>

#include "e2e/cli.h"

namespace zeus::test {
namespace {

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Measuring, AgreesWithTheTruthOnEveryDevice) {
  const Tree tree;
  const auto file = tree.root() / "r.json";
  ASSERT_EQ(zeus({"--host", "sim:square", "run", "--json", "-o", file.string(), "--", "sleep", "3"})
                .status,
            0);
  const auto truth = zeus({"sim", "truth", "--json", file.string()});
  const Json report = json_of(file), verdict = Json::parse(truth.out, nullptr, false);

  EXPECT_EQ(report["host"]["simulation"]["scenario"], "square");
  ASSERT_EQ(verdict["domains"].size(), 3u) << truth.out << truth.err;
  for (const Json& d : verdict["domains"]) EXPECT_TRUE(d["within_bound"]) << d;
  // 60 W and 8 W, constant: the answer is known without asking.
  const double seconds = report["window"]["duration_s"];
  EXPECT_NEAR(verdict["domains"][0]["truth_j"].get<double>(), 60 * seconds, 1e-6);
  EXPECT_NEAR(report["domains"][0]["energy_j"].get<double>(), 60 * seconds, 1);
  EXPECT_NEAR(report["domains"][1]["energy_j"].get<double>(), 8 * seconds, 0.2);
}

// A quarter of a second of 100 W is 25 J, of which a counter of 100 ms alone knows 4 J too little
// or too much.
TEST(Measuring, AShortCommandIsToldFromUpdateToUpdate) {
  const Tree tree;
  const auto plain = tree.root() / "plain.json", aligned = tree.root() / "aligned.json";
  (void)zeus(
      {"--host", "sim:constant", "run", "--json", "-o", plain.string(), "--", "sleep", "0.25"});
  (void)zeus({"--host", "sim:constant", "run", "--align", "--json", "-o", aligned.string(), "--",
              "sleep", "0.25"});
  const Json without = json_of(plain)["domains"][0], with = json_of(aligned)["domains"][0];
  const double seconds = json_of(aligned)["window"]["duration_s"];

  EXPECT_EQ(without["method"], "counter");
  EXPECT_GT(without["u_cmp_j"].get<double>(), 3);
  EXPECT_EQ(with["method"], "bracketed");
  EXPECT_LT(with["u_cmp_j"].get<double>(), 1);
  EXPECT_NEAR(with["energy_j"].get<double>(), 100 * seconds, 3 * with["u_cmp_j"].get<double>());
}

TEST(Measuring, TheTruthOfASessionIsThatOfTheReport) {
  const Tree tree;
  const auto file = tree.root() / "r.json";
  (void)zeus(
      {"--host", "sim:constant", "run", "--json", "-o", file.string(), "--", "sleep", "0.5"});
  const Json report = json_of(file);
  const std::int64_t begin = report["window"]["begin_monotonic_ns"];
  const auto r =
      zeus({"sim", "truth", "--json", "--session", report["host"]["simulation"]["session"],
            "--begin", std::to_string(begin), "--end", std::to_string(begin + 2'000'000'000)});

  EXPECT_NEAR(Json::parse(r.out)["devices"][0]["energy_j"].get<double>(), 200, 1e-6) << r.err;
}

TEST(Measuring, SimulatedMachinesSaySoInEveryOutput) {
  const std::string text = zeus({"--host", "sim:constant", "run", "--", "true"}).err;
  const auto monitor = zeus({"--host", "sim:constant", "monitor", "energy", "--duration", "200ms"});
  const auto inside = zeus({"sim", "run", "constant", "--", "true"});

  EXPECT_NE(text.find("SIMULATED (scenario constant)"), std::string::npos) << text;
  EXPECT_NE(monitor.out.find("SIMULATED (scenario constant)"), std::string::npos);
  EXPECT_NE(inside.err.find("SIMULATED (scenario constant)"), std::string::npos);
}

TEST(Measuring, ACommandInsideSeesTheSimulatedMachine) {
  const auto r = zeus({"sim", "run", "square", "--", ZEUS_BINARY, "env", "--json"});
  const Json env = Json::parse(r.out, nullptr, false);

  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(env["devices"][0]["model"], "Simulated square wave");
  EXPECT_EQ(zeus({"sim", "run", "square", "--", "sh", "-c", "exit 5"}).status, 5);
  EXPECT_EQ(zeus({"sim", "run", "square", "--", "no-such-command"}).status, 127);
}

TEST(Measuring, StatisticsAreThoseOfTheRuns) {
  const Tree tree;
  const auto file = tree.root() / "r.json";
  const auto started = tree.root() / "started";
  ASSERT_EQ(zeus({"--host", "sim:constant", "run", "-r", "3", "--warmup", "2", "--json", "-o",
                  file.string(), "--", "sh", "-c", "echo x >> " + started.string() + "; sleep 0.4"})
                .status,
            0);
  const Json report = json_of(file);

  EXPECT_EQ(lines_of(content(started)), 5u);
  ASSERT_EQ(report["runs"].size(), 3u);
  EXPECT_EQ(report["warmup"], 2);
  double sum = 0, squares = 0;
  for (const Json& r : report["runs"]) sum += r["total"]["energy_j"].get<double>();
  const double mean = sum / 3;
  for (const Json& r : report["runs"]) {
    squares += std::pow(r["total"]["energy_j"].get<double>() - mean, 2);
  }
  const Json& s = report["summary"]["energy_j"];
  EXPECT_NEAR(s["mean"].get<double>(), mean, 1e-9);
  EXPECT_NEAR(s["sd"].get<double>(), std::sqrt(squares / 2), 1e-9);
  // t(0.975, 2) = 4.302653.
  EXPECT_NEAR(s["half_width_95"].get<double>(), 4.302653 * std::sqrt(squares / 6), 1e-5);
  EXPECT_EQ(report["window"], report["runs"][2]["window"]);
}

TEST(Measuring, StopsRepeatingWhenARunFails) {
  const Tree tree;
  const auto started = (tree.root() / "started").string();
  const Words command = {"sh", "-c", "echo x >> " + started + "; false"};
  const auto run = [&](Words words) {
    words.insert(words.end(), command.begin(), command.end());
    return zeus(words).status;
  };

  EXPECT_EQ(run({"run", "-r", "3", "--"}), 1);
  EXPECT_EQ(lines_of(content(started)), 1u);
  EXPECT_EQ(run({"run", "-r", "3", "--ignore-failure", "--"}), 1);
  EXPECT_EQ(lines_of(content(started)), 4u);
}

TEST(Measuring, WritesATimelineThatParses) {
  const Tree tree;
  const auto csv = tree.root() / "t.csv", jsonl = tree.root() / "t.jsonl";
  for (const auto& file : {csv, jsonl}) {
    ASSERT_EQ(zeus({"--host", "sim:square", "run", "--timeline", file.string(), "--", "sleep", "1"})
                  .status,
              0);
  }
  std::istringstream rows(content(csv)), lines(content(jsonl));
  std::string line;
  std::getline(rows, line);
  EXPECT_EQ(line, "seconds,monotonic_ns,device,sensor,value,unit,error");
  std::size_t powers = 0, n = 0;
  while (std::getline(rows, line)) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 6) << line;
    if (line.find("power_instant") != std::string::npos) ++powers;
  }
  EXPECT_GE(powers, 5u);
  EXPECT_LE(powers, 12u);
  while (std::getline(lines, line)) {
    ++n;
    const Json row = Json::parse(line, nullptr, false);
    ASSERT_TRUE(row.is_object()) << line;
    EXPECT_GE(row["seconds"], 0.0);
    EXPECT_LE(row["seconds"], 1.5);
  }
  EXPECT_GT(n, 10u);
}

TEST(Measuring, PrintsLiveLines) {
  const auto r = zeus({"--host", "sim:constant", "run", "-I", "200", "--", "sleep", "1.1"});
  std::size_t live = 0;
  for (std::size_t at = 0; (at = r.err.find(" | ", at)) != std::string::npos; ++at) ++live;

  EXPECT_GE(live, 3u) << r.err;
  EXPECT_LE(live, 6u) << r.err;
}

TEST(Monitoring, PowerPrintsLinesAndTotals) {
  const auto r = zeus({"--host", "sim:constant", "monitor", "power", "--update-period", "0.2",
                       "--duration", "1100ms", "--json"});
  std::istringstream lines(r.out);
  std::vector<Json> all;
  for (std::string line; std::getline(lines, line);) {
    all.push_back(Json::parse(line, nullptr, false));
  }
  ASSERT_GE(all.size(), 4u) << r.out << r.err;
  EXPECT_DOUBLE_EQ(all[1]["power_w"]["GPU0"].get<double>(), 100);
  EXPECT_EQ(all.back()["schema"], "zeus.monitor.power/1");
  const double seconds = all.back()["total_time_s"];
  EXPECT_NEAR(all.back()["total_energy"]["GPU0"]["energy_j"].get<double>(), 100 * seconds, 15);
}

TEST(Monitoring, SaysInOneSentenceThatThereIsNothingToWatch) {
  const std::vector<Words> watches = {
      {"--host", "sim:xeon-2s", "monitor", "power"},
      {"--host", "sim:constant", "monitor", "power", "--no-gpu"},
      {"--host", "sim:constant", "monitor", "power", "--power-domain", "memory_average"},
      {"--host", "sim:constant", "monitor", "energy", "--no-gpu"}};
  for (const Words& words : watches) {
    const auto r = zeus(words);
    EXPECT_EQ(r.status, 1);
    EXPECT_TRUE(one_sentence(r.err)) << r.err;
    EXPECT_EQ(r.out, "");
  }
}

TEST(Monitoring, EndsWithTotalsOnInterruptAndTermination) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Process p(zeus_words({"--host", "sim:constant", "monitor", "energy"}));
    ASSERT_TRUE(p.sees("CPUs:"));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    p.signal(signal);
    const auto r = p.wait();
    EXPECT_EQ(r.status, 0);
    EXPECT_NE(r.out.find("total"), std::string::npos) << r.out;
  }
}

TEST(Monitoring, CountsGpusAmongTheVisibleOnes) {
  const auto r = zeus({"--host", "sim:a100x4", "monitor", "energy", "--gpu-indices", "1",
                       "--no-cpu", "--duration", "300ms", "--json"},
                      {.environment = {{"CUDA_VISIBLE_DEVICES", "2,3"}}, .folder = {}});
  const Json out = Json::parse(r.out, nullptr, false);
  const auto beyond = zeus(
      {"--host", "sim:a100x4", "monitor", "energy", "--gpu-indices", "2", "--duration", "300ms"},
      {.environment = {{"CUDA_VISIBLE_DEVICES", "2,3"}}, .folder = {}});

  EXPECT_EQ(out["domains"][0]["device_index"], 3) << r.out << r.err;
  EXPECT_EQ(beyond.status, 2);
}

}  // namespace
}  // namespace zeus::test
