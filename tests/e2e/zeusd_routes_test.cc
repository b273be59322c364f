// What upstream's clients and tests ask of a daemon, route by route (sections 3 to 8 and 19 of the
// wire, and the exchanges of its appendix A).

#include <gtest/gtest.h>

#include "support/daemon.h"

namespace zeus::test {
namespace {

constexpr const char* kText = "text/plain; charset=utf-8";
constexpr const char* kJson = "application/json";

struct ZeusdRoutes : testing::Test {
  Simulated sim{four_gpus_and_a_cpu()};
  Daemon daemon{sim};

  void expect_text(const std::string& line, const std::string& part) const {
    const Answer a = Wire(daemon.socket()).ask(line);
    EXPECT_EQ(a.status, 400) << line << a.body;
    EXPECT_EQ(a.header("content-type"), kText) << line;
    EXPECT_NE(a.body.find(part), std::string::npos) << line << ": " << a.body;
  }
  void expect_error(const std::string& line, int status = 400) const {
    const Answer a = Wire(daemon.socket()).ask(line);
    EXPECT_EQ(a.status, status) << line << a.body;
    EXPECT_EQ(a.header("content-type"), kJson) << line;
    EXPECT_FALSE(a.error().empty()) << line << a.body;
  }
  Answer write(const std::string& what) const { return daemon.post("/gpu/" + what); }
  sim::DeviceState& state(std::size_t gpu) { return sim.session().machine().state().device(gpu); }
  static std::uint64_t lock(std::uint64_t low, std::uint64_t high) { return low << 32 | high; }
};

TEST_F(ZeusdRoutes, DiscoverTellsDevicesGroupsAndNoVendor) {
  const Answer a = daemon.get("/discover?whatever=1");
  const Json j = a.json();

  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(a.header("content-type"), kJson);
  ASSERT_EQ(j["gpus"].size(), 4U);
  for (unsigned i = 0; i < 4; ++i) {
    const Json& g = j["gpus"][i];
    EXPECT_EQ(g["id"], i);
    EXPECT_EQ(g["name"], "Four");
    EXPECT_EQ(g["pci_address"], "0000:" + std::to_string(i) + "7:00.0");
    EXPECT_EQ(g["cumulative_energy_available"], true);
    EXPECT_FALSE(g.contains("vendor"));
  }
  EXPECT_EQ(j["cpus"], Json::parse(R"([{"id":0,"dram_available":true}])"));
  EXPECT_EQ(j["enabled_api_groups"], Json::parse(R"(["gpu-control","gpu-read","cpu-read"])"));
  EXPECT_EQ(j["auth_required"], false);
  // What clients of version 0.15 read.
  EXPECT_EQ(j["gpu_ids"], Json::parse("[0,1,2,3]"));
  EXPECT_EQ(j["cpu_ids"], Json::parse("[0]"));
  EXPECT_EQ(j["dram_available"], Json::parse("[true]"));
}

TEST_F(ZeusdRoutes, TimeIsThatOfTheWallClock) {
  const auto now = [] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const auto before = now();
  const Json j = daemon.get("/time").json();
  EXPECT_GE(j["timestamp_ms"], before);
  EXPECT_LE(j["timestamp_ms"], now());
  EXPECT_EQ(j.size(), 1U);
}

TEST_F(ZeusdRoutes, ReadsOfGpusAreMapsByIdToTheByte) {
  sim.value("energy", 500000);

  EXPECT_EQ(daemon.get("/gpu/get_cumulative_energy?gpu_ids=1").body,
            R"({"1":{"energy_mj":500000}})");
  EXPECT_EQ(daemon.get("/gpu/get_cumulative_energy").body,
            R"({"0":{"energy_mj":500000},"1":{"energy_mj":500000},)"
            R"("2":{"energy_mj":500000},"3":{"energy_mj":500000}})");
  EXPECT_EQ(daemon.get("/gpu/get_power_limit?gpu_ids=3").body,
            R"({"3":{"power_limit_mw":300000}})");
  EXPECT_EQ(daemon.get("/gpu/get_power_limit").json().size(), 4U);
  EXPECT_EQ(daemon.get("/gpu/get_power_limit_constraints?gpu_ids=0,1").body,
            R"({"0":{"min_power_limit_mw":100000,"max_power_limit_mw":300000},)"
            R"("1":{"min_power_limit_mw":100000,"max_power_limit_mw":300000}})");
  EXPECT_EQ(daemon.get("/gpu/get_persistence_mode?gpu_ids=0,1").body,
            R"({"0":{"enabled":true},"1":{"enabled":true}})");
  EXPECT_EQ(daemon.get("/gpu/get_power_limit").header("content-type"), kJson);
}

TEST_F(ZeusdRoutes, PowerCarriesATimeAndTheGpusThatWereAskedFor) {
  const auto ids = [this](const std::string& query) {
    const Json j = daemon.get("/gpu/get_power" + query).json();
    EXPECT_TRUE(j["timestamp_ms"].is_number_unsigned()) << j;
    EXPECT_EQ(j.size(), 2U) << j;
    std::string text;
    for (const auto& [id, mw] : j["power_mw"].items()) {
      EXPECT_EQ(mw, 150000);
      text += id;
    }
    return text;
  };
  EXPECT_EQ(ids(""), "0123");
  EXPECT_EQ(ids("?gpu_ids=0,2"), "02");
  EXPECT_EQ(ids("?gpu_ids=2%2C0%2C2"), "02");
  EXPECT_EQ(ids("?gpu_ids=+3+%2C%201"), "13");
  EXPECT_TRUE(daemon.get("/gpu/get_power?gpu_ids=2,0")
                  .body.ends_with(R"("power_mw":{"0":150000,"2":150000}})"));
}

// The bound is that of section 19.1: reads must not wait for a change of the value.
TEST_F(ZeusdRoutes, TenReadsOfAConstantPowerTakeLessThanThreeSeconds) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(daemon.get("/gpu/get_power").status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
}

TEST_F(ZeusdRoutes, ListsThatAreNoneAreRefusedAsJson) {
  for (const char* list : {"", "%20", ",", "0,,1", "0,", "0x1", "-1", "1.5", "9", "4294967296"}) {
    expect_error(std::string("GET /gpu/get_power?gpu_ids=") + list);
    expect_error(std::string("GET /gpu/stream_power?gpu_ids=") + list);
  }
  for (const char* route : {"get_power_limit", "get_power_limit_constraints",
                            "get_persistence_mode", "get_cumulative_energy"}) {
    expect_error(std::string("GET /gpu/") + route + "?gpu_ids=99");
  }
  expect_error("POST /gpu/set_power_limit?gpu_ids=0,,1&power_limit_mw=200000&block=true");
  expect_error("POST /gpu/set_power_limit?gpu_ids=&power_limit_mw=200000&block=true");
}

TEST_F(ZeusdRoutes, AStreamOfAGpuThatIsNotThereNamesThoseThatAre) {
  const Answer a = daemon.get("/gpu/stream_power?gpu_ids=9");
  EXPECT_EQ(a.status, 400);
  EXPECT_NE(a.error().find("[9]"), std::string::npos) << a.body;
  EXPECT_NE(a.error().find("[0, 1, 2, 3]"), std::string::npos) << a.body;
}

TEST_F(ZeusdRoutes, QueriesThatCannotBeReadAreRefusedAsTextThatSaysWhy) {
  const std::string head = "Query deserialize error: ";
  expect_text("GET /gpu/get_power?gpus=0", head);
  expect_text("GET /gpu/get_power?gpus=0", "unknown field");
  expect_text("GET /gpu/get_power?gpu_ids=0&gpu_ids=1", "duplicate field");
  expect_text("GET /gpu/get_power?cpu_ids=0", "unknown field");
  expect_text("GET /cpu/get_power?gpu_ids=0", "unknown field");
  const std::string limit = "POST /gpu/set_power_limit?gpu_ids=0";
  expect_text(limit + "&power_limit_mw=200000", "missing field");
  expect_text(limit + "&power_limit=200000&block=true", "field");
  expect_text(limit + "&power_limit_mw=-1&block=true", "invalid");
  expect_text(limit + "&power_limit_mw=abc&block=true", "invalid");
  expect_text(limit + "&power_limit_mw=4294967296&block=true", head);
  expect_text(limit + "&power_limit_mw=200000&block=1", "not `true` or `false`");
  expect_text(limit + "&power_limit_mw=200000&block=True", "not `true` or `false`");
  expect_text("POST /gpu/set_power_limit?power_limit_mw=200000&block=true", "missing field");
  expect_text("POST /gpu/set_persistence_mode?gpu_ids=0&enable=true&block=true", "unknown field");
  expect_text("POST /gpu/set_persistence_mode?gpu_ids=0&enabled=1&block=true",
              "not `true` or `false`");
  for (const char* clock : {"gpu", "mem"}) {
    const std::string set = std::string("POST /gpu/set_") + clock + "_locked_clocks?gpu_ids=0";
    expect_text(set + "&min_clock=300&max_clock_mhz=900&block=true", "unknown field");
    expect_text(set + "&max_clock_mhz=900&block=true", "missing field");
    expect_text(set + "&min_clock_mhz=abc&max_clock_mhz=900&block=true", "invalid");
    const std::string reset = std::string("POST /gpu/reset_") + clock + "_locked_clocks?gpu_ids=0";
    expect_text(reset + "&block=true&clock=1", "unknown field");
    expect_text(reset, "missing field");
  }
}

TEST_F(ZeusdRoutes, AWriteToAGpuThatIsNotThereIsRefusedAsTextAndChangesNothing) {
  for (const std::string block : {"true", "false"}) {
    for (const std::string what :
         {"set_power_limit?power_limit_mw=200000&", "set_persistence_mode?enabled=false&",
          "set_gpu_locked_clocks?min_clock_mhz=300&max_clock_mhz=900&",
          "set_mem_locked_clocks?min_clock_mhz=2619&max_clock_mhz=2619&",
          "reset_gpu_locked_clocks?", "reset_mem_locked_clocks?", "reset_locked_clocks?"}) {
      expect_text("POST /gpu/" + what + "gpu_ids=0,5&block=" + block, "5");
    }
  }
  EXPECT_EQ(limit_w(sim), 300);
  EXPECT_TRUE(state(0).persistence);
}

TEST_F(ZeusdRoutes, AWriteThatWorkedIsAnsweredWithNothing) {
  const Answer a = daemon.set_limit("0,1", 200000);

  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(a.header("content-length"), "0");
  EXPECT_EQ(a.head.find("content-type"), std::string::npos);
  EXPECT_EQ(limit_w(sim, 0), 200);
  EXPECT_EQ(limit_w(sim, 1), 200);
  EXPECT_EQ(limit_w(sim, 2), 300);
}

TEST_F(ZeusdRoutes, AWrongMethodAndAnUnknownPathAreNotFoundWithoutAWord) {
  for (const char* line :
       {"GET /gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true",
        "POST /gpu/get_power", "POST /discover", "OPTIONS /gpu/get_power", "PUT /time",
        "GET /gpu/get_nothing", "GET /nothing", "GET /", "GET /discover/", "GET /Gpu/get_power"}) {
    const Answer a = Wire(daemon.socket()).ask(line);
    EXPECT_EQ(a.status, 404) << line;
    EXPECT_EQ(a.body, "") << line;
  }
  EXPECT_EQ(limit_w(sim), 300);
}

TEST_F(ZeusdRoutes, PersistenceIsSetByExactlyOneCallOfTheDriver) {
  const auto before = sim.calls("set_persistence");
  EXPECT_EQ(write("set_persistence_mode?gpu_ids=0&enabled=false&block=true").status, 200);
  EXPECT_EQ(sim.calls("set_persistence"), before + 1);
  EXPECT_FALSE(state(0).persistence);
  EXPECT_EQ(daemon.get("/gpu/get_persistence_mode?gpu_ids=0").body, R"({"0":{"enabled":false}})");
  EXPECT_EQ(write("set_persistence_mode?gpu_ids=0&enabled=true&block=true").status, 200);
  EXPECT_TRUE(state(0).persistence);
}

TEST_F(ZeusdRoutes, RequestsInTurnReachTheirGpusInOrder) {
  for (unsigned i = 0; i < 10; ++i) {
    EXPECT_EQ(daemon.set_limit(std::to_string(i % 4), 200000 + 1000 * i).status, 200);
    EXPECT_EQ(limit_w(sim, i % 4), 200 + i);
  }
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(limit_w(sim, i), i < 2 ? 208 + i : 204 + i);
}

TEST_F(ZeusdRoutes, APowerLimitOutOfRangeIsInvalidAndTheRangeIsTold) {
  for (const unsigned mw : {99000U, 330000U, 0U, 4294967295U}) {
    const Answer a = daemon.set_limit("1", mw);
    EXPECT_EQ(a.status, 400);
    EXPECT_NE(a.error("1").find("Invalid request"), std::string::npos) << a.body;
    EXPECT_NE(a.error("1").find("100000-300000 mW"), std::string::npos) << a.body;
  }
  EXPECT_EQ(limit_w(sim, 1), 300);
}

TEST_F(ZeusdRoutes, AWriteThatDoesNotWaitIsAnsweredBeforeItFails) {
  const Answer a = write("set_power_limit?gpu_ids=0&power_limit_mw=10000&block=false");
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(a.body, "");
  EXPECT_EQ(daemon.set_limit("1", 200000).status, 200);
  EXPECT_EQ(limit_w(sim, 0), 300);
}

TEST_F(ZeusdRoutes, ClocksAreLockedAndResetOnTheirGpuAlone) {
  for (unsigned i = 0; i < 4; ++i) {
    const std::string id = std::to_string(i), min = std::to_string(300 + 15 * i);
    EXPECT_EQ(write("set_gpu_locked_clocks?gpu_ids=" + id + "&min_clock_mhz=" + min +
                    "&max_clock_mhz=1980&block=true")
                  .status,
              200);
    EXPECT_EQ(write("set_mem_locked_clocks?gpu_ids=" + id +
                    "&min_clock_mhz=2619&max_clock_mhz=2619&block=true")
                  .status,
              200);
  }
  EXPECT_EQ(write("reset_gpu_locked_clocks?gpu_ids=2&block=true").status, 200);
  EXPECT_EQ(write("reset_mem_locked_clocks?gpu_ids=1&block=true").status, 200);

  for (unsigned i = 0; i < 4; ++i) {
    EXPECT_EQ(state(i).sm_lock, i == 2 ? 0 : lock(300 + 15 * i, 1980)) << i;
    EXPECT_EQ(state(i).memory_lock, i == 1 ? 0 : lock(2619, 2619)) << i;
  }
  for (const char* bad :
       {"&min_clock_mhz=900&max_clock_mhz=300", "&min_clock_mhz=300&max_clock_mhz=9000",
        "&min_clock_mhz=0&max_clock_mhz=300"}) {
    const Answer a = write(std::string("set_gpu_locked_clocks?gpu_ids=3&block=true") + bad);
    EXPECT_EQ(a.status, 400) << bad;
    EXPECT_NE(a.error("3").find("210-1980 MHz"), std::string::npos) << a.body;
  }
  EXPECT_EQ(state(3).sm_lock, lock(345, 1980));
}

TEST_F(ZeusdRoutes, ResetOfLockedClocksResetsBothDomainsOnce) {
  (void)write("set_gpu_locked_clocks?gpu_ids=0&min_clock_mhz=300&max_clock_mhz=900&block=true");
  (void)write("set_mem_locked_clocks?gpu_ids=0&min_clock_mhz=2619&max_clock_mhz=2619&block=true");
  const auto sm = sim.calls("nvmlDeviceResetGpuLockedClocks"),
             memory = sim.calls("nvmlDeviceResetMemoryLockedClocks");

  EXPECT_EQ(write("reset_locked_clocks?gpu_ids=0&block=true").status, 200);

  EXPECT_EQ(sim.calls("nvmlDeviceResetGpuLockedClocks"), sm + 1);
  EXPECT_EQ(sim.calls("nvmlDeviceResetMemoryLockedClocks"), memory + 1);
  EXPECT_EQ(state(0).sm_lock, 0U);
  EXPECT_EQ(state(0).memory_lock, 0U);
}

TEST_F(ZeusdRoutes, ResetOfLockedClocksTriesTheSecondDomainWhereTheFirstFails) {
  (void)write("set_mem_locked_clocks?gpu_ids=0&min_clock_mhz=2619&max_clock_mhz=2619&block=true");
  sim.fault("nvmlDeviceResetGpuLockedClocks", 999, 0);

  const Answer a = write("reset_locked_clocks?gpu_ids=0&block=true");

  EXPECT_EQ(a.status, 500);
  EXPECT_NE(a.error("0").find("nvmlDeviceResetGpuLockedClocks"), std::string::npos) << a.body;
  EXPECT_EQ(state(0).memory_lock, 0U);
}

TEST_F(ZeusdRoutes, CpuEnergyIsWhatTheCountersSayAndNullWhereNotAskedFor) {
  sim.session().set_counter(4, 5'000'000'000);
  sim.session().set_counter(5, 7'000'000'000);
  const Json base = daemon.get("/cpu/get_cumulative_energy?cpu=true&dram=true").json()["0"];
  sim.session().set_counter(4, 5'000'123'456);
  sim.session().set_counter(5, 7'000'078'901);
  const std::uint64_t cpu = base["cpu_energy_uj"].get<std::uint64_t>() + 123456,
                      dram = base["dram_energy_uj"].get<std::uint64_t>() + 78901;

  const auto get = [this](const std::string& query) {
    return daemon.get("/cpu/get_cumulative_energy?" + query).body;
  };
  EXPECT_EQ(get("cpu=true&dram=true"), "{\"0\":{\"cpu_energy_uj\":" + std::to_string(cpu) +
                                           ",\"dram_energy_uj\":" + std::to_string(dram) + "}}");
  EXPECT_EQ(get("cpu=true&dram=false&cpu_ids=0"),
            "{\"0\":{\"cpu_energy_uj\":" + std::to_string(cpu) + ",\"dram_energy_uj\":null}}");
  EXPECT_EQ(get("dram=true&cpu=false"),
            "{\"0\":{\"cpu_energy_uj\":null,\"dram_energy_uj\":" + std::to_string(dram) + "}}");
  EXPECT_EQ(get("cpu=false&dram=false"), R"({"0":{"cpu_energy_uj":null,"dram_energy_uj":null}})");
}

TEST_F(ZeusdRoutes, CpuEnergyRefusesWhatItCannotRead) {
  const std::string route = "GET /cpu/get_cumulative_energy?";
  expect_text(route + "cpu=true", "missing field");
  expect_text(route + "dram=true", "missing field");
  expect_text(route + "cpu=yes&dram=true", "not `true` or `false`");
  expect_text(route + "cpu=true&drum=true", "unknown field");
  expect_text(route + "cpu=true&dram=true&gpu_ids=0", "unknown field");
  expect_error(route + "cpu=true&dram=true&cpu_ids=1");
  expect_error(route + "cpu=true&dram=true&cpu_ids=");
  expect_error("GET /cpu/get_power?cpu_ids=5");
  const Answer a = daemon.get("/cpu/stream_power?cpu_ids=5");
  EXPECT_EQ(a.status, 400);
  EXPECT_NE(a.error().find("[5]"), std::string::npos) << a.body;
  EXPECT_NE(a.error().find("[0]"), std::string::npos) << a.body;
}

TEST_F(ZeusdRoutes, CpuPowerIsThatOfThePackageAndOfItsDram) {
  const Json j = daemon.get("/cpu/get_power").json();
  EXPECT_GT(j["timestamp_ms"], 0);
  ASSERT_TRUE(j["power_mw"]["0"].is_object()) << j;
  // 60 W and 10 W, over a tenth of a second of counters that move every millisecond.
  EXPECT_NEAR(j["power_mw"]["0"]["cpu_mw"].get<double>(), 60000, 6000);
  EXPECT_NEAR(j["power_mw"]["0"]["dram_mw"].get<double>(), 10000, 1000);
}

TEST_F(ZeusdRoutes, ErrorsOfDevicesAreAMapWithTheWorstStatusAndTheOthersAreChanged) {
  sim.fault("set_limit", 4, 0);  // No permission.
  sim.fault("set_limit", 2, 1);  // Invalid argument.
  const Answer two = daemon.set_limit("0,1,2", 200000);
  EXPECT_EQ(two.status, 403) << two.body;
  EXPECT_EQ(two.header("content-type"), kJson);
  EXPECT_EQ(two.json()["errors"].size(), 2U) << two.body;
  EXPECT_FALSE(two.error("0").empty());
  EXPECT_FALSE(two.error("1").empty());
  EXPECT_LT(two.body.find("\"0\""), two.body.find("\"1\""));
  EXPECT_EQ(limit_w(sim, 2), 200);

  sim.fault("set_limit", 15, 3);  // GPU is lost.
  const Answer all = daemon.set_limit("0,1,2,3", 210000);
  EXPECT_EQ(all.status, 500) << all.body;
  EXPECT_EQ(all.json()["errors"].size(), 3U) << all.body;
  EXPECT_EQ(limit_w(sim, 2), 210);
}

TEST_F(ZeusdRoutes, ErrorsOfTheDriverHaveTheStatusOfTheirCause) {
  const std::vector<std::pair<int, int>> codes = {{2, 400},  {3, 400},  {4, 403},
                                                  {15, 500}, {17, 500}, {999, 500}};
  for (const auto& [code, status] : codes) {
    const auto fault = sim.fault("set_persistence", code, 1);
    const Answer a = write("set_persistence_mode?gpu_ids=1&enabled=true&block=true");
    EXPECT_EQ(a.status, status) << code << a.body;
    EXPECT_FALSE(a.error("1").empty()) << a.body;
    sim.remove(fault);
  }
}

TEST_F(ZeusdRoutes, OneGpuThatFailsFailsTheReadUnlessAPartIsAskedFor) {
  sim.fault("all", 15, 2);
  const Answer whole = daemon.get("/gpu/get_power");
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.json()["errors"].size(), 1U) << whole.body;
  EXPECT_FALSE(whole.error("2").empty());

  const Answer part = daemon.get("/gpu/get_power?partial=true");
  EXPECT_EQ(part.status, 200);
  EXPECT_EQ(part.json()["power_mw"].size(), 3U) << part.body;
  EXPECT_FALSE(part.error("2").empty()) << part.body;
  const Answer energy = daemon.get("/gpu/get_cumulative_energy?partial=true&gpu_ids=1,2");
  EXPECT_TRUE(energy.json()["1"]["energy_mj"].is_number()) << energy.body;
  EXPECT_FALSE(energy.error("2").empty()) << energy.body;
  EXPECT_EQ(daemon.get("/gpu/get_power?gpu_ids=2&partial=true").json()["power_mw"], Json::object());
  EXPECT_EQ(daemon.get("/gpu/get_power?gpu_ids=0,1,3").status, 200);
}

TEST_F(ZeusdRoutes, AnswersAndRefusalsNameTheVersionOfTheWire) {
  EXPECT_EQ(daemon.get("/time").header("zeus-protocol"), "1");
  EXPECT_EQ(daemon.get("/nothing").header("zeus-protocol"), "1");
  EXPECT_EQ(daemon.get("/time", "Zeus-Protocol: 1\r\n").status, 200);
  const Answer other = daemon.get("/time", "Zeus-Protocol: 7\r\n");
  EXPECT_EQ(other.status, 400);
  EXPECT_NE(other.error().find("version 1 of"), std::string::npos) << other.body;
  EXPECT_NE(other.error().find("version 7"), std::string::npos) << other.body;
}

TEST(ZeusdEmpty, AMachineWithoutDevicesIsServedWithEmptyMaps) {
  Simulated sim(
      "[nvml]\n[[zone]]\npath = \"intel-rapl:0\"\nname = \"psys\"\npower = { watts = 9 }\n");
  const Daemon daemon(sim);
  EXPECT_EQ(daemon.get("/gpu/get_cumulative_energy").body, "{}");
  EXPECT_EQ(daemon.get("/gpu/get_power").json()["power_mw"], Json::object());
  EXPECT_EQ(daemon.get("/cpu/get_cumulative_energy?cpu=true&dram=true").body, "{}");
  EXPECT_EQ(daemon.get("/discover").json()["gpus"], Json::array());
  EXPECT_EQ(daemon.get("/discover").json()["cpus"], Json::array());
  EXPECT_EQ(daemon.get("/gpu/get_power?gpu_ids=0").status, 400);
  Wire silent = daemon.stream("/gpu/stream_power");
  EXPECT_EQ(silent.chunk(100ms), "");
}

}  // namespace
}  // namespace zeus::test
