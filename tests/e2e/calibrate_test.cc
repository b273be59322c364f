#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>

#include "e2e/cli.h"
#include "sim/session.h"

namespace zeus::test {
namespace {

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// Two steady levels and a square load of 2.062 updates: all that a calibration needs, every 12.3 s.
constexpr double kGain = 0.954, kOffset = -1.2, kWindow = 0.025, kUpdate = 0.10115;
std::string scenario() {
  std::string levels = "[3, 300], [3, 80]";
  for (int i = 0; i < 60; ++i) levels += i % 2 == 0 ? ", [0.1043, 300]" : ", [0.1043, 80]";
  return "[nvml]\ndriver = \"535.54.03\"\n[[gpu]]\nmodel = \"NVIDIA A100-SXM4-40GB\"\n"
         "architecture = \"ampere\"\ncompute = \"8.0\"\nlimit = { min = 50, max = 400 }\n"
         "power = { kind = \"levels\", levels = [" +
         levels +
         "], repeat = true }\n"
         "power_instant = { update = \"101.15ms\", kind = \"boxcar\", window = \"25ms\", gain = "
         "0.954, offset = -1.2 }\n";
}

struct Calibrate : testing::Test {
  Calibrate() {
    tree.write("card.toml", scenario());
    session = sim::Session::create((tree.root() / "card.toml").string()).value();
    options.environment["XDG_STATE_HOME"] = (tree.root() / "state").string();
  }
  Process::Result zeus_on_it(Words words) {
    words.insert(words.begin(), {"--host", "sim:" + session->folder().string()});
    return zeus(words, options);
  }
  /// What a perfect meter of 200 Hz logs for so long from now on, its clock at 0 now.
  std::string meter(int length_s) const {
    constexpr std::int64_t kStep = 5'000'000;
    std::string log = "t_ms,power_w\n";
    const std::int64_t begin = now_ns();
    for (std::int64_t t = 0; t < length_s * std::int64_t{1'000'000'000}; t += kStep) {
      const double joules = session->energy_j(std::size_t{0}, begin + t, begin + t + kStep).value();
      log += std::to_string(t / 1'000'000) + ',' + std::to_string(joules / 5e-3) + '\n';
    }
    return log;
  }
  std::filesystem::path file() const { return tree.root() / "state/zeus/calibrations.csv"; }

  Tree tree;
  std::unique_ptr<sim::Session> session;
  Process::Options options;
};

TEST_F(Calibrate, LearnsWhatTheSensorOfACardIsAndLaterRunsUseIt) {
  const auto unix_now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
  tree.write("meter.csv", meter(40));
  const auto done = zeus_on_it({"calibrate", "--duration", "15s", "--json", "--meter",
                                (tree.root() / "meter.csv").string(), "--meter-start",
                                std::to_string(unix_now.count())});
  ASSERT_EQ(done.status, 0) << done.err << done.out;
  const Json report = Json::parse(done.out);
  ASSERT_EQ(report["sensors"].size(), 1u);
  const Json sensor = report["sensors"][0];
  ASSERT_FALSE(sensor["update_s"].is_null()) << sensor;
  EXPECT_NEAR(sensor["update_s"].get<double>(), kUpdate, 1e-3 * kUpdate);
  ASSERT_FALSE(sensor["shape"].is_null()) << sensor;
  const double window = sensor["shape"]["window_s"], window_u = sensor["shape"]["window_u_s"];
  EXPECT_NEAR(window, kWindow, 4 * window_u);  // Beyond four u comes once in 16,000 runs.
  EXPECT_LT(window_u, 0.05 * kWindow);
  ASSERT_FALSE(sensor["gain"].is_null()) << sensor;
  const double gain = sensor["gain"]["gain"], gain_u = sensor["gain"]["gain_u"];
  EXPECT_NEAR(gain, kGain, 1e-3 * kGain);  // The meter is perfect.
  EXPECT_LT(gain_u, 0.02);
  EXPECT_NEAR(sensor["gain"]["offset_w"].get<double>(), kOffset, 0.1);

  const std::string out = (tree.root() / "run.json").string();
  ASSERT_EQ(zeus_on_it({"run", "--json", "-o", out, "--", "/bin/sleep", "0.2"}).status, 0);
  const Json domain = json_of(out)["domains"][0];
  EXPECT_EQ(domain["gain_class"], "unit");
  EXPECT_EQ(domain["sensor_kind"], "boxcar");
  EXPECT_NE(domain["profile_source"].get<std::string>().find("against the meter meter.csv"),
            std::string::npos);
  const auto env = zeus_on_it({"env", "-v"});
  EXPECT_NE(env.out.find("(unit)"), std::string::npos) << env.out;

  ASSERT_EQ(zeus_on_it({"calibrate", "--forget"}).status, 0);
  EXPECT_EQ(content(file()).find("GPU-"), std::string::npos);
}

TEST_F(Calibrate, WritesNothingWhenItIsOnlyTried) {
  const auto done = zeus_on_it({"calibrate", "--duration", "5s", "--dry-run"});
  EXPECT_NE(done.out.find("SIMULATED"), std::string::npos) << done.err;
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(Calibrate, SaysWhatIsWrongWithTheMetersLog) {
  const std::string log = (tree.root() / "meter.csv").string();
  const auto with = [&](const std::string& text) {
    tree.write("meter.csv", text);
    return zeus_on_it({"calibrate", "--duration", "100ms", "--meter", log});
  };
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"time,watts\n1,2\n", "meter.csv:1: it must have a column"},
           {"t_s,power_w\n1,2\n2,2\n", "check the meter's clock"}}) {
    const auto done = with(text);
    EXPECT_EQ(done.status, 2);
    EXPECT_TRUE(one_sentence(done.err)) << done.err;
    EXPECT_NE(done.err.find(why), std::string::npos) << done.err;
  }
}

TEST_F(Calibrate, SaysThatALoadMustGoOn) {
  const auto done = zeus_on_it({"calibrate", "--load", "true"});
  EXPECT_EQ(done.status, 2);
  EXPECT_TRUE(one_sentence(done.err)) << done.err;
  EXPECT_NE(done.err.find("the load ended by itself"), std::string::npos) << done.err;
}

TEST_F(Calibrate, EndsItsLoadWhenItIsToldToEnd) {
  Process run(zeus_words({"--host", "sim:" + session->folder().string(), "calibrate", "--load",
                          "echo loaded by $$.; exec /bin/sleep 3600"}),
              options);
  ASSERT_TRUE(run.sees("."));
  run.signal(SIGTERM);
  const auto done = run.wait();
  EXPECT_EQ(done.status, 128 + SIGTERM);
  EXPECT_TRUE(one_sentence(done.err)) << done.err;
  EXPECT_FALSE(done.timed_out);
  const pid_t load = std::stoi(done.out.substr(std::string("loaded by ").size()));
  EXPECT_EQ(::kill(load, 0), -1) << load;
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(Calibrate, LeavesATableAloneThatItDidNotWrite) {
  tree.write("state/zeus/calibrations.csv", "field,update_ms\nnvml:power,100\n");
  const auto done = zeus_on_it({"calibrate", "--forget"});
  EXPECT_EQ(done.status, 2);
  EXPECT_TRUE(one_sentence(done.err)) << done.err;
  EXPECT_NE(content(file()).find("nvml:power,100"), std::string::npos);
}

TEST_F(Calibrate, ABrokenTableStopsEveryVerbWithItsLine) {
  tree.write("state/zeus/calibrations.csv", "field,update_ms\nnvml:power,soon\n");
  const auto done = zeus_on_it({"env"});
  EXPECT_EQ(done.status, 2);
  EXPECT_TRUE(one_sentence(done.err)) << done.err;
  EXPECT_NE(done.err.find("calibrations.csv:2: update_ms"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace zeus::test
