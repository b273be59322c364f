// Sessions: their files, their life and death, and the one energy that all processes see.

#include "sim/session.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>

#include "sim/follow.h"
#include "support/tree.h"

namespace zeus::sim {
namespace {

namespace fs = std::filesystem;
constexpr Ns kSecond = 1'000'000'000;

/// Sessions of a test lie in a folder of its own.
class SessionTest : public testing::Test {
 protected:
  SessionTest() { ::setenv("TMPDIR", tree_.root().c_str(), 1); }
  ~SessionTest() override { ::unsetenv("TMPDIR"); }

  std::unique_ptr<Session> start(const std::string& text) {
    tree_.write("mine.toml", text);
    return create((tree_.root() / "mine.toml").string());
  }
  static std::unique_ptr<Session> create(const std::string& what) {
    auto s = Session::create(what);
    if (!s) ADD_FAILURE() << s.error().detail;
    return s ? *std::move(s) : nullptr;
  }
  static std::unique_ptr<Session> join(const fs::path& folder) {
    auto s = Session::join(folder);
    if (!s) ADD_FAILURE() << s.error().detail;
    return s ? *std::move(s) : nullptr;
  }
  /// Runs `f` in a child; it must answer true.
  template <class F>
  static void in_child(F&& f) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(f() ? 0 : 1);
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }

  test::Tree tree_;
};

constexpr const char* kLimited = R"(
[[gpu]]
power = { kind = "square", low = 50, high = 250, period = "20ms" }
limit = { min = 100, max = 300 }
energy = { update = "1ms" }
)";

TEST_F(SessionTest, KnowsTheExactEnergyOfAnInterval) {
  const auto s = create("constant");
  const Ns t = s->machine().state().epoch();
  EXPECT_NEAR(*s->energy_j("gpu0", t, t + 10 * kSecond), 1000, 1e-9);
  EXPECT_NEAR(*s->energy_j("0", t + kSecond, t + kSecond + 1), 100e-9, 1e-15);
  const auto q = create("square");
  const Ns u = q->machine().state().epoch();
  EXPECT_NEAR(*q->energy_j("gpu0", u, u + 10 * kSecond), 2500, 1e-9);
  EXPECT_NEAR(*q->energy_j("intel-rapl:0", u, u + 10 * kSecond), 600, 1e-9);
  EXPECT_NEAR(*q->energy_j("dram", u, u + 10 * kSecond), 80, 1e-9);
}

TEST_F(SessionTest, SaysWhichDevicesThereAre) {
  const auto s = create("square");
  const auto devices = s->devices();
  ASSERT_EQ(devices.size(), 3U);
  EXPECT_EQ(devices[0].id, "gpu0");
  EXPECT_EQ(devices[2].id, "intel-rapl:0:0");
  EXPECT_EQ(*s->find(devices[0].uuid), 0U);
  EXPECT_EQ(*s->find("package-0"), 1U);
  const auto wrong = s->find("gpu7");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().detail.find("known are gpu0, intel-rapl:0"), std::string::npos);
}

TEST_F(SessionTest, LimitsPowerFromASegmentOnAndLeavesThePastAlone) {
  const auto s = start(kLimited);
  Machine& m = s->machine();
  const Ns epoch = m.state().epoch(), now = m.state().now();
  const double before = *s->energy_j("gpu0", epoch, epoch + now);
  m.set_limit(0, 150);
  const Ns change = m.state().last(0).begin;
  EXPECT_GT(change, now);
  EXPECT_EQ(*s->energy_j("gpu0", epoch, epoch + now), before);
  // (50 + 250) / 2 before, (50 + 150) / 2 after, over whole periods of 20 ms.
  EXPECT_NEAR(m.truth(0).joules(change, change + kSecond), 100, 1e-9);
  EXPECT_NEAR(m.truth(0).joules(change - kSecond, change), 150, 1e-9);
  EXPECT_NEAR(m.truth(0).joules(change - kSecond, change + kSecond), 250, 1e-9);
}

