#include "measure/profile_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/csv.h"
#include "base/numbers.h"

namespace zeus {
namespace {

/// A column of numbers, and what they may be.
struct NumberColumn {
  std::string_view name;
  double least, most;
};
constexpr double kHourMs = 3.6e6, kTiny = 1e-6;
constexpr std::array<NumberColumn, kFacts> kNumbers = {{{"update_ms", kTiny, kHourMs},
                                                        {"window_ms", kTiny, kHourMs},
                                                        {"delay_ms", -kHourMs, kHourMs},
                                                        {"tau_ms", kTiny, kHourMs},
                                                        {"tau_u_ms", 0, kHourMs},
                                                        {"coverage", kTiny, 1},
                                                        {"gain", 0.01, 100},
                                                        {"offset_w", -1e5, 1e5},
                                                        {"gain_u", 0, 1},
                                                        {"offset_u_w", 0, 1e5},
                                                        {"power_min_w", 0, 1e6}}};

constexpr std::pair<std::string_view, std::string ProfileRow::*> kTexts[] = {
    {"backend", &ProfileRow::backend}, {"model", &ProfileRow::model}, {"arch", &ProfileRow::arch},
    {"compute", &ProfileRow::compute}, {"uuid", &ProfileRow::uuid},   {"field", &ProfileRow::field},
    {"source", &ProfileRow::source}};
constexpr std::pair<std::string_view, Version ProfileRow::*> kVersions[] = {
    {"driver_min", &ProfileRow::driver_min}, {"driver_max", &ProfileRow::driver_max}};

template <class T>
std::optional<T> named(std::string_view text, T last) {
  for (unsigned i = 0; i <= static_cast<unsigned>(last); ++i) {
    if (to_string(static_cast<T>(i)) == text) return static_cast<T>(i);
  }
  return std::nullopt;
}

std::string quoted(std::string_view text) { return '"' + std::string(text) + '"'; }

std::string plain(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

bool known(std::string_view column) {
  const auto is = [column](const auto& c) { return c.first == column; };
  return std::any_of(std::begin(kTexts), std::end(kTexts), is) ||
         std::any_of(std::begin(kVersions), std::end(kVersions), is) ||
         std::any_of(kNumbers.begin(), kNumbers.end(),
                     [column](const auto& c) { return c.name == column; }) ||
         column == "kind" || column == "gain_class";
}

/// Puts one cell into its place. What is wrong with it, or nothing.
std::string put(ProfileRow& row, std::string_view column, const std::string& cell) {
  if (cell.empty()) return {};
  for (const auto& [name, member] : kTexts) {
    if (name == column) row.*member = cell;
  }
  for (const auto& [name, member] : kVersions) {
    if (name != column) continue;
    row.*member = parse_version(cell);
    if ((row.*member).empty()) {
      return std::string(column) + " is " + quoted(cell) + "; write a version like 535 or 535.54.3";
    }
  }
  for (std::size_t i = 0; i < kFacts; ++i) {
    if (kNumbers[i].name != column) continue;
    const auto value = parse_real(cell);
    if (!value || *value < kNumbers[i].least || *value > kNumbers[i].most) {
      return std::string(column) + " is " + quoted(cell) + "; it must be a number from " +
             plain(kNumbers[i].least) + " to " + plain(kNumbers[i].most);
    }
    row.facts.value[i] = value;
  }
  if (column == "kind") {
    row.facts.kind = named(cell, SensorKind::model);
    if (!row.facts.kind || row.facts.kind == SensorKind::unknown) {
      return "kind is " + quoted(cell) +
             "; it is one of counter, instant, boxcar, running, exponential, model";
    }
  }
  if (column == "gain_class") {
    row.facts.gain_class = named(cell, GainClass::unit);
    if (!row.facts.gain_class) {
      return "gain_class is " + quoted(cell) + "; it is one of none, family, model, unit";
    }
  }
  return {};
}

/// What is wrong with a row as a whole, or nothing.
std::string flaw(const ProfileRow& row) {
  const auto& v = row.facts.value;
  if (row.field.empty()) return "it has no field; zeus env --json tells each sensor's profile_id";
  const bool gain = v[kGain] || v[kOffsetW] || v[kGainU] || v[kOffsetUW];
  if (gain && !row.facts.gain_class) return "it has a gain but no gain_class";
  if (row.facts.kind == SensorKind::running && v[kWindowMs] && v[kUpdateMs] &&
      *v[kWindowMs] <= *v[kUpdateMs]) {
    return "a running mean has a window longer than its update; a shorter one is a boxcar";
  }
  return {};
}

/// How far a version lies along all versions; `past`: the end of what it admits as the greatest.
double place(const Version& version, bool past) {
  double place = 0, unit = 1;
  for (std::size_t i = 0; i < version.size(); ++i) {
    place += version[i] * unit;
    if (i + 1 == version.size() && past) place += unit;
    unit /= 1000;
  }
  return place;
}

/// -1, 0 or 1, by as many parts as `limit` has.
int compare(const Version& version, const Version& limit) {
  for (std::size_t i = 0; i < limit.size(); ++i) {
    const unsigned part = i < version.size() ? version[i] : 0;
    if (part != limit[i]) return part < limit[i] ? -1 : 1;
  }
  return 0;
}

std::string_view fact(const DeviceInfo& device, std::string_view name) {
  for (const auto& [key, value] : device.facts) {
    if (key == name) return value;
  }
  return {};
}

bool fits_one(std::string_view pattern, std::string_view text) noexcept {
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

bool Facts::add(const Facts& row) {
  const auto closed = [this](std::size_t i) {
    const bool shape = i >= kWindowMs && i <= kCoverage, gain = i >= kGain && i <= kOffsetUW;
    return (shape && shape_told_) || (gain && gain_told_);
  };
  bool any = false;
  for (std::size_t i = 0; i < kFacts; ++i) {
    if (value[i] || !row.value[i] || closed(i)) continue;
    value[i] = row.value[i];
    any = true;
  }
  if (!kind && row.kind) {
    kind = row.kind;
    any = shape_told_ = true;
  }
  if (!gain_class && row.gain_class) {
    gain_class = row.gain_class;
    any = gain_told_ = true;
  }
  return any;
}

void Facts::apply_to(SensorProfile& p) const {
  const auto put = [this](Fact i, double& target, bool told, double otherwise) {
    if (value[i] || told) target = value[i].value_or(otherwise);
  };
  const auto put_ms = [this](Fact i, Duration& target, bool told) {
    if (!value[i] && !told) return;
    target = Duration(std::llround(value[i].value_or(0) * 1e6));
  };
  put_ms(kUpdateMs, p.update, false);
  put_ms(kWindowMs, p.window, shape_told_);
  put_ms(kDelayMs, p.delay, shape_told_);
  put_ms(kTauMs, p.tau, shape_told_);
  put_ms(kTauUMs, p.tau_u, shape_told_);
  if (value[kCoverage] || shape_told_) p.coverage = value[kCoverage];
  if (kind) p.kind = *kind;
  put(kGain, p.gain, gain_told_, 1);
  put(kOffsetW, p.offset_w, gain_told_, 0);
  put(kOffsetUW, p.offset_u_w, gain_told_, 0);
  if (gain_told_) p.gain_u = value[kGainU];
  if (gain_class) p.gain_class = *gain_class;
  put(kPowerMinW, p.power_min_w, false, 0);
}

Version parse_version(std::string_view text) {
  Version parts;
  while (true) {
    unsigned part = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), part);
    if (ec != std::errc{}) return {};
    parts.push_back(part);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return parts;
    if (text.front() != '.') return {};
    text.remove_prefix(1);
  }
}

bool fits(std::string_view pattern, std::string_view text) noexcept {
  while (true) {
    const auto bar = pattern.find('|');
    if (fits_one(pattern.substr(0, bar), text)) return true;
    if (bar == std::string_view::npos) return false;
    pattern.remove_prefix(bar + 1);
  }
}

bool ProfileRow::fits(const DeviceInfo& device, const SensorInfo& sensor) const {
  const auto ok = [](const std::string& pattern, std::string_view text) {
    return pattern.empty() || zeus::fits(pattern, text);
  };
  if (!ok(backend, device.backend) || !ok(model, device.model) ||
      !ok(arch, fact(device, "architecture")) || !ok(compute, fact(device, "compute")) ||
      !(uuid.empty() || uuid == device.id) || !ok(field, sensor.profile.id)) {
    return false;
  }
  if (driver_min.empty() && driver_max.empty()) return true;
  const Version driver = parse_version(fact(device, "driver"));
  return !driver.empty() && compare(driver, driver_min) >= 0 && compare(driver, driver_max) <= 0;
}

double ProfileRow::breadth() const {
  return driver_max.empty() ? kInfinity : place(driver_max, true) - place(driver_min, false);
}

Result<std::vector<ProfileRow>> parse_profiles(std::string_view csv, std::string_view name) {
  CsvLines lines(csv);
  std::vector<std::string> columns;
  std::vector<ProfileRow> rows;
  const auto wrong = [&](const std::string& what) {
    return Error{Errc::invalid, 0,
                 std::string(name) + ':' + std::to_string(lines.number()) + ": " + what};
  };
  while (const auto line = lines.next()) {
    auto cells = csv_cells(*line);
    if (!cells) return wrong("its quotes do not match; a cell is \"...\", with \"\" for a quote");
    if (columns.empty()) {
      for (const std::string& c : *cells) {
        if (!known(c)) {
          return wrong("there is no column " + quoted(c) +
                       "; docs/reference/profiles.md lists them");
        }
        if (std::count(cells->begin(), cells->end(), c) > 1) {
          return wrong("the column " + quoted(c) + " is there twice");
        }
      }
      columns = std::move(*cells);
      continue;
    }
    if (cells->size() != columns.size()) {
      return wrong("it has " + std::to_string(cells->size()) + " cells, and the first line names " +
                   std::to_string(columns.size()) + " columns");
    }
    ProfileRow row;
    row.line = lines.number();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (auto bad = put(row, columns[i], (*cells)[i]); !bad.empty()) return wrong(bad);
    }
    if (auto bad = flaw(row); !bad.empty()) return wrong(bad);
    if (row.source.empty()) row.source = std::string(name) + ':' + std::to_string(row.line);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace zeus
