#include "backends/replay/replay.h"

#include <gtest/gtest.h>

#include "device/backend.h"
#include "support/sensors.h"
#include "support/simulated.h"
#include "support/tree.h"
#include "zeus/monitor.h"

namespace zeus::replay {
namespace {

using namespace std::chrono_literals;
using test::read;

constexpr DomainId kGpu{Scope::gpu, 0}, kPackage{Scope::package, 0};

Sample at(Duration t, std::uint64_t raw, Errc error = Errc::ok) {
  return {Instant{} + 1h + t, raw, error};
}

/// A recording of a counter, a power sensor read with it, and one that was never read.
Recording recorded() {
  Recording r;
  r.provenance.hostname = "node1";
  r.provenance.wall = std::chrono::system_clock::time_point(1'700'000'000s);
  r.machine =
      test::Bench({test::counter(kGpu), test::watts(kGpu), test::counter(kPackage)}).machine;
  r.machine.simulation = Simulation{"demo", "/tmp/demo", "plain"};
  r.sources = {0, 0, 1};
  r.samples = {{at(0ms, 100), at(100ms, 200), at(200ms, 300)},
               {at(1ms, 5), at(100ms, 6, Errc::lost), at(300ms, 7)},
               {}};
  r.subject = std::make_shared<Subject>();
  return r;
}

TEST(Replay, GivesTheNewestReadingThatWasTakenByThen) {
  test::ManualClock clock;
  const Machine machine = play(recorded(), "r.zeus", clock);
  const Device& card = machine.devices.at(0);
  const Sensor *energy = test::sensor(card, "gpu:0"), *power = test::sensor(card, "power");

  // It begins where each sensor has been read once: at 1 ms.
  EXPECT_EQ(read(energy).raw, 100u);
  EXPECT_EQ(read(power).raw, 5u);
  EXPECT_FALSE(read(energy).own_time);
  clock.advance(98ms);
  EXPECT_EQ(read(energy).raw, 100u);
  clock.advance(1ms);
  EXPECT_EQ(read(energy).raw, 200u);
  clock.advance(150ms);
  EXPECT_EQ(read(energy).raw, 300u);
}

TEST(Replay, FailsWhereAReadingFailed) {
  test::ManualClock clock;
  const Machine machine = play(recorded(), "r.zeus", clock);
  const Device& card = machine.devices.at(0);
  clock.advance(99ms);

  EXPECT_EQ(read(test::sensor(card, "power")).error, Errc::lost);
  EXPECT_EQ(read(test::sensor(card, "gpu:0")).error, Errc::ok);
  clock.advance(200ms);
  EXPECT_EQ(read(test::sensor(card, "power")).raw, 7u);
}

TEST(Replay, IsLostAfterItsEnd) {
  test::ManualClock clock;
  const Machine machine = play(recorded(), "r.zeus", clock);
  clock.advance(299ms);
  EXPECT_EQ(read(test::sensor(machine.devices[0], "gpu:0")).error, Errc::ok);
  clock.advance(1ms);
  EXPECT_EQ(read(test::sensor(machine.devices[0], "gpu:0")).error, Errc::lost);
}

TEST(Replay, SaysWhatItIsAndWhatItLacks) {
  test::ManualClock clock;
  Recording r = recorded();
  r.damage = "the block at byte 7 is cut off";
  const Machine machine = play(std::move(r), "r.zeus", clock);

  ASSERT_TRUE(machine.replay && machine.simulation);
  EXPECT_EQ(machine.replay->file, "r.zeus");
  EXPECT_EQ(machine.replay->hostname, "node1");
  EXPECT_EQ(machine.replay->recorded.time_since_epoch(), 1'700'000'000s);
  ASSERT_EQ(machine.problems.size(), 2u);
  EXPECT_EQ(machine.problems[0].error.detail,
            "r.zeus is not whole: the block at byte 7 is cut off");
  EXPECT_NE(machine.problems[1].error.detail.find("package:0"), std::string::npos);
  EXPECT_EQ(test::sensor(machine.devices[0], "package:0"), nullptr);
  EXPECT_TRUE(machine.devices[0].knobs.empty());
}

TEST(Replay, UpdatesNoMoreOftenThanWasRead) {
  test::ManualClock clock;
  Recording r = recorded();
  for (Sensor& s : r.machine.devices[0].sensors) s.info.profile.update = 1ms;
  r.machine.devices[0].sensors[1].info.profile.update = 1s;
  const Machine machine = play(std::move(r), "r.zeus", clock);
  const Device& card = machine.devices[0];

  EXPECT_EQ(test::sensor(card, "gpu:0")->info.profile.update, 100ms);
  EXPECT_EQ(test::sensor(card, "power")->info.profile.update, 1s);
}

TEST(Replay, OfAReplaySaysWhereItWasRecordedFirst) {
  test::ManualClock clock;
  Recording r = recorded();
  r.provenance.replay = Replay{"first.zeus", "origin", {}};
  const Machine machine = play(std::move(r), "second.zeus", clock);

  EXPECT_EQ(machine.replay->file, "second.zeus");
  EXPECT_EQ(machine.replay->hostname, "origin");
}

TEST(Replay, KnowsWhatWasReadAtTheEdgesOfWindows) {
  test::ManualClock clock;
  Recording r = recorded();
  auto subject = std::make_shared<Subject>();
  subject->sensors = {r.machine.devices[0].sensors[2].info};
  r.subject = subject;
  r.places = {2};
  Recording::Window w;
  w.measurement.subject = subject;
  w.measurement.series.resize(1);
  w.measurement.series[0].begin.sample = at(0ms, 40);
  w.measurement.series[0].end.sample = at(250ms, 90);
  r.windows.push_back(w);
  const Machine machine = play(std::move(r), "r.zeus", clock);
  const Sensor* package = test::sensor(machine.devices[0], "package:0");

  EXPECT_EQ(read(package).raw, 40u);
  clock.advance(250ms);
  EXPECT_EQ(read(package).raw, 90u);
}

TEST(Replay, IsMeasuredLikeAnyMachine) {
  test::ManualClock clock;
  Machine machine = play(recorded(), "r.zeus", clock);
  auto monitor = Monitor::open(machine, {.clock = &clock, .thread = false}).value();
  const Measurement m = monitor.measure("w", [&] { clock.advance(250ms); });

  // From the counter of 1 mJ: 300 - 100.
  EXPECT_NEAR(estimate(m, kGpu).value, 0.2, 1e-12);
}

/// What Monitor follows of a simulated machine, in a file and back.
Recording record_simulated(const std::string& scenario, const std::filesystem::path& file,
                           Recorder::Size& size) {
  Machine machine = open({Address::Scheme::sim, scenario}).value();
  Monitor::Options options;
  options.thread = false;
  options.period = 1ms;
  options.follow = Monitor::Follow::all;
  auto monitor = Monitor::open(machine, options).value();
  auto recorder = Recorder::create(file).value();
  recorder.begin({}, machine, {}, monitor.subject());
  Sampler& sampler = *monitor.sampler();
  std::vector<Sample> all(sampler.capacity());
  auto window = monitor.begin("w");
  const Instant from = Clock::steady().now();
  for (int i = 0; i < 100; ++i) std::this_thread::sleep_until(sampler.tick());
  Measurement m;
  (void)monitor.end(std::move(window), m);
  for (std::size_t k = 0; k < sampler.size(); ++k) {
    const std::size_t n = sampler.copy(k, from, Instant::max(), all);
    for (const Sample& s : std::span(all).first(n)) recorder.add(monitor.sampled()[k], s);
  }
  recorder.add(m, from);
  EXPECT_TRUE(recorder.finish("{}", 0));
  size = recorder.size();
  return Recording::read(file).value();
}

TEST(Replay, OfASimulatedMachineIsThatMachine) {
  for (const char* scenario : {"h100x8", "square"}) {
    const test::Tree tree;
    Recorder::Size size;
    const Recording r = record_simulated(scenario, tree.root() / "r.zeus", size);
    EXPECT_LE(static_cast<double>(size.sample_bytes) / static_cast<double>(size.samples), 4.0)
        << scenario;
    const Machine machine =
        open(Address::parse("replay:" + (tree.root() / "r.zeus").string()).value()).value();
    ASSERT_EQ(machine.devices.size(), r.machine.devices.size());
    EXPECT_FALSE(machine.domains.roots().empty());
    for (const Device& d : machine.devices) {
      for (const Sensor& s : d.sensors) EXPECT_EQ(read(&s).error, Errc::ok) << s.info.name;
    }
  }
}

TEST(Replay, OfAFileThatIsNotThereSaysSo) {
  const auto machine = open(Address::parse("replay:/nonexistent.zeus").value());
  ASSERT_FALSE(machine);
  EXPECT_NE(machine.error().detail.find("cannot read /nonexistent.zeus"), std::string::npos);
}

}  // namespace
}  // namespace zeus::replay