TEST_F(SessionTest, ShowsTwoProcessesOneContinuousEnergyAcrossAChangeOfLimit) {
  const auto s = start(kLimited);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  in_child([&] {
    const auto child = Session::join(s->folder());
    if (!child) return false;
    (*child)->machine().set_limit(0, 120);
    const Ns change = (*child)->machine().state().last(0).begin;
    const DeviceTruth truth = (*child)->machine().truth(0);
    for (int i = -50; i < 50; ++i) {
      const double j = truth.joules(0, change + i * 1'000'000);
      if (::write(pipe[1], &j, sizeof j) != sizeof j) return false;
    }
    return true;
  });
  const Ns change = s->machine().state().last(0).begin;
  const DeviceTruth truth = s->machine().truth(0);
  double previous = -1e9, seen = 0;
  for (int i = -50; i < 50; ++i) {
    const double mine = truth.joules(0, change + i * 1'000'000);
    ASSERT_EQ(::read(pipe[0], &seen, sizeof seen), static_cast<ssize_t>(sizeof seen));
    EXPECT_EQ(seen, mine);
    EXPECT_GT(mine, previous);
    if (i > -50) {
      EXPECT_LE(mine - previous, 250 * 1e-3 + 1e-9);  // No jump: at most 250 W for 1 ms.
    }
    previous = mine;
  }
  EXPECT_EQ(s->machine().limit_watts(0), 120);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(SessionTest, KeepsItsLogReadableWhenItRunsOver) {
  const auto s = start(kLimited);
  Machine& m = s->machine();
  for (int i = 0; i < 10'000; ++i) m.set_limit(0, 100 + i % 2 * 100);
  const Ns last = m.state().last(0).begin;
  EXPECT_NEAR(m.truth(0).joules(last, last + kSecond), 125, 1e-9);  // (50 + 200) / 2
  const Ns epoch = m.state().epoch();
  EXPECT_FALSE(s->energy_j(std::size_t{0}, epoch, epoch + 1));  // Forgotten, and it says so.
}

TEST_F(SessionTest, WrapsAZoneAtItsRange) {
  const auto s = start(R"(
[[zone]]
path = "intel-rapl:0"
name = "package-0"
power = { kind = "constant", watts = 100 }
range_uj = 999_999_999
start_uj = 950_000_000
update = "1ms"
phase = 0
)");
  const Machine& m = s->machine();
  EXPECT_EQ(m.zone_counter(0, 0), 950'000'000U);
  EXPECT_EQ(m.zone_counter(0, kSecond / 4), 975'000'000U);
  EXPECT_EQ(m.zone_counter(0, kSecond), 50'000'000U);
  EXPECT_EQ(m.zone_counter(0, 11 * kSecond), 50'000'000U);
}

TEST_F(SessionTest, MirrorsAZoneWithAGain) {
  const auto s = create("laptop");
  const auto package = *s->find("intel-rapl:0"), twin = *s->find("intel-rapl-mmio:0");
  const Machine& m = s->machine();
  const std::size_t first = package - s->scenario().gpus.size(),
                    second = twin - s->scenario().gpus.size();
  const auto delta = [&](std::size_t z) {
    return static_cast<double>(m.zone_counter(z, 100 * kSecond) - m.zone_counter(z, 0));
  };
  EXPECT_NEAR(delta(second) / delta(first), 0.96, 1e-3);
}

TEST_F(SessionTest, IsJoinedByFolderAndLeftAloneByWhoJoined) {
  const auto s = create("constant");
  {
    const auto other = create(s->folder().string());
    EXPECT_EQ(other->folder(), s->folder());
    EXPECT_EQ(other->machine().state().epoch(), s->machine().state().epoch());
    other->machine().set_limit(0, 80);
  }
  EXPECT_TRUE(fs::exists(s->folder() / "lib/libnvidia-ml.so.1"));
  EXPECT_EQ(s->machine().limit_watts(0), 80);
}

TEST_F(SessionTest, KeepsTheTruthAfterItIsClosed) {
  auto s = create("square");
  const fs::path folder = s->folder();
  const Ns epoch = s->machine().state().epoch();
  s->close();
  EXPECT_FALSE(fs::exists(folder / "lib"));
  EXPECT_FALSE(fs::exists(folder / "root"));
  s.reset();
  const auto after = join(folder);
  EXPECT_NEAR(*after->energy_j("gpu0", epoch, epoch + 2 * kSecond), 500, 1e-9);
  EXPECT_EQ(after->files(), "none");
}

TEST_F(SessionTest, IsNotClosedByAForkedChild) {
  auto s = create("square");
  in_child([&] {
    s.reset();
    return true;
  });
  EXPECT_TRUE(fs::exists(s->folder() / "lib"));
  EXPECT_TRUE(fs::exists(s->folder() / "root/sys/class/powercap/intel-rapl:0/energy_uj"));
}

TEST_F(SessionTest, OfAKilledOwnerIsCleanedUpByTheNext) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  in_child([&] {
    auto s = Session::create("square");
    if (!s) return false;
    const std::string folder = (*s)->folder().string();
    const bool written = ::write(pipe[1], folder.data(), folder.size()) > 0;
    ::_exit(written ? 0 : 1);  // As if killed: nothing is closed.
  });
  std::string folder(4096, '\0');
  folder.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, ::read(pipe[0], folder.data(), 4096))));
  ASSERT_TRUE(fs::exists(fs::path(folder) / "lib"));
  const auto alive = create("constant");
  EXPECT_FALSE(fs::exists(fs::path(folder) / "lib"));
  EXPECT_FALSE(fs::exists(fs::path(folder) / "root"));
  EXPECT_TRUE(fs::exists(fs::path(folder) / "state"));
  fs::last_write_time(folder, fs::file_time_type::clock::now() - std::chrono::hours(25));
  collect_garbage();
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_TRUE(fs::exists(alive->folder() / "lib"));
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(SessionTest, NamesTheKnownMachinesWhenAskedForAnother) {
  const auto s = Session::create("h100x9");
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Errc::absent);
  EXPECT_NE(s.error().detail.find("h100x8"), std::string::npos);
}

