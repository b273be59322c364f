#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zeus::report {

/// All series of one name.
struct MetricFamily {
  /// A counter only rises while its process lives, and its name ends in "_total".
  enum class Type : std::uint8_t { counter, gauge };
  struct Point {
    std::vector<std::pair<std::string, std::string>> labels{};
    double value = 0;
  };
  std::string name{}, help{};
  Type type = Type::gauge;
  std::vector<Point> points{};
};

inline constexpr const char* kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";

/// A page that Prometheus can always read (text format 0.0.4, to be sent as kPrometheusText).
/// What it could not read is left out alone: a value that is no finite number, a name or a label
/// that is none, a second series with the labels of one before it. Labels may hold any text (what
/// is no UTF-8 becomes U+FFFD; an empty one is the same as none); a metric without points is
/// absent.
std::string to_prometheus(std::span<const MetricFamily> metrics);

}  // namespace zeus::report
