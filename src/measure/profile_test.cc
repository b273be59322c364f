#include "zeus/profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/sensors.h"
#include "support/tree.h"
#include "zeus/monitor.h"

namespace zeus {
namespace {
using namespace std::chrono_literals;

struct Card {
  std::string model = "Card 7", arch = "ampere", compute = "8.6", driver = "550.54.15",
              id = "GPU-1";
};

DeviceInfo device(const Card& card) {
  DeviceInfo info;
  info.backend = "nvml";
  info.model = card.model;
  info.id = card.id;
  info.facts = {{"driver", card.driver}, {"architecture", card.arch}, {"compute", card.compute}};
  return info;
}

SensorInfo sensor(const std::string& id) {
  SensorInfo info;
  info.quantity = Quantity::power;
  info.profile.id = id;
  info.profile.update = 77ms;
  info.profile.power_max_w = 480;
  return info;
}

SensorProfile refined(const ProfileBook& book, const Card& card,
                      const std::string& field = "test:power") {
  return book.refine(device(card), sensor(field));
}

SensorProfile builtin(const Card& card, const std::string& field) {
  return refined(ProfileBook::builtin(), card, field);
}

ProfileBook book_of(const std::string& csv) {
  ProfileBook book;
  const auto added = book.add(csv, "mine.csv");
  EXPECT_TRUE(added) << added.error().detail;
  return book;
}

std::string complaint(const std::string& csv) {
  ProfileBook book;
  const auto added = book.add(csv, "mine.csv");
  return added ? "" : added.error().detail;
}

Environment variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> std::optional<std::string> {
    const auto it = values.find(name);
    return it == values.end() ? std::nullopt : std::optional(it->second);
  };
}

TEST(Profile, TakesTheMostSpecificRow) {
  const ProfileBook book = book_of(
      "uuid,model,arch,compute,field,update_ms\n"
      "GPU-1,,,,test:*,1\n"
      ",Card ?,,,test:*,2\n"
      ",,,8.6,test:*,3\n"
      ",,ampere,,test:*,4\n"
      ",,,,test:*,5\n");
  Card card;
  EXPECT_EQ(refined(book, card).update, 1ms);
  card.id = "GPU-2";
  EXPECT_EQ(refined(book, card).update, 2ms);
  card.model = "Other";
  EXPECT_EQ(refined(book, card).update, 3ms);
  card.compute = "8.0";
  EXPECT_EQ(refined(book, card).update, 4ms);
  card.arch = "volta";
  EXPECT_EQ(refined(book, card).update, 5ms);
  EXPECT_EQ(refined(book, card, "other:power").update, 77ms);
}

TEST(Profile, KeepsWhatTheBackendSaidWhereARowIsEmpty) {
  const SensorProfile p =
      refined(book_of("field,kind,window_ms,source\ntest:power,boxcar,25,me\n"), {});
  EXPECT_EQ(p.kind, SensorKind::boxcar);
  EXPECT_EQ(p.window, 25ms);
  EXPECT_EQ(p.update, 77ms);
  EXPECT_EQ(p.power_max_w, 480);
  EXPECT_EQ(p.id, "test:power");
  EXPECT_EQ(p.source, "me");
}

// A calibration that knows the period and the gain alone must not make the window unknown.
TEST(Profile, TakesFromTheNextRowWhatTheMoreSpecificOneDoesNotSay) {
  const SensorProfile p =
      refined(book_of("uuid,field,kind,update_ms,window_ms,gain,gain_u,gain_class,source\n"
                      ",test:power,boxcar,100,25,,0.05,family,all\n"
                      "GPU-1,test:power,,101.2,,0.954,0.01,unit,mine\n"),
              {});
  EXPECT_EQ(p.update, 101200us);
  EXPECT_EQ(p.window, 25ms);
  EXPECT_EQ(p.gain, 0.954);
  EXPECT_EQ(p.gain_u, 0.01);
  EXPECT_EQ(p.gain_class, GainClass::unit);
  EXPECT_EQ(p.source, "mine; all");
}

// A first-order sensor has no window: that of the family's boxcar is not its own.
TEST(Profile, TakesAShapeAndAGainAsAWhole) {
  const SensorProfile p =
      refined(book_of("model,field,kind,window_ms,tau_ms,gain,offset_w,gain_u,gain_class\n"
                      ",test:power,boxcar,25,,0.9,7,0.05,family\n"
                      "Card 7,test:power,exponential,,157,,,0.01,model\n"),
              {});
  EXPECT_EQ(p.kind, SensorKind::exponential);
  EXPECT_EQ(p.tau, 157ms);
  EXPECT_EQ(p.window, 0ms);
  EXPECT_EQ(p.gain, 1);
  EXPECT_EQ(p.offset_w, 0);
  EXPECT_EQ(p.gain_u, 0.01);
}

TEST(Profile, PrefersLaterFilesThenFewerDriversThenLaterRows) {
  ProfileBook book = book_of(
      "driver_min,driver_max,field,update_ms\n"
      "530,530,test:power,1\n"
      "500,,test:power,2\n"
      "500,600,test:power,3\n"
      ",,test:other,4\n"
      ",,test:other,5\n");
  Card card;
  EXPECT_EQ(refined(book, card).update, 3ms);
  card.driver = "530.30.02";
  EXPECT_EQ(refined(book, card).update, 1ms);
  card.driver = "610.1";
  EXPECT_EQ(refined(book, card).update, 2ms);
  EXPECT_EQ(refined(book, card, "test:other").update, 5ms);
  ASSERT_TRUE(book.add("field,update_ms\ntest:power,9\n", "later.csv"));
  EXPECT_EQ(refined(book, card).update, 9ms);
}

TEST(Profile, ComparesVersionsByTheirParts) {
  const ProfileBook book =
      book_of("driver_min,driver_max,field,update_ms\n525.105.2,525.116,test:power,1\n");
  Card card;
  for (const auto& [driver, inside] : std::map<std::string, bool>{{"525.105.17", true},
                                                                  {"525.116.04", true},
                                                                  {"525.105.1", false},
                                                                  {"525.105", false},
                                                                  {"525.117", false},
                                                                  {"1525.105.17", false},
                                                                  {"", false}}) {
    card.driver = driver;
    EXPECT_EQ(refined(book, card).update, inside ? 1ms : 77ms) << driver;
  }
}

TEST(Profile, SaysWhichLineOfAFileIsWrong) {
  const std::map<std::string, std::string> expected = {
      {"field,perod_ms\n", "mine.csv:1: there is no column \"perod_ms\""},
      {"field,field\n", "mine.csv:1: the column \"field\" is there twice"},
      {"# mine\n\nfield,update_ms\nx,fast\n", "mine.csv:4: update_ms is \"fast\""},
      {"field,update_ms\nx,0\n", "mine.csv:2: update_ms is \"0\""},
      {"field,coverage\nx,1.5\n", "mine.csv:2: coverage is \"1.5\""},
      {"field,kind\nx,box\n", "mine.csv:2: kind is \"box\""},
      {"field,kind\nx,unknown\n", "mine.csv:2: kind is \"unknown\""},
      {"field,gain_class\nx,mine\n", "mine.csv:2: gain_class is \"mine\""},
      {"field,gain\nx,0.9\n", "mine.csv:2: it has a gain but no gain_class"},
      {"field,driver_min\nx,R535\n", "mine.csv:2: driver_min is \"R535\""},
      {"field,update_ms\nx\n", "mine.csv:2: it has 1 cells"},
      {"field,update_ms\n,5\n", "mine.csv:2: it has no field"},
      {"field,source\nx,\"a\n", "mine.csv:2: its quotes do not match"},
      {"field,kind,update_ms,window_ms\nx,running,100,25\n", "mine.csv:2: a running mean"}};
  for (const auto& [csv, text] : expected) {
    EXPECT_TRUE(complaint(csv).starts_with(text)) << csv << complaint(csv);
  }
  EXPECT_EQ(complaint(""), "");
}

TEST(Profile, LoadsTheUsersTableAndHisCalibrations) {
  test::Tree home;
  home.write("config/zeus/profiles.csv", "field,update_ms,window_ms\ntest:power,1,1\n");
  home.write("state/zeus/calibrations.csv", "field,update_ms\ntest:power,2\n");
  const std::string root = home.root().string();
  const auto book = ProfileBook::load(
      variables({{"XDG_CONFIG_HOME", root + "/config"}, {"XDG_STATE_HOME", root + "/state"}}));
  ASSERT_TRUE(book) << book.error().detail;
  EXPECT_EQ(refined(*book, {}).update, 2ms);
  EXPECT_EQ(refined(*book, {}).window, 1ms);
  EXPECT_EQ(refined(*book, {}).source,
            root + "/state/zeus/calibrations.csv:2; " + root + "/config/zeus/profiles.csv:2");
}

TEST(Profile, LooksInTheHomeFolderWhereNothingElseIsSaid) {
  test::Tree home;
  home.write(".config/zeus/profiles.csv", "field,update_ms\ntest:power,1\n");
  const auto environment = variables({{"HOME", home.root().string()}, {"XDG_STATE_HOME", "state"}});
  EXPECT_EQ(refined(ProfileBook::load(environment).value(), {}).update, 1ms);
  EXPECT_EQ(ProfileBook::calibrations_path(environment),
            home.root().string() + "/.local/state/zeus/calibrations.csv");
  EXPECT_EQ(ProfileBook::calibrations_path(variables({})), "");
  EXPECT_TRUE(ProfileBook::load(variables({})));
}

TEST(Profile, ReadsTheTableThatIsNamedInsteadOfTheUsersOwn) {
  test::Tree home;
  home.write("config/zeus/profiles.csv", "field,update_ms\ntest:power,1\n");
  home.write("other.csv", "field,update_ms\ntest:power,2\n");
  const std::string root = home.root().string();
  const auto load = [&](const std::string& file) {
    return ProfileBook::load(
        variables({{"XDG_CONFIG_HOME", root + "/config"}, {"ZEUS_PROFILES", file}}));
  };
  EXPECT_EQ(refined(load(root + "/other.csv").value(), {}).update, 2ms);
  EXPECT_EQ(load(root + "/none.csv").error().code, Errc::absent);
  home.write("broken.csv", "field\n\"\n");
  EXPECT_TRUE(load(root + "/broken.csv").error().detail.starts_with(root + "/broken.csv:2: "));
}

// accuracy.md section 1, N3 to N5, and section 2.1: one card, three drivers, two kinds.
TEST(Profile, KnowsThatADriverChangedWhatPowerDrawIs) {
  Card card{.model = "NVIDIA GeForce RTX 3090"};
  for (const auto& [driver, kind, window] :
       std::vector<std::tuple<std::string, SensorKind, Duration>>{
           {"525.89.02", SensorKind::running, 1s},
           {"530.30.02", SensorKind::boxcar, 100ms},
           {"535.54.03", SensorKind::running, 1s}}) {
    card.driver = driver;
    EXPECT_EQ(builtin(card, "nvml:power").kind, kind) << driver;
    EXPECT_EQ(builtin(card, "nvml:power").window, window) << driver;
    EXPECT_EQ(builtin(card, "nvml:186:scope0").window, 100ms) << driver;
    EXPECT_EQ(builtin(card, "nvml:185:scope0").kind, SensorKind::running) << driver;
  }
  card = {.model = "NVIDIA A100-SXM4-40GB", .compute = "8.0", .driver = "535.54.03"};
  EXPECT_EQ(builtin(card, "nvml:power").kind, SensorKind::boxcar);
  EXPECT_EQ(builtin(card, "nvml:power").window, 25ms);
  EXPECT_EQ(builtin(card, "nvml:power").update, 101150us);
}

// N7: it breaks the rule of its architecture.
TEST(Profile, KnowsThatTheRtx8000IsNoOrdinaryTuring) {
  EXPECT_EQ(builtin({.model = "Quadro RTX 8000", .arch = "turing", .compute = "7.5"}, "nvml:power")
                .window,
            20ms);
  EXPECT_EQ(builtin({.model = "Quadro RTX 6000", .arch = "turing", .compute = "7.5"}, "nvml:power")
                .window,
            101ms);
}

TEST(Profile, SaysWhatIsAssumedOfACardThatNobodyLookedAt) {
  const SensorProfile p =
      builtin({.model = "NVIDIA H200", .arch = "hopper", .compute = "9.0"}, "nvml:186:scope0");
  EXPECT_EQ(p.window, 25ms);
  EXPECT_EQ(p.gain_class, GainClass::family);
  EXPECT_NEAR(p.gain_u.value_or(0), std::hypot(0.047, 0.014), 5e-4);
  EXPECT_NE(p.source.find("not verified"), std::string::npos);
  const SensorProfile counter =
      builtin({.model = "NVIDIA H200", .arch = "hopper", .compute = "9.0"}, "nvml:83:scope0");
  EXPECT_EQ(counter.kind, SensorKind::counter);
  EXPECT_EQ(counter.coverage, std::nullopt);
}

TEST(Profile, KnowsThatOldProcessorsModelTheirEnergy) {
  const auto kind = [](const std::string& model, const std::string& field) {
    DeviceInfo info;
    info.backend = "rapl";
    info.model = model;
    return ProfileBook::builtin().refine(info, sensor(field)).kind;
  };
  EXPECT_EQ(kind("Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz", "rapl:package"), SensorKind::model);
  EXPECT_EQ(kind("Intel(R) Core(TM) i7-3770 CPU @ 3.40GHz", "rapl-perf:core"), SensorKind::model);
  EXPECT_EQ(kind("Intel(R) Xeon(R) CPU E5-2670 v3 @ 2.30GHz", "rapl:package"), SensorKind::counter);
  EXPECT_EQ(kind("Intel(R) Core(TM) i7-10700K CPU @ 3.80GHz", "rapl:package"), SensorKind::counter);
  EXPECT_EQ(kind("AMD EPYC 7763 64-Core Processor", "rapl:package"), SensorKind::counter);
}

TEST(Profile, LeavesASensorAloneThatHasASource) {
  test::Bench bench({test::watts({Scope::gpu, 0})});
  bench.machine.devices[0].info = device({});
  SensorProfile& p = bench.machine.devices[0].sensors[0].info.profile;
  p.id = "test:power";
  apply(book_of("field,update_ms,source\ntest:power,5,first\n"), bench.machine);
  apply(book_of("field,update_ms,source\ntest:power,6,second\n"), bench.machine);
  EXPECT_EQ(p.update, 5ms);
  EXPECT_EQ(p.source, "first");
}

TEST(Profile, IsAppliedByTheMonitorWhereNobodyDidSo) {
  test::Bench bench({test::watts({Scope::gpu, 0})});
  bench.machine.devices[0].info = device({});
  bench.machine.devices[0].sensors[0].info.profile.id = "nvml:power";
  test::ManualClock clock;
  const auto monitor = Monitor::open(bench.machine, {.clock = &clock, .thread = false}).value();
  EXPECT_EQ(monitor.subject().sensors[0].profile.kind, SensorKind::running);
}

}  // namespace
}  // namespace zeus
