#include "measure/profile_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/csv.h"
#include "base/files.h"
#include "support/data.h"

namespace zeus {
namespace {

const std::vector<ProfileRow>& rows() {
  static const auto kRows = parse_profiles(kBuiltinProfiles, "profiles.csv").value();
  return kRows;
}

/// A text that fits the first alternative of a pattern.
std::string example(std::string pattern) {
  pattern = pattern.substr(0, pattern.find('|'));
  std::string out;
  for (const char c : pattern)
    out += c == '*' ? std::string("x") : std::string(1, c == '?' ? '7' : c);
  return out;
}

std::string version(const Version& parts) {
  std::string out;
  for (const unsigned part : parts) out += (out.empty() ? "" : ".") + std::to_string(part);
  return out;
}

/// A device that the row is for, with every fact that is not at odds with it.
DeviceInfo device_for(const ProfileRow& row) {
  DeviceInfo device;
  device.backend = example(row.backend);
  device.model = example(row.model);
  device.facts = {{"architecture", example(row.arch)}, {"compute", example(row.compute)}};
  const Version& driver = row.driver_min.empty() ? row.driver_max : row.driver_min;
  if (!driver.empty()) device.facts.emplace_back("driver", version(driver));
  return device;
}

SensorInfo sensor_for(const std::string& field) {
  SensorInfo sensor;
  sensor.profile.id = field;
  return sensor;
}

TEST(ProfileTable, MatchesPatterns) {
  EXPECT_TRUE(fits("*A100*", "NVIDIA A100-SXM4-40GB"));
  EXPECT_TRUE(fits("*RTX 3090", "NVIDIA GeForce RTX 3090"));
  EXPECT_FALSE(fits("*RTX 3090", "NVIDIA GeForce RTX 3090 Ti"));
  EXPECT_TRUE(fits("a|b*|c?", "bcd"));
  EXPECT_TRUE(fits("a|b*|c?", "cc"));
  EXPECT_FALSE(fits("a|b*|c?", "c"));
  EXPECT_TRUE(fits("*ab*ab", "ababab"));
  EXPECT_TRUE(fits("", ""));
  EXPECT_TRUE(fits("**", ""));
}

// What other cards showed is no correction of this one.
TEST(ProfileTable, CorrectsNoGain) {
  EXPECT_FALSE(rows().empty());
  for (const ProfileRow& row : rows()) {
    EXPECT_FALSE(row.facts.value[kGain] || row.facts.value[kOffsetW]) << row.line;
    EXPECT_NE(row.facts.gain_class, GainClass::unit) << row.line;
    EXPECT_EQ(row.facts.gain_class.has_value(), row.facts.value[kGainU].has_value()) << row.line;
    EXPECT_TRUE(row.uuid.empty()) << row.line;
    EXPECT_FALSE(row.source.starts_with("profiles.csv")) << row.line;
  }
}

TEST(ProfileTable, ReachesEveryRow) {
  for (const ProfileRow& row : rows()) {
    const SensorInfo sensor = sensor_for(example(row.field));
    const DeviceInfo device = device_for(row);
    ASSERT_TRUE(row.fits(device, sensor)) << row.line;
    const SensorProfile p = ProfileBook::builtin().refine(device, sensor);
    EXPECT_NE(p.source.find(row.source), std::string::npos) << row.line << ": " << p.source;
    if (row.facts.kind) {
      EXPECT_EQ(p.kind, *row.facts.kind) << row.line;
    }
    if (row.facts.gain_class) {
      EXPECT_EQ(p.gain_u, row.facts.value[kGainU]) << row.line;
    }
  }
}

TEST(ProfileTable, HasShapesThatCanBe) {
  for (const ProfileRow& row : rows()) {
    const auto& v = row.facts.value;
    if (!row.facts.kind) continue;
    const bool mean = row.facts.kind == SensorKind::boxcar || row.facts.kind == SensorKind::running;
    EXPECT_EQ(mean, v[kWindowMs].has_value()) << row.line;
    EXPECT_EQ(row.facts.kind == SensorKind::exponential, v[kTauMs].has_value()) << row.line;
    if (row.facts.kind == SensorKind::boxcar) {
      EXPECT_LE(v[kWindowMs], v[kUpdateMs]) << row.line;
    }
  }
}

// ---- against the survey it is condensed from ----

/// A row of sensor-table.csv, by the names of its columns.
using Measured = std::map<std::string, std::string>;

std::vector<Measured> survey() {
  const auto folder = test::data();
  if (!folder) return {};
  const auto text = read_file(*folder / "sensor-traces/sensor-table.csv");
  if (!text) return {};
  CsvLines lines(*text);
  const auto columns = csv_cells(*lines.next()).value();
  std::vector<Measured> out;
  while (const auto line = lines.next()) {
    const auto cells = csv_cells(*line).value();
    Measured& row = out.emplace_back();
    for (std::size_t i = 0; i < cells.size(); ++i) row[columns[i]] = cells[i];
    // No such card: it is a GTX.
    if (row["gpu"].starts_with("GeForce RTX 10")) row["gpu"].replace(8, 3, "GTX");
    // Four Alienware RTX 3090s stand under the name of the card above them: no TITAN X is that
    // slow.
    if (row["gpu"] == "TITAN X Pascal" && std::stod(row["update_period_ms"]) > 50) {
      row["gpu"] = "GeForce RTX 3090";
      row["board"] = "another";
    }
  }
  return out;
}

struct Survey : testing::Test {
  void SetUp() override {
    if (all.empty()) GTEST_SKIP() << "not run: no data; ZEUS_DATA names its folder";
  }
  std::vector<Measured> all = survey();
};

DeviceInfo card(Measured& row) {
  static const std::pair<const char*, std::pair<const char*, const char*>> kArchitectures[] = {
      {"A100", {"ampere", "8.0"}},     {"A10", {"ampere", "8.6"}},
      {"A6000", {"ampere", "8.6"}},    {"A5000", {"ampere", "8.6"}},
      {"RTX 30", {"ampere", "8.6"}},   {"RTX 40", {"ada", "8.9"}},
      {"H100", {"hopper", "9.0"}},     {"RTX 20", {"turing", "7.5"}},
      {"GTX 16", {"turing", "7.5"}},   {"TITAN RTX", {"turing", "7.5"}},
      {"RTX 8000", {"turing", "7.5"}}, {"V100", {"volta", "7.0"}},
      {"P100", {"pascal", "6.0"}},     {"GTX 10", {"pascal", "6.1"}},
      {"Pascal", {"pascal", "6.1"}},   {"K620", {"maxwell", "5.0"}},
      {"M40", {"maxwell", "5.2"}},     {"GTX TITAN X", {"maxwell", "5.2"}},
      {"K40", {"kepler", "3.5"}},      {"K80", {"kepler", "3.7"}}};
  DeviceInfo info;
  info.backend = "nvml";
  info.model = "NVIDIA " + row["gpu"];
  for (const auto& [name, facts] : kArchitectures) {
    if (row["gpu"].find(name) == std::string::npos) continue;
    info.facts = {{"architecture", facts.first}, {"compute", facts.second}};
    break;
  }
  EXPECT_FALSE(info.facts.empty()) << info.model;
  info.facts.emplace_back("driver", row["driver"]);
  return info;
}

SensorProfile profile_of(Measured& row) {
  static const std::map<std::string, std::string> kFields = {
      {"draw", "nvml:power"}, {"average", "nvml:185:scope0"}, {"instant", "nvml:186:scope0"}};
  return ProfileBook::builtin().refine(card(row), sensor_for(kFields.at(row["field"])));
}

TEST_F(Survey, AgreesWithTheTableOnEveryUpdatePeriod) {
  for (Measured& row : all) {
    const double ms = std::chrono::duration<double>(profile_of(row).update).count() * 1e3;
    EXPECT_NEAR(ms, std::stod(row["update_period_ms"]), 0.05 * ms)
        << row["gpu"] << ' ' << row["driver"] << ' ' << row["field"];
  }
}

// The survey tells a window where it saw one, and a rise otherwise: 0.8 W of a running mean, or
// ln 9 time constants of a first-order sensor, to within an update.
TEST_F(Survey, AgreesWithTheTableOnEveryWindow) {
  for (Measured& row : all) {
    SCOPED_TRACE(row["gpu"] + ' ' + row["driver"] + ' ' + row["field"]);
    const SensorProfile p = profile_of(row);
    const auto ms = [](Duration d) { return std::chrono::duration<double>(d).count() * 1e3; };
    if (!row["window_ms"].empty()) {
      // 17.6 to 19.2 ms on four cards of one node, and a fit that failed.
      const bool odd = row["gpu"] == "A100 40GB PCIe" || row["window_ms"] == "0.88";
      EXPECT_NEAR(ms(p.window), std::stod(row["window_ms"]), (odd ? 1 : 0.16) * ms(p.window));
      EXPECT_EQ(p.kind, SensorKind::boxcar);
    } else if (!row["rise_time_ms"].empty()) {
      const double rise = std::stod(row["rise_time_ms"]);
      if (p.kind == SensorKind::running) {
        EXPECT_GE(rise, 0.8 * ms(p.window));
        EXPECT_LE(rise, 0.8 * ms(p.window) + 2 * ms(p.update));
      } else if (p.kind == SensorKind::exponential) {
        EXPECT_NEAR(rise, std::log(9.0) * ms(p.tau), ms(p.update) / std::sqrt(3.0));
      } else {
        EXPECT_EQ(p.kind, SensorKind::model);
      }
    }
  }
}

TEST_F(Survey, GivesTheGainOfEachModelThatWasComparedWithAMeter) {
  std::map<std::string, std::pair<double, int>> errors;
  std::map<std::string, SensorProfile> profiles;
  for (Measured& row : all) {
    if (row["steady_error_pct"].empty() || !row["board"].empty()) continue;
    auto& [sum, n] = errors[row["gpu"]];
    sum += std::stod(row["steady_error_pct"]) / 100;
    ++n;
    profiles[row["gpu"]] = profile_of(row);
  }
  EXPECT_EQ(errors.size(), 16u);
  for (const auto& [gpu, error] : errors) {
    const SensorProfile& p = profiles[gpu];
    const double boards =
        p.update < std::chrono::milliseconds(25) && p.window > Duration{} ? 0.01 : 0.04;
    EXPECT_EQ(p.gain_class, GainClass::model) << gpu;
    EXPECT_NEAR(p.gain_u.value_or(0), std::hypot(error.first / error.second, boards), 6e-4) << gpu;
  }
}

}  // namespace
}  // namespace zeus
