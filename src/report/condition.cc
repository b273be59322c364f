#include "report/condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace zeus::report {
namespace {

constexpr Metric kMetrics[] = {Metric::energy, Metric::time, Metric::power};

struct Unit {
  Metric metric;
  std::string_view name;
  double factor;
};
constexpr Unit kUnits[] = {
    {Metric::energy, "J", 1},    {Metric::energy, "mJ", 1e-3}, {Metric::energy, "kJ", 1e3},
    {Metric::energy, "MJ", 1e6}, {Metric::energy, "Wh", 3600}, {Metric::energy, "kWh", 3.6e6},
    {Metric::time, "s", 1},      {Metric::time, "ms", 1e-3},   {Metric::time, "us", 1e-6},
    {Metric::time, "min", 60},   {Metric::time, "m", 60},      {Metric::time, "h", 3600},
    {Metric::power, "W", 1},     {Metric::power, "mW", 1e-3},  {Metric::power, "kW", 1e3}};

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Takes the name of a metric off the front.
std::optional<Metric> take_metric(std::string_view& text) {
  for (const Metric m : kMetrics) {
    const std::string_view name = to_string(m);
    if (!text.starts_with(name)) continue;
    text = trimmed(text.substr(name.size()));
    return m;
  }
  return std::nullopt;
}

Error wrong(std::string_view text, std::string_view why, std::string_view like) {
  return {Errc::invalid, 0, fmt::format("\"{}\" {}; write it like {}", text, why, like)};
}

/// The limit at the end of a condition: a ratio, or a number of the metric.
Status take_limit(Condition& c, std::string_view rest, std::string_view like) {
  const auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), c.limit);
  if (ec != std::errc{}) return wrong(c.text, "has no number where the limit belongs", like);
  const auto used = static_cast<std::size_t>(end - rest.data());
  const std::string_view unit = trimmed(rest.substr(used));
  c.relative = unit == "x";
  const auto* const known = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const Unit& u) {
    return u.metric == c.metric && u.name == unit;
  });
  if (known != std::end(kUnits)) {
    c.limit *= known->factor;
  } else if (!c.relative && !unit.empty()) {
    return wrong(
        c.text,
        fmt::format("has a limit in \"{}\", which is no unit of {}", unit, to_string(c.metric)),
        like);
  }
  if (std::isfinite(c.limit) && c.limit > 0) return ok();
  return wrong(c.text, "has a limit that is not greater than 0", like);
}

}  // namespace

const char* to_string(Metric metric) noexcept {
  switch (metric) {
    case Metric::energy: return "energy";
    case Metric::time: return "time";
    case Metric::power: return "power";
  }
  return "energy";
}

const char* unit_of(Metric metric) noexcept {
  switch (metric) {
    case Metric::energy: return "J";
    case Metric::time: return "s";
    case Metric::power: return "W";
  }
  return "J";
}

Result<Condition> parse_fail_if(std::string_view text) {
  constexpr std::string_view kLike = "\"energy > 1.05x\" or \"power > 300W\"";
  Condition c;
  c.text = trimmed(text);
  std::string_view rest = c.text;
  const auto metric = take_metric(rest);
  if (!metric) return wrong(c.text, "begins with none of energy, time and power", kLike);
  c.metric = *metric;
  if (!rest.starts_with('>') && !rest.starts_with('<')) {
    return wrong(c.text, "has no > or < behind the first word", kLike);
  }
  c.above = rest.front() == '>';
  if (const Status s = take_limit(c, trimmed(rest.substr(1)), kLike); !s) return s.error();
  return c;
}

Result<Condition> parse_no_worse_than(std::string_view text) {
  Condition c{.kind = Condition::Kind::no_worse_than, .text = std::string(trimmed(text))};
  std::string_view rest = c.text;
  c.metric = take_metric(rest).value_or(Metric::energy);
  if (const Status s = take_limit(c, rest, "\"1.05x\" or \"time 1.1x\""); !s) return s.error();
  return c;
}

}  // namespace zeus::report
