#include "report/node_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "report/run.h"
#include "support/data.h"

namespace zeus::report {
namespace {

using Device = NodeMetrics::Device;
using Domain = NodeMetrics::Domain;

constexpr DomainId kGpu{Scope::gpu, 0}, kPackage{Scope::package, 0}, kDram{Scope::dram, 0};

Device device(const std::string& id, DeviceInfo::Kind kind, std::uint16_t index = 0) {
  Device d;
  d.info.id = id;
  d.info.kind = kind;
  d.info.index = index;
  return d;
}

Domain domain(DomainId id, const std::string& of, std::optional<double> joules,
              std::optional<double> watts) {
  Domain d;
  d.id = id;
  d.device = of;
  d.joules = joules;
  d.watts = watts;
  d.age_s = 0.1;
  return d;
}

/// A card and a socket with DRAM.
NodeMetrics node() {
  NodeMetrics n;
  n.version = "1.2.3";
  n.devices = {device("GPU-1", DeviceInfo::Kind::gpu), device("package-0", DeviceInfo::Kind::cpu)};
  n.domains = {domain(kGpu, "GPU-1", 1000, 250), domain(kPackage, "package-0", 400, 80),
               domain(kDram, "package-0", 50, 10)};
  return n;
}

/// The lines of one metric, without comments.
std::vector<std::string> series(const NodeMetrics& n, const std::string& name) {
  std::istringstream page(to_prometheus(node_metrics(n)));
  std::vector<std::string> out;
  for (std::string line; std::getline(page, line);) {
    if (line.substr(0, line.find_first_of("{ ")) == name) out.push_back(line);
  }
  return out;
}

/// What `sum(name)` would be.
double sum(const NodeMetrics& n, const std::string& name) {
  double total = 0;
  for (const std::string& line : series(n, name)) total += std::stod(line.substr(line.rfind(' ')));
  return total;
}

TEST(NodeMetrics, NameTheDomainTheDeviceAndTheUnit) {
  EXPECT_EQ(series(node(), "zeus_energy_joules_total"),
            (std::vector<std::string>{
                R"(zeus_energy_joules_total{device="GPU-1",domain="gpu",index="0"} 1000)",
                R"(zeus_energy_joules_total{device="package-0",domain="package",index="0"} 400)",
                R"(zeus_energy_joules_total{device="package-0",domain="dram",index="0"} 50)"}));
  EXPECT_EQ(series(node(), "zeus_up").front(), R"(zeus_up{device="GPU-1",index="0",kind="gpu"} 1)");
  EXPECT_EQ(series(node(), "zeusd_build_info").front(), R"(zeusd_build_info{version="1.2.3"} 1)");
}

// field failure 15
TEST(NodeMetrics, HaveNoSeriesForDomainsThatAreNotThere) {
  NodeMetrics n = node();
  n.domains.pop_back();
  EXPECT_EQ(to_prometheus(node_metrics(n)).find("dram"), std::string::npos);
  EXPECT_EQ(to_prometheus(node_metrics(n)).find("core"), std::string::npos);
}

// field failure 19
TEST(NodeMetrics, ShowEverySocketAndAddUpToTheirSum) {
  NodeMetrics n = node();
  n.domains = {domain({Scope::package, 0}, "package-0", 262143.328850 + 12, 80),
               domain({Scope::package, 1}, "package-1", 90, 70)};
  EXPECT_EQ(series(n, "zeus_energy_joules_total").size(), 2u);
  EXPECT_NEAR(sum(n, "zeus_energy_joules_total"), 262143.328850 + 12 + 90, 1e-6);
}

TEST(NodeMetrics, AreSummedWithNothingCountedTwice) {
  NodeMetrics n = node();
  n.domains.push_back(domain({Scope::core, 0}, "package-0", 300, 60));
  n.domains.push_back(domain({Scope::memory, 0}, "GPU-1", 200, 40));
  EXPECT_EQ(sum(n, "zeus_energy_joules_total"), 1450);
  EXPECT_EQ(sum(n, "zeus_power_watts"), 340);
  EXPECT_EQ(
      series(n, "zeus_nested_energy_joules_total"),
      (std::vector<std::string>{
          R"(zeus_nested_energy_joules_total{device="package-0",domain="core",index="0",within="package:0"} 300)",
          R"(zeus_nested_energy_joules_total{device="GPU-1",domain="memory",index="0",within="gpu:0"} 200)"}));
}

// A domain inside one that cannot be read does not take its place in the sum.
TEST(NodeMetrics, NeverPutAPartInThePlaceOfAWholeThatFailed) {
  NodeMetrics n = node();
  n.domains[1].joules.reset();
  n.domains.push_back(domain({Scope::core, 0}, "package-0", 300, 60));
  EXPECT_EQ(sum(n, "zeus_energy_joules_total"), 1050);
}

// field failure 32
TEST(NodeMetrics, CountTheErrorsOfAZoneAndShowTheOthers) {
  NodeMetrics n = node();
  n.domains[2].joules.reset();
  n.domains[2].watts.reset();
  n.domains[2].age_s.reset();
  n.domains[2].errors[Errc::denied] = 7;
  EXPECT_EQ(sum(n, "zeus_energy_joules_total"), 1400);
  const auto errors = series(n, "zeus_reading_errors_total");
  EXPECT_NE(
      std::find(
          errors.begin(), errors.end(),
          R"(zeus_reading_errors_total{device="package-0",domain="dram",index="0",reason="denied"} 7)"),
      errors.end());
  EXPECT_EQ(sum(n, "zeus_reading_errors_total"), 7);
  EXPECT_EQ(sum(n, "zeus_up"), 2);
}

// field failure 91, 92
TEST(NodeMetrics, DoNotRepeatTheLastValuesOfADeviceThatIsGone) {
  NodeMetrics n = node();
  n.devices[0].power_limit_w = 300;
  n.devices[0].up = false;
  EXPECT_EQ(series(n, "zeus_up").front(), R"(zeus_up{device="GPU-1",index="0",kind="gpu"} 0)");
  for (const char* name :
       {"zeus_energy_joules_total", "zeus_power_watts", "zeus_power_limit_watts"}) {
    for (const std::string& line : series(n, name)) {
      EXPECT_EQ(line.find("GPU-1"), std::string::npos) << line;
    }
  }
  EXPECT_EQ(series(n, "zeus_energy_joules_total").size(), 2u) << "the others are still there";
}

// field failure 92
TEST(NodeMetrics, DoNotRepeatReadingsThatAreOldAndSayHowOldTheyAre) {
  NodeMetrics n = node();
  n.stale_after_s = 10;
  n.domains[0].age_s = 10.5;
  EXPECT_EQ(series(n, "zeus_energy_joules_total").size(), 2u);
  EXPECT_EQ(series(n, "zeus_power_watts").size(), 2u);
  EXPECT_EQ(series(n, "zeus_sample_age_seconds").front(),
            R"(zeus_sample_age_seconds{device="GPU-1",domain="gpu",index="0"} 10.5)");
}

// field failure 107
TEST(NodeMetrics, CountTheSamplesThatWereMissed) {
  NodeMetrics n = node();
  EXPECT_TRUE(series(n, "zeusd_samples_missed_total").empty()) << "not known is not none";
  n.samples_missed = 3;
  EXPECT_EQ(series(n, "zeusd_samples_missed_total").front(), "zeusd_samples_missed_total 3");
}

// field failure 110, 111
TEST(NodeMetrics, ShowABoardOnceWhetherItIsPartitionedOrNot) {
  NodeMetrics n = node();
  n.domains[0].watts = 52.6;
  n.devices[0].info.partitioned = true;
  n.devices[0].info.partitions = {"MIG-1", "MIG-2", "MIG-3", "MIG-4"};
  const auto gpu_watts = [](const NodeMetrics& of) {
    double total = 0;
    for (const std::string& line : series(of, "zeus_power_watts")) {
      if (line.find("domain=\"gpu\"") != std::string::npos) {
        total += std::stod(line.substr(line.rfind(' ')));
      }
    }
    return total;
  };
  EXPECT_EQ(gpu_watts(n), 52.6);
  // Should a machine ever have a figure of a slice, it lies inside the board's.
  n.domains.push_back(domain({Scope::partition, 0, 1}, "GPU-1", 100, 13));
  EXPECT_EQ(gpu_watts(n), 52.6);
  EXPECT_EQ(sum(n, "zeus_power_watts"), 52.6 + 80 + 10);
  EXPECT_EQ(
      series(n, "zeus_nested_power_watts").front(),
      R"(zeus_nested_power_watts{device="GPU-1",domain="partition",index="0",part="1",within="gpu:0"} 13)");
}

// field failure 112: the blanks of DCGM as they would come out in watts, milliwatts and
// millijoules.
TEST(NodeMetrics, ShowNoBlanksOfVendors) {
  for (const double blank :
       {140737488355328., 9223372036854775792., 2147483632., 2147483632e-3, -1., kNan, HUGE_VAL}) {
    NodeMetrics n = node();
    n.devices[0].power_limit_w = blank;
    n.domains[0].watts = blank;
    EXPECT_EQ(sum(n, "zeus_power_watts"), 90) << blank;
    EXPECT_TRUE(series(n, "zeus_power_limit_watts").empty()) << blank;
  }
  for (const double blank :
       {140737488355328., 9223372036854775792., 140737488355328e-3, -1., kNan}) {
    NodeMetrics n = node();
    n.domains[0].joules = blank;
    EXPECT_EQ(sum(n, "zeus_energy_joules_total"), 450) << blank;
  }
}

// field failure 113
TEST(NodeMetrics, TellNeverSupportedFromNotNowFromZero) {
  const auto of = [](bool has_power, std::optional<double> watts) {
    NodeMetrics n;
    n.devices = {device("GPU-1", DeviceInfo::Kind::gpu)};
    n.domains = {domain(kGpu, "GPU-1", 5, watts)};
    n.domains[0].has_power = has_power;
    return std::pair{sum(n, "zeus_sensor_supported"), series(n, "zeus_power_watts").size()};
  };
  EXPECT_EQ(of(false, std::nullopt), (std::pair{1., std::size_t{0}})) << "energy only";
  EXPECT_EQ(of(true, std::nullopt), (std::pair{2., std::size_t{0}}));
  EXPECT_EQ(of(true, 0), (std::pair{2., std::size_t{1}}));
}

/// Everything that has a name, with a value each.
NodeMetrics everything() {
  NodeMetrics n = node();
  n.simulated = "constant";
  n.start_time_s = 1.7e9;
  n.ready = true;
  n.devices[0].power_limit_w = 300;
  n.domains.push_back(domain({Scope::core, 0}, "package-0", 1, 1));
  n.domains[0].resets = 0;
  n.requests = {{"/metrics", 200, 5}};
  n.subscribers = {{"gpu", 2}};
  n.problems = {{"a", 0}};
  n.events_dropped = n.samples_missed = n.scrape_errors = n.leases = n.leases_restored = 1;
  n.gpus_released = true;
  n.scrape_duration_s = n.self_cpu_s = 0.1;
  return n;
}

TEST(NodeMetrics, SayOfEveryReadingThatItIsSimulated) {
  for (const MetricFamily& metric : node_metrics(everything())) {
    if (metric.name.starts_with("zeusd_") && metric.name != "zeusd_build_info") continue;
    EXPECT_FALSE(metric.points.empty()) << metric.name;
    for (const auto& point : metric.points) {
      EXPECT_NE(std::find(point.labels.begin(), point.labels.end(),
                          std::pair<std::string, std::string>("simulated", "constant")),
                point.labels.end())
          << metric.name;
    }
  }
}

// field failure 53, 114, 170: what falls is no counter, and what is called a total is one. The
// sequence is what a node shows: power and limits go both ways, energy only rises.
TEST(NodeMetrics, OnlyCallCountersWhatNeverFalls) {
  std::vector<double> watts = {57, 21, 57, 0, 30};
  if (const auto data = zeus::test::data()) {
    const auto recorded = zeus::test::column(
        *data / "sensor-traces" / "square-wave-3090" / "sensor.csv", "power_draw_w");
    watts.insert(watts.end(), recorded.begin(),
                 recorded.begin() + std::min<std::ptrdiff_t>(200, std::ssize(recorded)));
  }
  NodeMetrics n = everything();
  std::map<std::string, double> last;
  for (std::size_t i = 0; i < watts.size(); ++i) {
    const auto down = static_cast<std::uint64_t>(watts.size() - i);
    for (Domain& d : n.domains) {
      d.watts = watts[i];
      *d.joules += watts[i] * 0.1;
      d.age_s = 0.1 + 0.05 * static_cast<double>(i % 2);
      d.errors[Errc::lost] += i % 2;
    }
    n.devices[0].power_limit_w = 300 + watts[i];
    n.requests[0].count += i;
    n.leases = n.subscribers["gpu"] = n.problems["a"] = down;
    n.ready = i % 2 == 0;
    *n.scrape_duration_s = watts[i];
    for (const MetricFamily& metric : node_metrics(n)) {
      EXPECT_EQ(metric.type == MetricFamily::Type::counter, metric.name.ends_with("_total"))
          << metric.name;
      for (const auto& point : metric.points) {
        std::string key = metric.name;
        for (const auto& [name, value] : point.labels) key += ' ' + name + '=' + value;
        const auto [at, first] = last.try_emplace(key, point.value);
        if (metric.type == MetricFamily::Type::counter) {
          EXPECT_GE(point.value, at->second) << key;
        }
        at->second = point.value;
      }
    }
  }
}

TEST(NodeMetrics, AreThoseOfTheReferencePage) {
  std::ifstream page(test::source_folder() / "docs/reference/metrics.md");
  std::set<std::string> explained, made;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `zeus")) explained.insert(line.substr(3, line.find('`', 3) - 3));
  }
  for (const MetricFamily& metric : node_metrics(everything())) made.insert(metric.name);
  EXPECT_EQ(made, explained);
}

TEST(NodeMetrics, AreNamedByUnitAndExplained) {
  const auto metrics = node_metrics(everything());
  EXPECT_GT(metrics.size(), 15u);
  for (const MetricFamily& metric : metrics) {
    EXPECT_TRUE(metric.name.starts_with("zeus_") || metric.name.starts_with("zeusd_"));
    EXPECT_FALSE(metric.help.empty()) << metric.name;
    EXPECT_FALSE(metric.points.empty()) << metric.name;
  }
}

}  // namespace
}  // namespace zeus::report
