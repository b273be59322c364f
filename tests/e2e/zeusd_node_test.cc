// What a node is to its daemon: devices that are missing, lost or odd, and the page of metrics.

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "support/daemon.h"

namespace zeus::test {
namespace {

std::string zone(const std::string& path, const std::string& name, double watts,
                 const std::string& more = {}) {
  return "[[zone]]\npath = \"" + path + "\"\nname = \"" + name +
         "\"\npower = { watts = " + std::to_string(watts) + " }\n" + more + "\n";
}
std::string gpu(const std::string& more) {
  return "[[gpu]]\nmodel = \"One\"\npower = { kind = \"constant\", watts = 100 }\n" + more + "\n";
}
const std::string kEnergy = "energy = { update = \"1ms\" }\n",
                  kPower = "power_instant = { kind = \"instant\", update = \"1ms\" }\n",
                  kLimit = "limit = { min = 50, max = 200, default = 150 }\n";

sim::Ns monotonic_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

/// One scrape.
class Page {
 public:
  explicit Page(const Daemon& daemon) : answer_(daemon.get("/metrics")) {
    EXPECT_EQ(answer_.status, 200);
    EXPECT_TRUE(answer_.header("content-type").starts_with("text/plain; version=0.0.4"));
  }
  /// Lines of a metric that hold all of these labels.
  std::vector<double> values(const std::string& name, const Words& labels = {}) const {
    std::vector<double> out;
    std::istringstream in(answer_.body);
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with(name + "{") && !line.starts_with(name + " ")) continue;
      if (std::all_of(labels.begin(), labels.end(),
                      [&](const std::string& l) { return line.find(l) != std::string::npos; })) {
        out.push_back(std::stod(line.substr(line.rfind(' '))));
      }
    }
    return out;
  }
  std::optional<double> value(const std::string& name, const Words& labels = {}) const {
    const auto all = values(name, labels);
    EXPECT_LE(all.size(), 1U) << name;
    return all.empty() ? std::nullopt : std::optional(all.front());
  }
  const std::string& text() const { return answer_.body; }

 private:
  Answer answer_;
};
const std::string kJoules = "zeus_energy_joules_total";

// field failure 3
TEST(ZeusdNode, KeepsTheNumbersOfTheZonesAndTakesThePlatformForNoProcessor) {
  Simulated sim(zone("intel-rapl:0", "package-0", 60) + zone("intel-rapl:1", "psys", 200) +
                zone("intel-rapl:2", "package-1", 50) + zone("intel-rapl:2:0", "dram", 10));
  const Daemon daemon(sim);
  EXPECT_EQ(daemon.get("/discover").json()["cpus"],
            Json::parse(R"([{"id":0,"dram_available":false},{"id":2,"dram_available":true}])"));
  const Json all = daemon.get("/cpu/get_cumulative_energy?cpu=true&dram=true").json();
  EXPECT_EQ(all.size(), 2U);
  EXPECT_TRUE(all["0"]["dram_energy_uj"].is_null());
  EXPECT_TRUE(all["2"]["dram_energy_uj"].is_number_unsigned()) << all;
  EXPECT_NEAR(
      daemon.get("/cpu/get_power?cpu_ids=2").json()["power_mw"]["2"]["cpu_mw"].get<double>(), 50000,
      5000);
  EXPECT_EQ(daemon.get("/cpu/get_power?cpu_ids=1").status, 400);
  Wire wire = daemon.stream("/cpu/stream_power?cpu_ids=2");
  EXPECT_NE(wire.chunk().find("\"cpu_id\":2,"), std::string::npos);
}

// field failure 45
TEST(ZeusdNode, CountsTheWrapsOfACounterThatNobodyAsksFor) {
  Simulated sim(zone("intel-rapl:0", "package-0", 60, "range_uj = 40_000_000"));  // 0.67 s.
  const Daemon daemon(sim);
  const auto energy = [&] {
    return daemon.get("/cpu/get_cumulative_energy?cpu=true&dram=false")
               .json()["0"]["cpu_energy_uj"]
               .get<double>() *
           1e-6;
  };
  const auto t0 = monotonic_ns();
  const double e0 = energy();
  std::this_thread::sleep_for(3s);  // More than four times around.
  const double e1 = energy();
  const double truth = sim.session().energy_j("intel-rapl:0", t0, monotonic_ns()).value();
  EXPECT_GT(truth, 160);
  EXPECT_NEAR(e1 - e0, truth, 0.03 * truth);
}

