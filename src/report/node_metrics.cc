#include "report/node_metrics.h"

#include <algorithm>
#include <cmath>

#include "report/env.h"

namespace zeus::report {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;
using Type = MetricFamily::Type;

// Just below the smallest blanks that are no possible reading: 2^31 - 16 mW, and 2^47 mJ, which a
// card of a kilowatt would reach after four years.
constexpr double kMostWatts = 1e5, kMostJoules = 1.4e11;

std::optional<double> plausible(std::optional<double> value, double most) {
  return value && *value >= 0 && *value <= most ? value : std::nullopt;  // NaN is neither.
}

/// One name, and how to add a point of it: only where there is a value.
class Series {
 public:
  Series(std::string name, Type type, std::string help) : metric_{name, help, type, {}} {}
  void add(Labels labels, std::optional<double> value) {
    if (value) metric_.points.push_back({std::move(labels), *value});
  }
  void add(Labels labels, std::optional<std::uint64_t> count) {
    if (count) add(std::move(labels), static_cast<double>(*count));
  }
  void add(Labels labels, bool holds) { add(std::move(labels), holds ? 1.0 : 0.0); }
  void add(Labels labels, double value) { add(std::move(labels), std::optional(value)); }
  MetricFamily take() { return std::move(metric_); }

 private:
  MetricFamily metric_;
};

Labels of_device(const NodeMetrics& node, const NodeMetrics::Device& d) {
  return {{"device", d.info.id},
          {"kind", to_string(d.info.kind)},
          {"index", std::to_string(d.info.index)},
          {"simulated", node.simulated}};
}

/// Scope and numbers of a domain, apart: `sum by (domain)` is what people ask for.
Labels of_domain(const NodeMetrics& node, const NodeMetrics::Domain& d) {
  const std::string name = to_string(d.id);
  return {{"domain", name.substr(0, name.find(':'))},
          {"index", std::to_string(d.id.unit)},
          {"part", d.id.part == 0 ? "" : std::to_string(d.id.part)},
          {"device", d.device},
          {"simulated", node.simulated}};
}

Labels operator+(Labels labels, std::pair<std::string, std::string> more) {
  labels.push_back(std::move(more));
  return labels;
}

/// True where what was read may be shown: the device answers, and it was not long ago.
bool fresh(const NodeMetrics& node, const NodeMetrics::Domain& d) {
  const auto device = std::find_if(node.devices.begin(), node.devices.end(),
                                   [&](const auto& x) { return x.info.id == d.device; });
  if (device != node.devices.end() && !device->up) return false;
  return !d.age_s || *d.age_s <= node.stale_after_s;
}

/// The tree of those domains that `have` the quantity: what is inside another must not be summed.
DomainTree tree(const NodeMetrics& node, bool NodeMetrics::Domain::*have) {
  std::vector<DomainId> ids;
  for (const auto& d : node.domains) {
    if (d.*have) ids.push_back(d.id);
  }
  return DomainTree(std::move(ids));
}

/// Adds the readings of one quantity as two metrics: of the domains that may be added up, and of
/// those inside another.
void add_readings(std::vector<MetricFamily>& out, const NodeMetrics& node, Series roots,
                  Series nested, bool NodeMetrics::Domain::*have,
                  std::optional<double> NodeMetrics::Domain::*reading, double most) {
  const DomainTree domains = tree(node, have);
  for (const auto& d : node.domains) {
    if (!(d.*have) || !fresh(node, d)) continue;
    const std::optional<double> value = plausible(d.*reading, most);
    if (const auto parent = domains.parent(d.id)) {
      nested.add(of_domain(node, d) + std::pair{"within", to_string(*parent)}, value);
    } else {
      roots.add(of_domain(node, d), value);
    }
  }
  out.push_back(roots.take());
  out.push_back(nested.take());
}

void add_energy_and_power(std::vector<MetricFamily>& out, const NodeMetrics& node) {
  using Domain = NodeMetrics::Domain;
  add_readings(
      out, node,
      {"zeus_energy_joules_total", Type::counter, "Energy since the daemon began. May be summed."},
      {"zeus_nested_energy_joules_total", Type::counter,
       "Energy of a domain that zeus_energy_joules_total counts as part of the one in \"within\"."},
      &Domain::has_energy, &Domain::joules, kMostJoules);
  add_readings(out, node, {"zeus_power_watts", Type::gauge, "Power drawn now. May be summed."},
               {"zeus_nested_power_watts", Type::gauge,
                "Power of a domain that zeus_power_watts counts as part of the one in \"within\"."},
               &Domain::has_power, &Domain::watts, kMostWatts);
}

void add_health(std::vector<MetricFamily>& out, const NodeMetrics& node) {
  Series age("zeus_sample_age_seconds", Type::gauge, "How long ago the domain was read.");
  Series can("zeus_sensor_supported", Type::gauge,
             "1 if the domain has a sensor of the quantity, whether it answers now or not.");
  Series errors("zeus_reading_errors_total", Type::counter, "Readings that failed, by reason.");
  Series resets("zeus_energy_resets_total", Type::counter,
                "How often the hardware's counter was seen to start again.");
  for (const auto& d : node.domains) {
    const Labels labels = of_domain(node, d);
    age.add(labels, d.age_s);
    can.add(labels + std::pair{"quantity", "energy"}, d.has_energy);
    can.add(labels + std::pair{"quantity", "power"}, d.has_power);
    resets.add(labels, d.resets);
    // The usual reasons are there from the start: increase() does not see a counter that begins
    // at 1.
    auto counts = d.errors;
    for (const Errc e : {Errc::denied, Errc::lost, Errc::busy, Errc::malformed}) counts[e];
    for (const auto& [reason, n] : counts) {
      errors.add(labels + std::pair{"reason", to_string(reason)}, std::optional(n));
    }
  }
  for (Series* s : {&age, &can, &errors, &resets}) out.push_back(s->take());
}

void add_devices(std::vector<MetricFamily>& out, const NodeMetrics& node) {
  Series up("zeus_up", Type::gauge, "1 if the device answers.");
  Series limit("zeus_power_limit_watts", Type::gauge, "The power limit in force.");
  Series info("zeus_device_info", Type::gauge, "What the device is; always 1.");
  for (const auto& d : node.devices) {
    const Labels labels = of_device(node, d);
    up.add(labels, d.up);
    if (d.up) limit.add(labels, plausible(d.power_limit_w, kMostWatts));
    const auto& partitions = d.info.partitions;
    info.add(
        labels + std::pair{"model", d.info.model} + std::pair{"pci", d.info.pci} +
            std::pair{"backend", d.info.backend} +
            std::pair{"partitions", d.info.partitioned ? std::to_string(partitions.size()) : ""},
        true);
  }
  for (Series* s : {&up, &limit, &info}) out.push_back(s->take());
}

void add_daemon(std::vector<MetricFamily>& out, const NodeMetrics& node) {
  const auto one = [&](const char* name, Type type, const char* help, auto value) {
    Series series(name, type, help);
    series.add({}, value);
    out.push_back(series.take());
  };
  Series build("zeusd_build_info", Type::gauge, "Version of the daemon; always 1.");
  build.add({{"version", node.version}, {"simulated", node.simulated}}, true);
  out.push_back(build.take());
  one("zeusd_start_time_seconds", Type::gauge, "When the daemon began, since 1970.",
      node.start_time_s);
  one("zeusd_ready", Type::gauge, "1 if /healthz says so.",
      node.ready ? std::optional(*node.ready ? 1.0 : 0.0) : std::nullopt);
  one("zeusd_leases", Type::gauge, "Leases held now.", node.leases);
  one("zeusd_gpus_released", Type::gauge, "1 while the driver of the GPUs is let go of.",
      node.gpus_released ? std::optional(*node.gpus_released ? 1.0 : 0.0) : std::nullopt);
  one("zeusd_leases_restored_total", Type::counter,
      "Leases whose client was gone, put back by the daemon.", node.leases_restored);
  one("zeusd_events_dropped_total", Type::counter, "Events not delivered to slow subscribers.",
      node.events_dropped);
  one("zeusd_samples_missed_total", Type::counter,
      "Polls left out because the one before took too long.", node.samples_missed);
  one("zeusd_scrape_errors_total", Type::counter, "Scrapes in which a reading failed.",
      node.scrape_errors);
  one("zeusd_scrape_duration_seconds", Type::gauge, "What making the last page took.",
      node.scrape_duration_s);
  one("zeusd_self_cpu_seconds_total", Type::counter, "CPU time of the daemon itself.",
      node.self_cpu_s);
}

void add_traffic(std::vector<MetricFamily>& out, const NodeMetrics& node) {
  Series requests("zeusd_http_requests_total", Type::counter, "Requests answered.");
  for (const auto& r : node.requests) {
    requests.add({{"route", r.route}, {"code", std::to_string(r.code)}}, std::optional(r.count));
  }
  Series streams("zeusd_stream_subscribers", Type::gauge, "Open event streams.");
  for (const auto& [stream, n] : node.subscribers) {
    streams.add({{"stream", stream}}, std::optional(n));
  }
  Series problems("zeusd_problems", Type::gauge, "Parts of the node that could not be opened.");
  for (const auto& [backend, n] : node.problems) {
    problems.add({{"backend", backend}}, std::optional(n));
  }
  for (Series* s : {&requests, &streams, &problems}) out.push_back(s->take());
}

}  // namespace

std::vector<MetricFamily> node_metrics(const NodeMetrics& node) {
  std::vector<MetricFamily> out;
  add_energy_and_power(out, node);
  add_health(out, node);
  add_devices(out, node);
  add_daemon(out, node);
  add_traffic(out, node);
  return out;
}

}  // namespace zeus::report