TEST_F(SessionTest, RefusesAFolderThatOthersCouldWriteTo) {
  const fs::path folder = tree_.root() / ("zeus-sim-" + std::to_string(::geteuid()));
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::all);
  const auto s = create("constant");  // Falls back to /tmp.
  EXPECT_NE(s->folder().parent_path(), folder);
}

// Keeps a core busy until its own CPU time says so.
void burn(Ns cpu) {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  const Ns end = t.tv_sec * kSecond + t.tv_nsec + cpu;
  do {
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  } while (t.tv_sec * kSecond + t.tv_nsec < end);
}

TEST(Follow, CountsLiveAndReapedChildren) {
  const Ns before = tree_cpu_time(::getpid());
  const pid_t child = ::fork();
  if (child == 0) {
    burn(kSecond / 5);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  burn(kSecond / 10);
  const Ns used = tree_cpu_time(::getpid()) - before;
  EXPECT_GE(used, 290'000'000 - 20'000'000);  // Reaped time comes in ticks of 10 ms, twice.
}

TEST_F(SessionTest, FollowsTheCpuUseOfItsOwner) {
  const auto s = start(R"(
[[gpu]]
power = { kind = "follow", idle = 50, max = 250, cores = 1 }
limit = { min = 100, max = 300 }
energy = { update = "1ms" }
)");
  Machine& m = s->machine();
  for (int i = 0; i < 200 && m.state().last(0).load < 0.05; ++i) burn(kSecond / 20);
  const Segment busy = m.state().last(0);
  ASSERT_GE(busy.load, 0.05);
  EXPECT_NEAR(m.truth(0).joules(busy.begin, busy.begin + 1000), (50 + 200 * busy.load) * 1e-6,
              1e-12);
  EXPECT_NEAR(m.truth(0).joules(-kSecond, 0), 50, 1e-9);
}

TEST_F(SessionTest, IsDrivenToTheNanosecondAndAheadOfTime) {
  const auto s = start(R"(
[[gpu]]
power = { kind = "driven", idle = 50, max = 250 }
energy = { update = "1ms" }
)");
  const auto beside = join(s->folder());
  Machine& driver = beside->machine();
  const Ns begin = s->machine().state().now() + 10 * kSecond;
  for (int i = 0; i < 10; ++i) driver.set_load(0, i % 2 == 0 ? 1 : 0.25, begin + i * kSecond);
  burn(kSecond / 10);  // What follows processes must leave it alone.

  const DeviceTruth truth = s->machine().truth(0);
  EXPECT_FALSE(s->scenario().follows());
  EXPECT_NEAR(truth.joules(begin - kSecond, begin), 50, 1e-9);
  EXPECT_NEAR(truth.joules(begin, begin + 10 * kSecond), 5 * 250 + 5 * 100, 1e-9);
  EXPECT_EQ(truth.piece(begin + kSecond).watts, 100);
  EXPECT_EQ(truth.piece(begin + kSecond - 1).watts, 250);
}

TEST_F(SessionTest, KnowsModuleAndMemoryByWhatTheirSensorsMakeOfTheGpu) {
  const auto s = start(R"(
[[gpu]]
power = { watts = 100 }
module_power = { gain = 1.5, offset = 60 }
memory_power = { gain = 0.25 }
[[gpu]]
power = { watts = 100 }
module_energy = { gain = 2 }
)");
  EXPECT_NEAR(*s->energy_j(0, Scope::gpu, 0, 2 * kSecond), 200, 1e-9);
  EXPECT_NEAR(*s->energy_j(0, Scope::module, 0, 2 * kSecond), 420, 1e-9);
  EXPECT_NEAR(*s->energy_j(0, Scope::memory, 0, 2 * kSecond), 50, 1e-9);
  EXPECT_NEAR(*s->energy_j(1, Scope::module, 0, 2 * kSecond), 400, 1e-9);
  EXPECT_EQ(s->energy_j(1, Scope::memory, 0, 2 * kSecond).error().code, Errc::absent);
}

}  // namespace
}  // namespace zeus::sim