TEST(ZeusdNode, NumbersGpusAsTheDriverDoesWhateverItsEnvironmentHides) {
  Simulated sim(four_gpus_and_a_cpu());
  const Daemon daemon(
      sim, {},
      {.environment = {{"CUDA_VISIBLE_DEVICES", "2"}, {"CUDA_DEVICE_ORDER", "FASTEST_FIRST"}},
       .folder = {}});
  const Json gpus = daemon.get("/discover").json()["gpus"];
  ASSERT_EQ(gpus.size(), 4U);
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(gpus[i]["uuid"], sim.session().devices()[i].uuid);
}

TEST(ZeusdNode, ALostGpuDoesNotKeepTheDaemonFromServingTheOthers) {
  Simulated sim(four_gpus_and_a_cpu());
  const auto lost = sim.fault("all", 15, 1);
  const Daemon daemon(sim);
  const Json gpus = daemon.get("/discover").json()["gpus"];
  ASSERT_EQ(gpus.size(), 4U);
  EXPECT_EQ(gpus[1]["id"], 1);
  EXPECT_EQ(gpus[1]["cumulative_energy_available"], false);
  EXPECT_EQ(gpus[2]["cumulative_energy_available"], true);

  EXPECT_EQ(daemon.get("/gpu/get_power?gpu_ids=0,2,3").status, 200);
  for (const char* route : {"get_power", "get_cumulative_energy", "get_power_limit",
                            "get_power_limit_constraints", "get_persistence_mode"}) {
    const Answer a = daemon.get(std::string("/gpu/") + route);
    EXPECT_EQ(a.status, 500) << route;
    EXPECT_NE(a.error("1"), "") << a.body;
  }
  const Answer write = daemon.set_limit("1,2", 200000);
  EXPECT_EQ(write.status, 500) << write.body;
  EXPECT_NE(write.error("1").find("lost"), std::string::npos) << write.body;
  EXPECT_EQ(limit_w(sim, 2), 200);

  const Page page(daemon);
  EXPECT_EQ(page.value("zeus_up", {"kind=\"gpu\"", "index=\"1\""}), 0);
  EXPECT_EQ(page.value("zeus_up", {"kind=\"gpu\"", "index=\"0\""}), 1);
  EXPECT_EQ(page.values(kJoules, {"domain=\"gpu\""}).size(), 3U);
  sim.remove(lost);
}

// field failure 91, 92
TEST(ZeusdNode, AGpuThatIsLostLaterFailsAloneAndItsSeriesGoUntilItIsBack) {
  Simulated sim(four_gpus_and_a_cpu());
  const Daemon daemon(sim);
  const Words third = {"domain=\"gpu\"", "index=\"2\""};
  EXPECT_TRUE(Page(daemon).value(kJoules, third));
  for (const int code : {15, 999}) {
    const auto lost = sim.fault("all", code, 2);
    const Answer a = daemon.get("/gpu/get_power?gpu_ids=2");
    EXPECT_EQ(a.status, 500) << a.body;
    EXPECT_EQ(daemon.get("/gpu/get_power?gpu_ids=0,1,3").status, 200);
    EXPECT_EQ(daemon.set_limit("2", 200000).status, 500);
    const Page page(daemon);
    EXPECT_FALSE(page.value(kJoules, third));
    EXPECT_FALSE(page.value("zeus_power_watts", third));
    EXPECT_FALSE(page.value("zeus_power_limit_watts", {"index=\"2\""}));
    EXPECT_EQ(page.value("zeus_up", {"kind=\"gpu\"", "index=\"2\""}), 0);
    EXPECT_EQ(page.values(kJoules, {"domain=\"gpu\""}).size(), 3U);
    EXPECT_EQ(daemon.get("/healthz").status, 200) << "a restart would not bring it back";
    sim.remove(lost);
    EXPECT_TRUE(eventually([&] { return daemon.get("/gpu/get_power?gpu_ids=2").status == 200; }));
    EXPECT_EQ(Page(daemon).value("zeus_up", {"kind=\"gpu\"", "index=\"2\""}), 1);
  }
}

