#include "report/verify.h"

#include <gtest/gtest.h>

#include "support/sensors.h"
#include "zeus/monitor.h"
#include "zeus/timeline.h"

namespace zeus::report {
namespace {

using namespace std::chrono_literals;
constexpr DomainId kGpu{Scope::gpu, 0};

/// Two seconds of a card with a counter and a power sensor, and their result.
Recording recorded() {
  zeus::test::ManualClock clock;
  zeus::test::Bench bench({zeus::test::counter(kGpu), zeus::test::watts(kGpu)});
  Monitor::Options o;
  o.clock = &clock;
  o.thread = false;
  o.period = 100ms;
  o.follow = Monitor::Follow::all;
  Monitor monitor = Monitor::open(bench.machine, o).value();
  Recording r;
  r.provenance.build = "here";
  r.provenance.hostname = "node1";
  r.machine = bench.machine;
  r.sources = {0, 0};
  r.samples.resize(2);
  r.subject = std::make_shared<Subject>(monitor.subject());
  r.places = {0, 1};
  Recording::Window w;
  w.from = clock.now();
  Timeline timeline(*monitor.sampler(), w.from);
  w.measurement = monitor.measure("w", [&] {
    for (unsigned i = 0; i < 20; ++i) {
      clock.advance(100ms);
      bench.dials->raw[0] += 10'000 + i;
      bench.dials->raw[1] = 100'000 + 10 * i;
      monitor.sampler()->tick();
    }
  });
  timeline.drain(
      [&](std::size_t k, const Sample& s) { r.samples[monitor.sampled()[k]].push_back(s); });
  r.windows.push_back(std::move(w));
  const Json facts = {{"command", {"sleep", "2"}}, {"exit", {{"code", 0}, {"signal", nullptr}}}};
  r.result = dump(recompute(r, facts), true);
  return r;
}

/// The recorded result with one value changed.
Recording changed(const std::string& pointer, const Json& value) {
  Recording r = recorded();
  Json result = Json::parse(r.result);
  result[Json::json_pointer(pointer)] = value;
  r.result = dump(result, true);
  return r;
}

double energy_of(const Recording& r) { return Json::parse(r.result)["domains"][0]["energy_j"]; }

TEST(Verify, FindsTheRecordedResultInItsRecord) {
  const Recording r = recorded();
  const Verification same = verify(r, "a.zeus", "here"), other = verify(r, "a.zeus", "there");

  EXPECT_TRUE(same.holds()) << to_text(same, {});
  EXPECT_TRUE(same.exact);
  EXPECT_GT(same.values, 50u);
  EXPECT_EQ(same.checked, 38u);  // Of two sensors all but the last, which is at the edge.
  EXPECT_TRUE(other.holds());
  EXPECT_FALSE(other.exact);
  EXPECT_EQ(Json::parse(r.result)["domains"][0]["peak_power_w"], 100.19);
}

TEST(Verify, NamesEachValueThatDiffersWithBoth) {
  const Recording r = changed("/domains/0/u_cmp_j", 12.5);
  const Verification v = verify(r, "a.zeus", "here");

  ASSERT_EQ(v.differences.size(), 1u) << to_text(v, {});
  EXPECT_EQ(v.differences[0].path, "domains/0/u_cmp_j");
  EXPECT_EQ(v.differences[0].recorded, 12.5);
  EXPECT_EQ(v.differences[0].recomputed, Json::parse(recorded().result)["domains"][0]["u_cmp_j"]);
  EXPECT_NE(to_text(v, {}).find("domains/0/u_cmp_j: recorded 12.5, recomputed "),
            std::string::npos);
  EXPECT_EQ(to_json(v)["holds"], false);
}

TEST(Verify, AsksForEqualBitsOnlyOfTheSameBuild) {
  const double energy = energy_of(recorded());
  const Recording last_bit = changed("/domains/0/energy_j", std::nextafter(energy, 1e9));
  const Recording more = changed("/domains/0/energy_j", energy * (1 + 3e-12));

  EXPECT_EQ(verify(last_bit, "a.zeus", "here").differences.size(), 1u);
  EXPECT_TRUE(verify(last_bit, "a.zeus", "there").holds());
  EXPECT_EQ(verify(more, "a.zeus", "there").differences.size(), 1u);
}

TEST(Verify, OfAnotherBuildAllowsWhatItTellsBesides) {
  Recording r = recorded();
  Json result = Json::parse(r.result);
  result.erase("edp_js");
  r.result = dump(result, true);

  EXPECT_TRUE(verify(r, "a.zeus", "there").holds());
  EXPECT_FALSE(verify(r, "a.zeus", "here").holds());
}

TEST(Verify, SeesAPeakThatNoSampleShows) {
  Recording r = recorded();
  r.samples[1].back() = Sample(r.samples[1].back().at(), 150'000);
  const Verification v = verify(r, "a.zeus", "here");

  ASSERT_FALSE(v.holds());
  EXPECT_EQ(v.differences[0].path, "domains/0/peak_power_w");
}

TEST(Verify, LooksForTheSamplesOfAWindowAmongAll) {
  Recording r = recorded();
  r.samples[0].erase(r.samples[0].begin() + 3, r.samples[0].begin() + 5);
  const Verification v = verify(r, "a.zeus", "here");
  r.lost = 1;

  ASSERT_EQ(v.differences.size(), 1u) << to_text(v, {});
  EXPECT_EQ(v.differences[0].path, "samples/0/gpu:0/gpu:0");
  EXPECT_EQ(v.differences[0].recomputed, "2 of them are not among those taken");
  EXPECT_TRUE(verify(r, "a.zeus", "here").holds()) << "samples were lost, and not all can be there";
}

TEST(Verify, DoesNotLookForASampleThatCameWhileTheEdgesWereRead) {
  Recording r = recorded();
  r.windows[0].measurement.end -= 150ms;  // The last sample before the edge comes after it.
  Recording without = r;
  without.samples[0].erase(without.samples[0].end() - 2, without.samples[0].end());
  without.samples[1].erase(without.samples[1].end() - 2, without.samples[1].end());

  EXPECT_EQ(verify(without, "a.zeus", "here").checked, verify(r, "a.zeus", "here").checked);
  for (const Difference& d : verify(without, "a.zeus", "here").differences) {
    EXPECT_FALSE(d.path.starts_with("samples/")) << d.path;
  }
}

TEST(Verify, ComparesNothingWhereTheFileIsDamaged) {
  Recording r = recorded();
  r.damage = "the block at byte 7 is cut off";
  const Verification v = verify(r, "a.zeus", "here");

  EXPECT_FALSE(v.holds());
  EXPECT_EQ(v.values, 0u);
  EXPECT_NE(to_text(v, {}).find("not compared: the block at byte 7"), std::string::npos);
  r.damage.clear();
  r.result = "[]";
  EXPECT_EQ(verify(r, "a.zeus", "here").damage, "its result is no report");
}

TEST(Verify, OfAWindowWithoutSensorsComparesItsTime) {
  Recording r = recorded();
  r.subject = std::make_shared<Subject>();
  r.places.clear();
  Recording::Window w;
  w.measurement.subject = r.subject;
  w.measurement.begin = Instant{} + 1s;
  w.measurement.end = Instant{} + 3s;
  r.windows = {w};
  r.result = dump(recompute(r, {}), true);

  EXPECT_TRUE(verify(r, "a.zeus", "here").holds());
  EXPECT_EQ(Json::parse(r.result)["window"]["duration_s"], 2.0);
}

TEST(Differences, AreFoundInEveryPlace) {
  const Json a = {{"x", 1}, {"list", {1, 2}}, {"gone", "y"}, {"nothing", nullptr}};
  const Json b = {{"x", 1}, {"list", {1, 3, 4}}, {"new", true}};
  std::size_t values = 0;
  const auto found = differences(a, b, 0, values);
  std::vector<std::string> paths;
  for (const Difference& d : found) paths.push_back(d.path);

  EXPECT_EQ(paths, (std::vector<std::string>{"list/1", "list/2", "gone", "new"}));
  EXPECT_EQ(values, 7u);
}

}  // namespace
}  // namespace zeus::report
