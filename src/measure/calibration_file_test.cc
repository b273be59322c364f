#include "measure/calibration_file.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "zeus/profile.h"

namespace zeus {
namespace {

SensorInfo power_sensor() {
  SensorInfo info;
  info.quantity = Quantity::power;
  info.profile.id = "test:power";
  return info;
}

TEST(CalibrationFile, IsReadByAProfileBook) {
  DeviceInfo device;
  device.id = "GPU-1";
  device.facts = {{"driver", "550.54.15"}};
  Calibration found;
  found.comb.accepted = true;
  found.comb.period_s = 0.10115;
  found.shape = ShapeFit{.kind = SensorKind::boxcar, .window_s = 0.025};
  found.gain = GainFit{.gain = 0.954, .gain_u = 0.011, .offset_w = -1.2, .offset_u_w = 0.4};
  const std::string row =
      calibration_row(device, power_sensor(), found, "zeus calibrate, 2026-02-03, by a \"meter\"");
  const auto text = with_calibrations("", std::span(&row, 1));
  ASSERT_TRUE(text);
  ProfileBook book;
  const auto added = book.add(*text, "calibrations.csv");
  ASSERT_TRUE(added) << added.error().detail;
  const SensorProfile p = book.refine(device, power_sensor());
  EXPECT_EQ(p.update, std::chrono::microseconds(101150));
  EXPECT_EQ(p.window, std::chrono::milliseconds(25));
  EXPECT_EQ(p.gain, 0.954);
  EXPECT_EQ(p.offset_w, -1.2);
  EXPECT_EQ(p.gain_u, 0.011);
  EXPECT_EQ(p.offset_u_w, 0.4);
  EXPECT_EQ(p.gain_class, GainClass::unit);
  EXPECT_EQ(p.source, "zeus calibrate, 2026-02-03, by a \"meter\"");
  device.facts = {{"driver", "560.1"}};  // Another driver, another sensor.
  EXPECT_EQ(book.refine(device, power_sensor()).gain_class, GainClass::none);
}

TEST(CalibrationFile, KeepsTheRowsOfOthers) {
  const auto row = [](const std::string& id, const std::string& driver, double period) {
    DeviceInfo device;
    device.id = id;
    device.facts = {{"driver", driver}};
    Calibration found;
    found.comb.accepted = true;
    found.comb.period_s = period;
    return calibration_row(device, power_sensor(), found, "me");
  };
  std::vector<std::string> rows = {row("GPU-1", "550", 0.1), row("GPU-2", "550", 0.1)};
  const std::string first = with_calibrations("", rows).value();
  rows = {row("GPU-1", "550", 0.2), row("GPU-1", "560", 0.3)};
  const std::string second = with_calibrations(first, rows).value();
  EXPECT_EQ(std::count(second.begin(), second.end(), '\n'), 4);
  EXPECT_NE(second.find("GPU-1,550,550,test:power,,200"), std::string::npos) << second;
  EXPECT_NE(second.find("GPU-1,560,560,test:power,,300"), std::string::npos) << second;
  EXPECT_NE(second.find("GPU-2,550,550,test:power,,100"), std::string::npos) << second;
  const std::vector<std::string> forget = {"GPU-1"};
  const std::string third = with_calibrations(second, {}, forget).value();
  EXPECT_EQ(third.find("GPU-1"), std::string::npos);
  EXPECT_NE(third.find("GPU-2"), std::string::npos);
  EXPECT_FALSE(with_calibrations("field,update_ms\nx,1\n", rows));
}

TEST(MeterFile, IsReadInEitherUnitAndFromEitherClock) {
  const auto unix_time = parse_meter("power_w,t_s\n50,1000.5\n60,1001.5\n", "m.csv", 0, 1000);
  ASSERT_TRUE(unix_time);
  EXPECT_DOUBLE_EQ(unix_time->begin_s(), 0.5);
  EXPECT_DOUBLE_EQ(unix_time->mean(0.5, 1.5), 50);
  const auto relative = parse_meter("t_ms,power_w\n0,50\n500,60\n", "m.csv", 1010, 1000);
  ASSERT_TRUE(relative);
  EXPECT_DOUBLE_EQ(relative->end_s(), 10.5);
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "m.csv:0: it is empty"},
           {"t,power_w\n0,1\n1,1\n", "m.csv:1: it must have a column t_s or t_ms"},
           {"t_s,power_w\n0,1\nx,1\n", "m.csv:3: its time or its power is no number"},
           {"t_s,power_w\n0\n", "m.csv:2: it has too few"},
           {"t_s,power_w\n0,1\n", "m.csv:2: it holds no readings"}}) {
    const auto bad = parse_meter(text, "m.csv", 0, 0);
    ASSERT_FALSE(bad) << text;
    EXPECT_TRUE(bad.error().detail.starts_with(why)) << bad.error().detail;
  }
}

}  // namespace
}  // namespace zeus