// field failure 107
TEST(ZeusdMetrics, CountThePollsThatASlowGpuCost) {
  Simulated sim(four_gpus_and_a_cpu());
  const Daemon daemon(sim, {"--gpu-power-poll-hz", "100"});
  EXPECT_EQ(Page(daemon).value("zeusd_samples_missed_total"), 0);
  const auto slow = sim.block("fields", 55ms, 0);
  const Wire wire = daemon.stream("/gpu/stream_power?gpu_ids=0");
  // A poll that takes 55 ms leaves out at least the five of the 10 ms, 20 ms ... 50 ms after it.
  EXPECT_TRUE(eventually([&] { return Page(daemon).value("zeusd_samples_missed_total") >= 5; }));
  sim.remove(slow);
}

TEST(ZeusdMetrics, CountTheScrapesThatWereNotWhole) {
  Simulated sim(four_gpus_and_a_cpu());
  const Daemon daemon(sim);
  EXPECT_EQ(Page(daemon).value("zeusd_scrape_errors_total"), 0);
  const auto lost = sim.fault("all", 15, 2);
  EXPECT_EQ(Page(daemon).value("zeusd_scrape_errors_total"), 1);
  EXPECT_EQ(Page(daemon).value("zeusd_scrape_errors_total"), 2);
  sim.remove(lost);
  EXPECT_TRUE(eventually([&] { return daemon.get("/gpu/get_power").status == 200; }));
  const double before = Page(daemon).value("zeusd_scrape_errors_total").value();
  EXPECT_EQ(Page(daemon).value("zeusd_scrape_errors_total"), before);
}

TEST(ZeusdMetrics, CountTheLeasesThatWerePutBackForClientsThatAreGone) {
  Simulated sim(four_gpus_and_a_cpu());
  const Daemon daemon(sim);
  const auto set = [&](const std::string& lease) { return daemon.set_limit("0,1", 200000, lease); };
  const std::string word = daemon.open_lease();
  EXPECT_EQ(set(word).status, 200);
  EXPECT_EQ(daemon.post("/lease/release?lease=" + word).status, 200);
  EXPECT_EQ(Page(daemon).value("zeusd_leases_restored_total"), 0) << "its client asked for it";

  EXPECT_EQ(set(daemon.open_lease("?ttl_s=1")).status, 200);
  EXPECT_TRUE(eventually([&] { return limit_w(sim, 0) == 300 && limit_w(sim, 1) == 300; }));
  EXPECT_TRUE(eventually([&] { return Page(daemon).value("zeusd_leases_restored_total") == 1; }));
}

// field failure 15
TEST(ZeusdMetrics, HaveNoSeriesForDomainsThatAreNotThere) {
  Simulated sim(zone("intel-rapl:0", "package-0", 60) + zone("intel-rapl:0:0", "dram", 10));
  const Daemon daemon(sim);
  const Page page(daemon);
  EXPECT_TRUE(page.value(kJoules, {"domain=\"package\""}));
  EXPECT_TRUE(page.value(kJoules, {"domain=\"dram\""}));
  EXPECT_EQ(page.values(kJoules).size(), 2U);
  for (const char* absent : {"core", "uncore", "psys", "gpu"}) {
    EXPECT_EQ(page.text().find(std::string("domain=\"") + absent), std::string::npos) << absent;
  }
}

