#include "zeus/recording.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "backends/replay/blocks.h"
#include "backends/replay/fields.h"
#include "support/sensors.h"
#include "support/tree.h"
#include "zeus/monitor.h"
#include "zeus/timeline.h"

namespace zeus {
namespace {

using namespace std::chrono_literals;
constexpr DomainId kGpu{Scope::gpu, 0};

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// A card with a counter and a power sensor, a clock of our own, and what is recorded of them.
struct Studio {
  Studio() {
    machine.machine.problems = {{"rapl", {Errc::denied, 13, "cannot read it"}}};
    machine.machine.devices[0].info.facts = {{"driver", "1.2"}};
    Monitor::Options o;
    o.clock = &clock;
    o.thread = false;
    o.period = 100ms;
    o.follow = Monitor::Follow::all;
    monitor.emplace(Monitor::open(machine.machine, o).value());
    provenance.version = "1.2.3";
    provenance.build = build_id();
    provenance.hostname = "node1";
    provenance.address = "local:";
    provenance.wall = std::chrono::system_clock::time_point(1'700'000'000'123'456'789ns);
    provenance.at = clock.now();
    provenance.simulation = Simulation{"demo", "/tmp/demo", "plain"};
  }

  /// Measures so many tenths of a second, writes the file, and remembers what went into it.
  void record(int steps, bool finish = true) {
    auto recorder = Recorder::create(file).value();
    recorder.begin(provenance, machine.machine, selections, monitor->subject());
    const Instant from = clock.now();
    Timeline timeline(*monitor->sampler(), from);
    auto window = monitor->begin("w");
    for (int i = 0; i < steps; ++i) {
      clock.advance(100ms);
      machine.dials->raw[0] += 10'000 + static_cast<unsigned>(i % 3);
      machine.dials->raw[1] = 100'000 + static_cast<unsigned>(i % 5) * 7;
      machine.dials->error = i == 4 ? Errc::busy : Errc::ok;
      monitor->sampler()->tick();
      timeline.drain([&](std::size_t k, const Sample& s) {
        recorder.add(monitor->sampled()[k], s);
        taken[k].push_back(s);
      });
      recorder.flush();
    }
    (void)monitor->end(std::move(window), measurement);
    measurement.marks = {measurement.begin + 5ms, measurement.begin + 105ms};
    if (!finish) return;
    recorder.add(measurement, from);
    ASSERT_TRUE(recorder.finish("{\"energy_j\":1}", 3));
    size = recorder.size();
  }

  test::ManualClock clock;
  test::Bench machine{{test::counter(kGpu), test::watts(kGpu)}};
  std::optional<Monitor> monitor;
  Provenance provenance;
  Selections selections = {{"gpu", {{"bench-0"}, {}, "all GPUs", {{"x", {Errc::absent, 0, "y"}}}}}};
  test::Tree tree;
  std::filesystem::path file = tree.root() / "r.zeus";
  Measurement measurement;
  std::vector<Sample> taken[2];
  Recorder::Size size;
};

TEST(Recording, HoldsWhatWasRecordedBitForBit) {
  Studio studio;
  studio.record(120);
  const Recording r = Recording::read(studio.file).value();

  EXPECT_EQ(r.damage, "");
  EXPECT_EQ(r.result, "{\"energy_j\":1}");
  EXPECT_EQ(r.lost, 3u);
  EXPECT_EQ(replay::pack(r.provenance), replay::pack(studio.provenance));
  ASSERT_EQ(r.machine.devices.size(), 1u);
  const Device &got = r.machine.devices[0], &expected = studio.machine.machine.devices[0];
  EXPECT_EQ(replay::pack(got.info), replay::pack(expected.info));
  EXPECT_EQ(r.machine.problems[0].error.detail, "cannot read it");
  EXPECT_EQ(r.selections[0].second.problems[0].error.detail, "y");
  EXPECT_EQ(r.sources, (std::vector<std::uint32_t>{0, 0}));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(replay::pack(got.sensors[i].info), replay::pack(expected.sensors[i].info));
    EXPECT_EQ(std::memcmp(r.samples[i].data(), studio.taken[i].data(), 120 * sizeof(Sample)), 0);
    EXPECT_EQ(r.samples[i].size(), 120u);
  }
  EXPECT_EQ(r.samples[0][4].error(), Errc::busy);
  EXPECT_EQ(studio.size.samples, 240u);
  EXPECT_EQ(studio.size.bytes, std::filesystem::file_size(studio.file));
}

TEST(Recording, AWindowIsJudgedAsItWasBeforeItWasWritten) {
  Studio studio;
  studio.record(30);
  const Recording r = Recording::read(studio.file).value();
  ASSERT_EQ(r.windows.size(), 1u);
  const Measurement& m = r.windows[0].measurement;

  EXPECT_EQ(m.marks, studio.measurement.marks);
  EXPECT_EQ(m.wall, studio.measurement.wall);
  EXPECT_EQ(m.between.size(), 60u);  // The last of each is behind its edge.
  for (const DomainId domain : {kGpu, kNode}) {
    const Estimate a = estimate(m, domain), b = estimate(studio.measurement, domain);
    EXPECT_GT(a.value, 0);
    EXPECT_EQ(a.value, b.value);
    EXPECT_EQ(a.u_abs, b.u_abs);
    EXPECT_EQ(a.high, b.high);
    EXPECT_EQ(a.flags, b.flags);
  }
  // The same bytes are the same fields.
  EXPECT_EQ(replay::pack(r.windows[0]),
            replay::pack(Recording::Window{studio.measurement, r.windows[0].from}));
}

TEST(Recording, OfAKilledRecorderHoldsAllButTheLastSeconds) {
  Studio studio;
  studio.record(500, false);
  const Recording r = Recording::read(studio.file).value();

  EXPECT_NE(r.damage.find("without its last block"), std::string::npos) << r.damage;
  EXPECT_GE(r.samples[0].size(), 500u - Recorder::kHeld / 100ms - 1);
  EXPECT_EQ(r.result, "");
}

TEST(Recording, ThatIsCutAnywhereIsReadUpToThere) {
  Studio studio;
  studio.record(12);
  const std::string whole = content(studio.file);
  std::size_t readable = 0;
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const auto r = Recording::parse(whole.substr(0, n), "cut.zeus");
    if (!r) {
      EXPECT_TRUE(r.error().detail.starts_with("cannot read cut.zeus: ")) << r.error().detail;
      continue;
    }
    ++readable;
    EXPECT_NE(r->damage, "") << n;
    const auto& samples = r->samples[0];
    EXPECT_TRUE(samples.empty() || samples.size() == 12);
  }
  EXPECT_GT(readable, whole.size() / 4);
}

