#include "report/prometheus.h"

#include <prometheus/check_names.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "report/json.h"

namespace zeus::report {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

std::string valid_utf8(const std::string& text) {
  return Json::parse(dump(Json(text), false)).get<std::string>();
}

/// The library escapes labels, but takes a help text as it is.
std::string escaped_help(const std::string& help) {
  std::string out;
  for (const char c : valid_utf8(help)) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

/// Sorted by name, so that equal sets compare equal; each name once.
Labels labels(const MetricFamily::Point& point) {
  Labels out;
  for (const auto& [name, value] : point.labels) {
    if (!value.empty() && prometheus::CheckLabelName(name)) {
      out.push_back({name, valid_utf8(value)});
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto same_name = [](const auto& a, const auto& b) { return a.name == b.name; };
  out.erase(std::unique(out.begin(), out.end(), same_name), out.end());
  return out;
}

prometheus::MetricFamily family(const MetricFamily& metric) {
  const bool counts = metric.type == MetricFamily::Type::counter;
  prometheus::MetricFamily out;
  out.name = metric.name;
  out.help = escaped_help(metric.help);
  out.type = counts ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
  std::set<Labels> seen;
  for (const MetricFamily::Point& point : metric.points) {
    prometheus::ClientMetric series;
    series.label = labels(point);
    if (!std::isfinite(point.value) || !seen.insert(series.label).second) continue;
    (counts ? series.counter.value : series.gauge.value) = point.value;
    out.metric.push_back(std::move(series));
  }
  return out;
}

}  // namespace

std::string to_prometheus(std::span<const MetricFamily> metrics) {
  std::vector<prometheus::MetricFamily> families;
  std::set<std::string> names;
  for (const MetricFamily& metric : metrics) {
    if (!prometheus::CheckMetricName(metric.name) || !names.insert(metric.name).second) continue;
    prometheus::MetricFamily made = family(metric);
    if (!made.metric.empty()) families.push_back(std::move(made));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace zeus::report