// field failure 19
TEST(ZeusdMetrics, OfTwoSocketsThatWrapShowEachAndAddUp) {
  Simulated sim(zone("intel-rapl:0", "package-0", 60, "range_uj = 40_000_000") +
                zone("intel-rapl:1", "package-1", 90, "range_uj = 50_000_000"));
  const Daemon daemon(sim);
  const auto sockets = [&] {
    const Page page(daemon);
    return std::pair{page.value(kJoules, {"domain=\"package\"", "index=\"0\""}).value(),
                     page.value(kJoules, {"domain=\"package\"", "index=\"1\""}).value()};
  };
  const auto t0 = monotonic_ns();
  const auto before = sockets();
  std::this_thread::sleep_for(1500ms);
  const auto after = sockets();
  const auto t1 = monotonic_ns();
  const double first = sim.session().energy_j("intel-rapl:0", t0, t1).value(),
               second = sim.session().energy_j("intel-rapl:1", t0, t1).value();
  EXPECT_NEAR(after.first - before.first, first, 0.05 * first);
  EXPECT_NEAR(after.second - before.second, second, 0.05 * second);
}

// field failure 32
TEST(ZeusdMetrics, CountTheErrorsOfAZoneAndShowTheOthers) {
  Simulated sim(zone("intel-rapl:0", "package-0", 60) + zone("intel-rapl:0:0", "dram", 10) +
                zone("intel-rapl:1", "package-1", 50));
  const Daemon daemon(sim);
  sim::Fault f;
  f.target = sim::Fault::Target::zone;
  f.what = sim::Fault::What::error_number;
  f.device = 1;
  f.calls = sim::calls_named("read");
  f.code = 13;
  (void)sim.session().fault(f).value();

  (void)Page(daemon);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(150));  // Longer than one reading stands for all who ask.
  const Page page(daemon);
  EXPECT_EQ(page.values(kJoules, {"domain=\"package\""}).size(), 2U);
  EXPECT_FALSE(page.value(kJoules, {"domain=\"dram\""}));
  const auto errors = [&](const char* domain) {
    double sum = 0;
    for (const double n : page.values("zeus_reading_errors_total", {domain, "index=\"0\""}))
      sum += n;
    return sum;
  };
  EXPECT_GE(errors("domain=\"dram\""), 2);
  EXPECT_EQ(errors("domain=\"package\""), 0);
  EXPECT_EQ(page.value("zeus_up", {"device=\"package-0\""}), 1);
  // Who asks for the package alone is not refused for its DRAM.
  EXPECT_EQ(daemon.get("/cpu/get_cumulative_energy?cpu=true&dram=false").status, 200);
  const Answer both = daemon.get("/cpu/get_cumulative_energy?cpu=true&dram=true");
  EXPECT_GE(both.status, 403) << both.body;
  EXPECT_NE(both.error("0"), "");
  EXPECT_EQ(both.error("1"), "");
}

