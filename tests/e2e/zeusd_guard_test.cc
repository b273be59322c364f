// What the power of a processor would tell to those who may not read its counters (CVE-2020-8694).

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>

#include "support/daemon.h"

namespace zeus::test {
namespace {

std::string processor(const std::string& mode) {
  return "[[zone]]\npath = \"intel-rapl:0\"\nname = \"package-0\"\npower = { watts = 60 }\nmode = "
         "\"" +
         mode + "\"\n";
}
/// How many different values somebody sees who asks for a second without a pause.
std::size_t values_in_a_second(const std::string& where) {
  Wire wire(where);
  std::set<std::string> seen;
  const auto end = std::chrono::steady_clock::now() + 1s;
  while (std::chrono::steady_clock::now() < end) {
    seen.insert(wire.ask("GET /cpu/get_cumulative_energy?cpu=true&dram=false").body);
  }
  return seen.size();
}
/// How many events of a stream come in a second.
std::size_t events_in_a_second(const std::string& where) {
  Wire wire(where);
  wire.request("GET /cpu/stream_power");
  (void)wire.answer();
  std::int64_t first = 0, last = 0;
  std::size_t n = 0;
  while (last < first + 1000) {
    const std::string text = wire.chunk();
    if (!text.starts_with("data: ")) break;
    last = Json::parse(text.substr(6))["timestamp_ms"];
    if (n++ == 0) first = last;
  }
  return n;
}

// CVE-2020-8694: what the system itself closes is told to others at most ten times a second. At
// both ends of a second there may be one more.
TEST(ZeusdGuard, OfAClosedCounterOthersThanRootGetTenValuesASecond) {
  Simulated sim(processor("0400"));
  const Daemon daemon(sim, {"--cpu-power-poll-hz", "200"});
  EXPECT_LE(values_in_a_second(daemon.tcp()), 11U);
  EXPECT_LE(events_in_a_second(daemon.tcp()), 12U);
  if (::geteuid() != 0) return;
  EXPECT_GT(values_in_a_second(daemon.socket()), 15U);
  EXPECT_GT(events_in_a_second(daemon.socket()), 15U);
}

TEST(ZeusdGuard, WhoSubscribesAgainAndAgainGetsNoMore) {
  Simulated sim(processor("0400"));
  const Daemon daemon(sim, {"--cpu-power-poll-hz", "1000"});
  std::atomic<bool> over{false};
  std::thread crowd([&] {
    std::vector<Wire> wires;
    while (!over && wires.size() < 400) {
      wires.emplace_back(daemon.tcp());
      wires.back().request("GET /cpu/stream_power");
      std::this_thread::sleep_for(4ms);
    }
  });
  EXPECT_LE(events_in_a_second(daemon.tcp()), 12U);
  over = true;
  crowd.join();
}

TEST(ZeusdGuard, OfACounterThatEverybodyMayReadEverybodyGetsEveryValue) {
  Simulated sim(processor("0444"));
  const Daemon daemon(sim, {"--cpu-power-poll-hz", "200"});
  EXPECT_GT(values_in_a_second(daemon.tcp()), 15U);
  EXPECT_GT(events_in_a_second(daemon.tcp()), 15U);
}

// A route and a stream are one budget: what the stream says is the power between two of the
// readings that the route told, and of no others.
TEST(ZeusdGuard, TheRouteAndTheStreamTellTheSameReadings) {
  Simulated sim(
      "[[zone]]\npath = \"intel-rapl:0\"\nname = \"package-0\"\nmode = \"0400\"\npower = { kind = "
      "\"levels\", repeat = true, levels = [[0.013, 20], [0.017, 90], [0.011, 250]] }\n");
  const Daemon daemon(sim, {"--cpu-power-poll-hz", "200"});
  Wire stream(daemon.tcp()), route(daemon.tcp());
  stream.request("GET /cpu/stream_power");
  (void)stream.answer();
  std::vector<double> told_j;
  std::vector<std::pair<double, double>> events;  // Seconds, watts.
  const auto ask = [&] {
    const Json energy = route.ask("GET /cpu/get_cumulative_energy?cpu=true&dram=false").json();
    const double joules = energy["0"]["cpu_energy_uj"].get<double>() * 1e-6;
    if (told_j.empty() || told_j.back() != joules) told_j.push_back(joules);
  };
  while (events.size() < 12) {
    ask();
    const std::string text = stream.chunk(1ms);
    if (!text.starts_with("data: ")) continue;
    const Json event = Json::parse(text.substr(6));
    events.emplace_back(event["timestamp_ms"].get<double>() * 1e-3,
                        event["cpu_mw"].get<double>() * 1e-3);
  }
  ask();  // The stream may have been told the last one first.
  // Times are in milliseconds, of which one may be 0.25 J.
  const auto all_told_from = [&](double joules) {
    for (std::size_t i = 1; i < events.size(); ++i) {
      joules += events[i].second * (events[i].first - events[i - 1].first);
      const auto near = std::min_element(told_j.begin(), told_j.end(), [&](double a, double b) {
        return std::abs(a - joules) < std::abs(b - joules);
      });
      if (std::abs(*near - joules) > 0.5) return false;
      joules = *near;
    }
    return true;
  };
  EXPECT_TRUE(std::any_of(told_j.begin(), told_j.end(), all_told_from));
  EXPECT_LE(static_cast<double>(told_j.size()),
            (events.back().first - events.front().first) * 10 + 5);
}

TEST(ZeusdGuard, APowerOfAClosedCounterIsStillRight) {
  Simulated sim(processor("0400"));
  const Daemon daemon(sim, {"--cpu-power-poll-hz", "1000"});
  Wire wire(daemon.tcp());
  for (int i = 0; i < 5; ++i) {
    const Json j = wire.ask("GET /cpu/get_power").json();
    EXPECT_NEAR(j["power_mw"]["0"]["cpu_mw"].get<double>(), 60000, 6000) << j;
  }
}

}  // namespace
}  // namespace zeus::test
