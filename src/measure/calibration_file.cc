#include "measure/calibration_file.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/csv.h"

namespace zeus {
namespace {

std::string_view fact(const DeviceInfo& device, std::string_view name) {
  for (const auto& [key, value] : device.facts) {
    if (key == name) return value;
  }
  return {};
}

std::string number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6);
  return {text, end.ptr};
}

constexpr std::string_view kHeader =
    "uuid,driver_min,driver_max,field,kind,update_ms,window_ms,tau_ms,tau_u_ms,coverage,gain,"
    "offset_w,gain_u,offset_u_w,gain_class,source";

/// uuid, driver and field of a row.
using Key = std::tuple<std::string, std::string, std::string>;
std::optional<Key> key_of(std::string_view row) {
  const auto cells = csv_cells(row);
  if (!cells || cells->size() < 4) return std::nullopt;
  return Key{(*cells)[0], (*cells)[1], (*cells)[3]};
}

}  // namespace

Result<StepTrace> parse_meter(std::string_view csv, std::string_view name, double start_unix_s,
                              double origin_unix_s) {
  CsvLines lines(csv);
  const auto wrong = [&](std::string_view what) {
    return Error{
        Errc::invalid, 0,
        std::string(name) + ':' + std::to_string(lines.number()) + ": " + std::string(what)};
  };
  const auto head = lines.next();
  const auto columns = head ? csv_cells(*head) : std::nullopt;
  if (!columns) return wrong("it is empty; its first line must name columns t_s, power_w");
  std::size_t time = columns->size(), power = columns->size();
  double unit = 1;
  for (std::size_t i = 0; i < columns->size(); ++i) {
    if ((*columns)[i] == "t_s" || (*columns)[i] == "t_ms") {
      time = i;
      unit = (*columns)[i] == "t_ms" ? 1e-3 : 1;
    }
    if ((*columns)[i] == "power_w") power = i;
  }
  if (time == columns->size() || power == columns->size()) {
    return wrong("it must have a column t_s or t_ms, and one power_w");
  }
  std::vector<StepTrace::Point> points;
  while (const auto line = lines.next()) {
    const auto cells = csv_cells(*line);
    if (!cells || cells->size() != columns->size()) return wrong("it has too few or many cells");
    const auto t = parse_real((*cells)[time]), w = parse_real((*cells)[power]);
    if (!t || !w) return wrong("its time or its power is no number");
    points.push_back({*t * unit + start_unix_s - origin_unix_s, *w});
  }
  if (points.size() < 2) return wrong("it holds no readings");
  return StepTrace(points);
}

std::string calibration_row(const DeviceInfo& device, const SensorInfo& sensor,
                            const Calibration& found, std::string_view source) {
  const std::string driver(fact(device, "driver"));
  std::vector<std::string> cells = {device.id, driver, driver, sensor.profile.id};
  const bool counter = sensor.quantity == Quantity::energy;
  const bool exponential = found.shape && found.shape->kind == SensorKind::exponential;
  const auto ms = [](double s) { return number(s * 1e3); };
  const auto put = [&cells](bool known, const std::string& text) {
    cells.push_back(known ? text : "");
  };
  const bool shape = found.shape.has_value();
  put(shape, counter ? "counter" : shape ? to_string(found.shape->kind) : "");
  put(found.comb.accepted, ms(found.comb.period_s));
  put(shape && !counter && !exponential, shape ? ms(found.shape->window_s) : "");
  put(exponential && !counter, shape ? ms(found.shape->window_s) : "");
  put(exponential && !counter, shape ? ms(found.shape->window_u_s) : "");
  put(found.coverage.has_value(), number(found.coverage.value_or(0)));
  const GainFit gain = found.gain.value_or(GainFit{});
  put(found.gain.has_value(), number(gain.gain));
  put(found.gain.has_value(), number(gain.offset_w));
  put(found.gain.has_value(), number(gain.gain_u));
  put(found.gain.has_value(), number(gain.offset_u_w));
  put(found.gain.has_value(), "unit");
  cells.push_back(csv_cell(source));
  std::string out;
  for (const std::string& cell : cells) out += (out.empty() ? "" : ",") + cell;
  return out;
}

Result<std::string> with_calibrations(std::string_view text, std::span<const std::string> rows,
                                      std::span<const std::string> forget) {
  std::string out(kHeader);
  out += '\n';
  CsvLines lines(text);
  if (const auto head = lines.next(); head && *head != kHeader) {
    return Error{
        Errc::invalid, 0,
        "its first line is not that of zeus calibrate; move it away, or into profiles.csv"};
  }
  const auto replaced = [&](const Key& key) {
    return std::any_of(rows.begin(), rows.end(), [&](const auto& r) { return key_of(r) == key; }) ||
           std::find(forget.begin(), forget.end(), std::get<0>(key)) != forget.end();
  };
  while (const auto line = lines.next()) {
    const auto key = key_of(*line);
    if (key && replaced(*key)) continue;
    out += std::string(*line) + '\n';
  }
  for (const std::string& row : rows) out += row + '\n';
  return out;
}

}  // namespace zeus