// field failure 53, 107, 114
TEST(ZeusdMetrics, JoulesAreTheCountersOwnAndNeverFallThoughItDoes) {
  Simulated sim("[nvml]\n" + gpu(kEnergy + kPower));
  const Daemon daemon(sim);
  const auto joules = [&] { return Page(daemon).value(kJoules, {"domain=\"gpu\""}).value(); };
  sim.session().set_counter(0, 20'000'000);
  const double begin = joules();
  sim.session().set_counter(0, 20'050'000);
  EXPECT_NEAR(joules() - begin, 50, 1e-6);
  sim.session().set_counter(0, 20'098'000);
  EXPECT_NEAR(joules() - begin, 98, 1e-6);
  sim.session().set_counter(0, 21'000);  // The driver was loaded anew.
  const double fallen = joules();
  EXPECT_GE(fallen - begin, 98 - 1e-6);
  sim.session().set_counter(0, 57'000);
  EXPECT_NEAR(joules() - fallen, 36, 1e-6);
  EXPECT_EQ(Page(daemon).value("zeus_energy_resets_total", {"domain=\"gpu\""}), 1);
}

// field failure 110, 111
TEST(ZeusdMetrics, OfAPartitionedBoardAreThoseOfTheBoardOnce) {
  Simulated sim("[nvml]\n" +
                gpu(kEnergy + kPower + "mig = [\"MIG-1\", \"MIG-2\", \"MIG-3\", \"MIG-4\"]"));
  const Daemon daemon(sim);
  const Page page(daemon);
  EXPECT_EQ(page.values("zeus_power_watts"), std::vector<double>{100});
  EXPECT_EQ(page.values(kJoules).size(), 1U);
  EXPECT_EQ(page.value("zeus_device_info", {"partitions=\"4\""}), 1);
}

// field failure 112
TEST(ZeusdMetrics, LeaveOutWhatNoGpuCanDrawAndKeepThePage) {
  Simulated sim("[nvml]\n" + gpu(kEnergy + kPower) + gpu(kEnergy + kPower));
  const Daemon daemon(sim);
  for (const unsigned long long blank : {2147483632ULL, 4294967295ULL, 2147483647ULL}) {
    const auto fault = sim.value("field:power", blank, 0);
    const Page page(daemon);
    EXPECT_FALSE(page.value("zeus_power_watts", {"index=\"0\""})) << blank;
    EXPECT_EQ(page.value("zeus_power_watts", {"index=\"1\""}), 100) << blank;
    sim.remove(fault);
  }
}

// field failure 113
TEST(ZeusdMetrics, TellNeverFromNotNow) {
  Simulated sim("[nvml]\n" + gpu(kEnergy + kPower) + gpu(kPower));
  const Daemon daemon(sim);
  sim.fault("energy", 999, 0);
  sim.fault("fields", 999, 0);
  const Page page(daemon);
  const std::string can = "zeus_sensor_supported", energy = "quantity=\"energy\"";
  EXPECT_EQ(page.value(can, {energy, "index=\"0\""}), 1);
  EXPECT_EQ(page.value(can, {energy, "index=\"1\""}), 0);
  EXPECT_EQ(page.values(kJoules).size(), 0U);
}

TEST(ZeusdMetrics, OfAGpuWithoutACounterHaveJoulesWhereItsPowerIsAlwaysPolled) {
  Simulated sim("[nvml]\n" + gpu(kPower));
  {
    const Daemon daemon(sim);
    EXPECT_FALSE(Page(daemon).value(kJoules));
    EXPECT_EQ(Page(daemon).value("zeus_power_watts"), 100);
    EXPECT_EQ(daemon.get("/gpu/get_cumulative_energy").status, 400);
  }
  const Daemon daemon(sim, {"--always-sample", "--gpu-power-poll-hz", "100"});
  const auto joules = [&] { return Page(daemon).value(kJoules, {"domain=\"gpu\""}).value(); };
  const auto polls = sim.calls("fields");
  EXPECT_TRUE(eventually([&] { return sim.calls("fields") > polls + 5; }));  // Nobody listens.

  // 100 W, then 40 W: the integral is that of the power, as far as ten milliseconds tell.
  const auto t0 = monotonic_ns();
  const double e0 = joules();
  std::this_thread::sleep_for(500ms);
  const double e1 = joules();
  const auto t1 = monotonic_ns();
  const double first = static_cast<double>(t1 - t0) * 1e-9 * 100;
  EXPECT_NEAR(e1 - e0, first, 0.1 * first);
  sim.value("field:power", 40'000, 0);
  (void)joules();
  const auto t2 = monotonic_ns();
  const double e2 = joules();
  std::this_thread::sleep_for(500ms);
  const double e3 = joules();
  const double second = static_cast<double>(monotonic_ns() - t2) * 1e-9 * 40;
  EXPECT_NEAR(e3 - e2, second, 0.1 * second);
  EXPECT_EQ(daemon.get("/gpu/get_cumulative_energy").status, 400);
}

TEST(ZeusdMetrics, CountRequestsByRouteAndNeverByWhatAClientSent) {
  Simulated sim("[nvml]\n" + gpu(kEnergy + kPower + kLimit));
  const Daemon daemon(sim);
  for (int i = 0; i < 3; ++i) (void)daemon.get("/gpu/get_power");
  (void)daemon.get("/gpu/get_power?gpu_ids=9");
  (void)daemon.get("/some/path\"of{mine");
  (void)daemon.get("/some/other");
  const Page page(daemon);
  const std::string name = "zeusd_http_requests_total";
  EXPECT_EQ(page.value(name, {"route=\"/gpu/get_power\"", "code=\"200\""}), 3);
  EXPECT_EQ(page.value(name, {"route=\"/gpu/get_power\"", "code=\"400\""}), 1);
  EXPECT_EQ(page.text().find("some"), std::string::npos);
}

}  // namespace
}  // namespace zeus::test
