#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <locale>

#include "report/env.h"
#include "report/json.h"
#include "report/table.h"
#include "report/text.h"
#include "report/timeline.h"
#include "report/truth.h"
#include "support/sample_run.h"

namespace zeus::report {
namespace {

using test::sample_run;

/// Writes 1.5 as "1,5" and 1000 as "1.000", as much of Europe does.
struct CommaPoint : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

struct CommaLocale {
  CommaLocale() : before(std::locale::global({std::locale(), new CommaPoint})) {}
  ~CommaLocale() { std::locale::global(before); }
  std::locale before;
};

SensorInfo power_sensor() {
  SensorInfo info;
  info.name = "power, \"board\"";
  info.quantity = Quantity::power;
  info.scale = 1e-3;
  return info;
}

const Instant kBegin = Instant{} + std::chrono::seconds(10);
const Sample kGood(kBegin + std::chrono::milliseconds(1500), 123'456);
const Sample kBad(kBegin + std::chrono::milliseconds(1600), 0, Errc::denied);

TEST(Text, TellsAWholeRun) {
  EXPECT_EQ(to_text(sample_run(), {}), R"(zeus run python 'train me.py'
SIMULATED (scenario demo): no number here is of a real machine
  time   2.500 s, exit status 3
  domain     energy                                                   to compare     mean     peak  covered  grade  how      device
  gpu:0      1000.1 J ± 6.0 J                                         ± 3.0 J     400.0 W  512.2 W    100 %  B      counter  NVIDIA H200  so short that its edges cost more than 1 %
  gpu:2      not measured: its counter did not move in all that time                                                counter  NVIDIA H200
  package:0  150.12 J ± 0.10 J*                                       ± 0.10 J     60.0 W             100 %  B      counter
    core:0   75.50 J ± 0.10 J*                                        ± 0.10 J     30.2 W             100 %  B      counter
  total  incomplete: 1150.2 J ± 3.0 J* without gpu:2 (its counter did not move in all that time)
  ± is 2 standard uncertainties; * of an uncalibrated sensor, without its gain
GPUs: 0, 2 (CUDA_VISIBLE_DEVICES=0,2)
CPUs: 0 (all CPUs)
not available
  rapl intel-rapl:1: cannot read it: run zeusd
zeus itself: 12.5 ms of CPU (0.50 % of a core), 80 us at the edges; 26 samples at 100 ms, 1 missed
)");
}

TEST(Text, IsTheSameInACommaLocale) {
  const std::string before = to_text(sample_run(), {});
  const CommaLocale comma;

  EXPECT_EQ(to_text(sample_run(), {}), before);
}

TEST(Text, NeverPrintsNotANumber) {
  auto run = sample_run();
  for (auto& d : run.runs[0].window.domains) {
    d.energy.value = kNan;
    d.reason = "lost";
  }
  run.runs[0].window.total.value = kNan;
  run.runs.push_back(run.runs[0]);
  const std::string text = to_text(run, {.color = false, .verbose = true});

  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
  EXPECT_EQ(text.find("inf"), std::string::npos) << text;
  EXPECT_NE(text.find("not measured: "), std::string::npos);
}

TEST(Text, KeepsControlCharactersFromTheTerminal) {
  auto run = sample_run();
  run.command = {"echo", "\x1b[2J"};
  run.problems[0].error.detail = "bad\x1b]0;title\x07";

  EXPECT_EQ(to_text(run, {}).find('\x1b'), std::string::npos);
}

TEST(Text, OfACounterThatStartedAnewIsALowerBound) {
  DomainResult d = sample_run().runs[0].window.domains[0];
  d.energy.refusal = Refusal::fell;
  d.energy.value = kNan;
  d.energy.low = 150.125;
  d.energy.high = std::numeric_limits<double>::infinity();
  d.reason = "its counter fell or started anew";

  EXPECT_EQ(energy_text(d), "not measured: its counter fell or started anew (at least 150.1 J)");
}

TEST(Rounded, LeavesTwoDigitsOfTheUncertainty) {
  EXPECT_EQ(rounded(1000.0625, 3.0), "1000.1");
  EXPECT_EQ(rounded(150.125, 0.1), "150.12");
  EXPECT_EQ(rounded(150.125, 25), "150");
  EXPECT_EQ(rounded(kNan, 1), "unknown");
  EXPECT_EQ(rounded(0, kNan), "0");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({Table::Align::left, Table::Align::right});
  table.row({"a", "± 1"});
  table.row({"µs", "22"});

  EXPECT_EQ(table.text(""), "a   ± 1\nµs   22\n");
}

TEST(Json, HasTheDocumentedKeysInOrder) {
  const Json json = to_json(sample_run());
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);

  EXPECT_EQ(keys, (std::vector<std::string>{"schema", "zeus", "command", "host", "exit", "window",
                                            "total", "domains", "edp_js", "selection", "devices",
                                            "problems", "overhead", "warmup", "runs", "summary"}));
  EXPECT_EQ(json["schema"], "zeus.run/1");
  EXPECT_EQ(json["window"]["begin_monotonic_ns"], 100'000'000'000);
  EXPECT_EQ(json["window"]["wall_start"], "2023-11-14T22:13:20.123456Z");
  EXPECT_EQ(json["host"]["simulation"]["scenario"], "demo");
  EXPECT_EQ(json["exit"]["code"], 3);
  EXPECT_EQ(json["total"]["complete"], false);
  EXPECT_EQ(json["domains"][1]["parent"], "package:0");
}

TEST(Json, SaysNullAndWhyForWhatWasNotMeasured) {
  const Json dead = to_json(sample_run())["domains"][3];

  EXPECT_TRUE(dead["energy_j"].is_null());
  EXPECT_TRUE(dead["peak_power_w"].is_null());
  EXPECT_EQ(dead["reason"], "its counter did not move in all that time");
  EXPECT_EQ(dead["flags"], (std::vector<std::string>{"missing", "stalled"}));
  EXPECT_TRUE(to_json(sample_run())["edp_js"].is_null());
  EXPECT_TRUE(to_json(sample_run())["total"]["high_j"].is_null());
}

TEST(Json, NumbersComeBackBitForBitInAnyLocale) {
  auto run = sample_run();
  const double odd = 0.1 + 0.2;
  run.runs[0].window.domains[0].energy.value = odd;
  const CommaLocale comma;
  const Json back = Json::parse(dump(to_json(run), false));

  EXPECT_EQ(back["domains"][0]["energy_j"].get<double>(), odd);
  EXPECT_EQ(back["window"]["duration_s"].get<double>(), 2.5);
}

TEST(Json, SurvivesACommandThatIsNoText) {
  auto run = sample_run();
  run.command = {"\xff\xfe"};

  EXPECT_TRUE(Json::accept(dump(to_json(run), true)));
}

TEST(Json, SummarisesRepetitions) {
  auto run = sample_run();
  run.runs.push_back(run.runs[0]);
  run.runs[1].window.total.value = 1160.1875;
  const Json s = to_json(run)["summary"]["energy_j"];

  EXPECT_EQ(s["n"], 2);
  EXPECT_DOUBLE_EQ(s["mean"].get<double>(), 1155.1875);
  EXPECT_DOUBLE_EQ(s["sd"].get<double>(), 10 / std::sqrt(2));
  EXPECT_NEAR(s["half_width_95"].get<double>(), 12.7062 * 5, 1e-2);
}

TEST(Timeline, WritesCsvWithQuotesWhereTheyAreNeeded) {
  const auto csv = TimelineFormat::csv;
  const CommaLocale comma;

  EXPECT_EQ(timeline_header(csv), "seconds,monotonic_ns,device,sensor,value,unit,error\n");
  EXPECT_EQ(timeline_row(csv, kBegin, "GPU-a", power_sensor(), kGood),
            "1.500000000,11500000000,GPU-a,\"power, \"\"board\"\"\",123.456,W,\n");
  EXPECT_EQ(timeline_row(csv, kBegin, "GPU-a", power_sensor(), kBad),
            "1.600000000,11600000000,GPU-a,\"power, \"\"board\"\"\",,W,denied\n");
}

TEST(Timeline, WritesJsonLines) {
  const auto jsonl = TimelineFormat::jsonl;

  EXPECT_EQ(timeline_header(jsonl), "");
  EXPECT_EQ(timeline_row(jsonl, kBegin, "GPU-a", power_sensor(), kGood),
            R"({"seconds":1.500000000,"monotonic_ns":11500000000,"device":"GPU-a",)"
            R"("sensor":"power, \"board\"","value":123.456,"unit":"W","error":null})"
            "\n");
  EXPECT_EQ(Json::parse(timeline_row(jsonl, kBegin, "a", power_sensor(), kBad))["error"], "denied");
}

TEST(Timeline, TellsTheFormatByTheSuffix) {
  EXPECT_EQ(*timeline_format("a/b.csv"), TimelineFormat::csv);
  EXPECT_EQ(*timeline_format("b.jsonl"), TimelineFormat::jsonl);
  EXPECT_EQ(timeline_format("b.txt").error().code, Errc::invalid);
}

Environment sample_env() {
  Environment env;
  env.version = "1.2.3";
  env.host = {"local:", "node1", "Linux 6.1", std::nullopt};
  env.euid = 1000;
  const auto run = sample_run();
  Device gpu{run.devices[0], {}, {}}, lost{run.devices[1], {}, {}};
  SensorInfo energy;
  energy.name = "energy";
  energy.quantity = Quantity::energy;
  gpu.sensors.push_back({energy, nullptr, 0});
  gpu.knobs = {{"power_limit", Quantity::power, 200, 700, 700, nullptr},
               {"sm_clock", Quantity::clock, 210e6, 1980e6, 0, nullptr},
               {"memory_clock", Quantity::clock, 2619e6, 2619e6, 0, nullptr},
               {"persistence", Quantity::state, 0, 1, 1, nullptr}};
  lost.info.lost = true;
  env.devices = {gpu, lost};
  env.problems = run.problems;
  env.selections = {{"gpu", {{"GPU-a"}, {}, "CUDA_VISIBLE_DEVICES=0", {}}}};
  env.unmet = {{"dram", "cannot read it: run zeusd"}};
  return env;
}

TEST(Env, TellsPeople) {
  EXPECT_EQ(to_text(sample_env(), {}), R"(zeus                 1.2.3
machine              local: (node1, Linux 6.1)
nvml                 driver 550.54.15
user                 uid 1000
knobs can be turned  no: run as root, or through zeusd
devices
  device  model             energy   pci           id
  gpu 0   NVIDIA H200       counter  0000:41:00.0  GPU-a
  gpu 2   NVIDIA H200 LOST  none                   GPU-b
what they have
  gpu 0  sensors  energy
         knobs    power_limit 200..700 W, sm_clock 210..1980 MHz, memory_clock 2619 MHz,
                  persistence off/on
GPUs to be measured: 0 (CUDA_VISIBLE_DEVICES=0)
not available
  rapl intel-rapl:1: cannot read it: run zeusd
required and missing: dram: cannot read it: run zeusd
)");
}

TEST(Env, TellsDevicesThatAreAlikeOnce) {
  Environment env = sample_env();
  for (std::uint16_t index = 1; index < 5; ++index) {
    if (index == 2) continue;  // The lost one.
    Device d = env.devices[0];
    d.info.index = index;
    env.devices.push_back(d);
  }
  std::sort(env.devices.begin(), env.devices.end(),
            [](const Device& a, const Device& b) { return a.info.index < b.info.index; });
  const std::string text = to_text(env, {});

  EXPECT_NE(text.find("  gpu 0-1,3-4  sensors  energy\n"), std::string::npos) << text;
}

TEST(Env, SaysThatNoGpuWasFound) {
  const Selection all{{}, {}, "all GPUs", {}};

  EXPECT_EQ(to_text("GPUs", all, {}), "GPUs: none (no GPU found)\n");
  EXPECT_EQ(to_text("GPUs", {{}, {}, "--no-gpu", {}}, {}), "GPUs: none (--no-gpu)\n");
}

TEST(Env, TellsPrograms) {
  const Json json = to_json(sample_env());

  EXPECT_EQ(json["schema"], "zeus.env/1");
  EXPECT_EQ(json["devices"][0]["energy"], "counter");
  EXPECT_EQ(json["devices"][0]["knobs"][0]["max"], 700);
  EXPECT_EQ(json["devices"][1]["lost"], true);
  EXPECT_EQ(json["devices"][1]["energy"], "none");
  EXPECT_EQ(json["unmet"][0]["required"], "dram");
  EXPECT_EQ(json["permissions"]["knobs"], false);
}

TEST(Truth, JudgesEveryMeasuredDomain) {
  auto claims = read_claims(to_json(sample_run()));
  ASSERT_TRUE(claims);
  claims->domains[0].truth_j = 150.1;  // u = 0.05
  claims->domains[2].truth_j = 1001;   // u = 3
  claims->domains[3].truth_j = 5;      // Not measured.
  const Verdict verdict = compare(*claims);

  EXPECT_TRUE(verdict.holds);
  EXPECT_TRUE(verdict.domains[0].within_2u);
  EXPECT_FALSE(verdict.domains[1].judged());  // The truth of the core is unknown.
  EXPECT_FALSE(verdict.domains[3].judged());
  EXPECT_DOUBLE_EQ(verdict.total.claim.truth_j, 1151.1);

  claims->domains[0].truth_j = 150.5;
  EXPECT_FALSE(compare(*claims).holds);
}

TEST(Truth, HoldsForNothingWhereNothingWasMeasured) { EXPECT_FALSE(compare({}).holds); }

TEST(Truth, RefusesWhatIsNoSimulatedReport) {
  auto real = sample_run();
  real.host.simulation.reset();

  EXPECT_NE(read_claims(to_json(real)).error().detail.find("real machine"), std::string::npos);
  EXPECT_EQ(read_claims(Json::parse("[1]")).error().code, Errc::invalid);
  EXPECT_EQ(read_claims(Json::parse("nonsense", nullptr, false)).error().code, Errc::invalid);
  EXPECT_EQ(read_claims({{"schema", "zeus.run/1"}, {"host", 3}}).error().code, Errc::invalid);
}

TEST(Truth, TakesAValueOfTheWrongTypeForNone) {
  Json report = to_json(sample_run());
  for (Json& d : report["domains"]) {
    for (auto& [key, value] : d.items()) value = Json::array({1});
  }
  const auto claims = read_claims(report);
  ASSERT_TRUE(claims);
  EXPECT_FALSE(compare(*claims).holds);
}

}  // namespace
}  // namespace zeus::report