TEST(Recording, NoFlippedBitGoesUnnoticed) {
  Studio studio;
  studio.record(12);
  const std::string whole = content(studio.file);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    std::string flipped = whole;
    flipped[n] = static_cast<char>(flipped[n] ^ (1 << n % 8));
    const auto r = Recording::parse(flipped, "flipped.zeus");
    EXPECT_TRUE(!r || !r->damage.empty()) << n;
  }
  EXPECT_NE(Recording::parse(whole + "x", "longer.zeus").value().damage, "");
}

TEST(Recording, SaysWhatAFileIsThatIsNone) {
  const test::Tree tree;
  const auto none = Recording::read(tree.root() / "none.zeus");
  const auto other = Recording::parse("seconds,monotonic_ns\n", "t.csv");
  std::string later = replay::preamble();
  later.back() = 9;
  const auto newer = Recording::parse(later, "later.zeus");

  EXPECT_EQ(none.error().code, Errc::absent);
  EXPECT_EQ(other.error().code, Errc::invalid);
  EXPECT_EQ(other.error().detail, "cannot read t.csv: it is no recording of zeus record");
  EXPECT_EQ(newer.error().code, Errc::unsupported);
  EXPECT_NE(newer.error().detail.find("version 9"), std::string::npos) << newer.error().detail;
}

TEST(Recording, ASeriesThatPointsBeyondItsSamplesIsDamage) {
  Studio studio;
  studio.record(5);
  for (auto field : {&Measurement::Series::first, &Measurement::Series::count,
                     &Measurement::Series::earlier, &Measurement::Series::later}) {
    Measurement wrong = studio.measurement;
    wrong.series[1].*field = ~std::size_t{0};
    auto recorder = Recorder::create(studio.file).value();
    recorder.begin(studio.provenance, studio.machine.machine, {}, studio.monitor->subject());
    recorder.add(wrong, {});
    (void)recorder.finish("", 0);
    const Recording r = Recording::read(studio.file).value();
    EXPECT_NE(r.damage.find("cannot be understood"), std::string::npos) << r.damage;
    EXPECT_TRUE(r.windows.empty());
  }
}

TEST(Recorder, SaysThatADiskIsFullAndGoesOn) {
  Studio studio;
  auto recorder = Recorder::create("/dev/full").value();
  recorder.begin(studio.provenance, studio.machine.machine, {}, studio.monitor->subject());
  for (std::size_t i = 0; i < 10'000; ++i) recorder.add(0, {Instant(Duration(i + 1)), i});
  const auto finished = recorder.finish("{}", 0);

  ASSERT_FALSE(finished);
  EXPECT_NE(finished.error().detail.find("/dev/full"), std::string::npos);
  EXPECT_EQ(recorder.size().bytes, 0u);
}

TEST(Recorder, SaysWhereItCannotWrite) {
  const auto none = Recorder::create("/nonexistent/r.zeus");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().detail.find("/nonexistent/r.zeus"), std::string::npos);
}

}  // namespace
}  // namespace zeus
