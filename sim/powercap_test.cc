// The powercap tree, by both servers.

#include "sim/powercap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/files.h"
#include "sim/session.h"
#include "support/tree.h"

namespace zeus::sim {
namespace {

namespace fs = std::filesystem;

constexpr const char* kZones = R"(
[[zone]]
path = "intel-rapl:0"
name = "package-0"
power = { watts = 50 }
range_uj = 262_143_328_850
[[zone]]
path = "intel-rapl:0:2"
name = "dram"
power = { watts = 5 }
mode = "0400"
range_uj = 0
[[zone]]
path = "intel-rapl:1"
name = "psys"
power = { watts = 90 }
[[zone]]
path = "intel-rapl:2"
name = "package-1"
power = { watts = 50 }
[[fault]]
zone = "intel-rapl:2"
errno = "EIO"
[[fault]]
zone = "intel-rapl:1"
text = "N/A"
)";

class PowercapTest : public testing::TestWithParam<const char*> {
 protected:
  PowercapTest() {
    ::setenv("TMPDIR", tree_.root().c_str(), 1);
    ::setenv("ZEUS_SIM_FILES", GetParam(), 1);
  }
  ~PowercapTest() override {
    ::unsetenv("TMPDIR");
    ::unsetenv("ZEUS_SIM_FILES");
  }
  void SetUp() override {
    if (GetParam() == std::string("fuse") && ::access("/dev/fuse", R_OK | W_OK) != 0) {
      GTEST_SKIP() << "/dev/fuse does not open here";
    }
    tree_.write("mine.toml", kZones);
    auto s = Session::create((tree_.root() / "mine.toml").string());
    ASSERT_TRUE(s) << s.error().detail;
    session_ = *std::move(s);
    powercap_ = session_->root() / "sys/class/powercap";
  }

  test::Tree tree_;
  std::unique_ptr<Session> session_;
  fs::path powercap_;
};

TEST_P(PowercapTest, SaysHowItIsServed) { EXPECT_EQ(session_->files(), GetParam()); }

TEST_P(PowercapTest, HasZonesNestedAndByTheirFlatNames) {
  EXPECT_EQ(read_line(powercap_ / "intel-rapl:0/name"), "package-0");
  EXPECT_EQ(read_line(powercap_ / "intel-rapl:0:2/name"), "dram");
  EXPECT_EQ(read_line(powercap_ / "intel-rapl/intel-rapl:0/intel-rapl:0:2/name"), "dram");
  EXPECT_EQ(read_line(powercap_ / "intel-rapl:0/max_energy_range_uj"), "262143328850");
  EXPECT_FALSE(fs::exists(powercap_ / "intel-rapl:0:2/max_energy_range_uj"));
  EXPECT_TRUE(fs::is_symlink(powercap_ / "intel-rapl:0"));
  std::vector<std::string> names = zeus::list(powercap_);
  std::sort(names.begin(), names.end());
  const std::vector<std::string> expected = {"intel-rapl", "intel-rapl:0", "intel-rapl:0:2",
                                             "intel-rapl:1", "intel-rapl:2"};
  EXPECT_EQ(names, expected);
}

TEST_P(PowercapTest, CountsUpInAFileThatStaysOpen) {
  auto file = CounterFile::open(powercap_ / "intel-rapl:0/energy_uj");
  ASSERT_TRUE(file) << file.error().detail;
  const Machine& m = session_->machine();
  std::uint64_t first = 0, value = 0;
  ASSERT_EQ(file->read(first), Errc::ok);
  EXPECT_GE(first, m.zone_counter(0, 0));
  // Until it has moved, and never backwards.
  for (value = first; value == first;) ASSERT_EQ(file->read(value), Errc::ok);
  EXPECT_GT(value, first);
  EXPECT_LE(value, m.zone_counter(0, m.state().now()));
}

TEST_P(PowercapTest, ShowsTheModesOfTheScenario) {
  EXPECT_EQ(fs::status(powercap_ / "intel-rapl:0/energy_uj").permissions(), fs::perms{0444});
  EXPECT_EQ(fs::status(powercap_ / "intel-rapl:0:2/energy_uj").permissions(), fs::perms{0400});
}

TEST_P(PowercapTest, ShowsTextInPlaceOfANumber) {
  EXPECT_EQ(read_line(powercap_ / "intel-rapl:1/energy_uj"), "N/A");
}

TEST_P(PowercapTest, ShowsAnErrorAsWellAsItCan) {
  const Fd fd(::open((powercap_ / "intel-rapl:2/energy_uj").c_str(), O_RDONLY));
  ASSERT_GE(fd.get(), 0);
  char buffer[32];
  const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
  if (GetParam() == std::string("fuse")) {
    EXPECT_EQ(n, -1);
    EXPECT_EQ(errno, EIO);
  } else {
    EXPECT_EQ(n, 0);  // A plain file cannot fail; it is empty.
  }
}

TEST_P(PowercapTest, IsGoneAfterwards) {
  const Fd held(::open((powercap_ / "intel-rapl:0/energy_uj").c_str(), O_RDONLY));
  session_->close();
  EXPECT_FALSE(fs::exists(powercap_));
}

TEST_P(PowercapTest, LeavesNothingMountedWhenItsOwnerIsKilled) {
  session_->close();
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto s = Session::create((tree_.root() / "mine.toml").string());
    ::_exit(s ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ASSERT_EQ(status, 0);
  collect_garbage();
  for (const auto& e : fs::recursive_directory_iterator(tree_.root())) {
    EXPECT_NE(e.path().filename(), "root") << e.path();
  }
}

// Served by a thread of the owner, the read would have nobody left to answer it, for ever.
TEST_P(PowercapTest, LetsItsOwnerDieInTheMiddleOfARead) {
  tree_.write("slow.toml",
              std::string(kZones) + "[[fault]]\nzone = \"intel-rapl:0\"\nblock = \"300ms\"\n");
  int begun[2];
  ASSERT_EQ(::pipe(begun), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto s = Session::create((tree_.root() / "slow.toml").string());
    if (!s) ::_exit(1);
    const Fd fd(
        ::open(((*s)->root() / "sys/class/powercap/intel-rapl:0/energy_uj").c_str(), O_RDONLY));
    char buffer[32] = "x";
    if (::write(begun[1], buffer, 1) != 1) ::_exit(1);
    while (true) static_cast<void>(!::pread(fd.get(), buffer, sizeof buffer, 0));
  }
  char byte = 0;
  EXPECT_EQ(::read(begun[0], &byte, 1), 1);
  ::usleep(50'000);
  ::kill(pid, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  ::close(begun[0]);
  ::close(begun[1]);
}

INSTANTIATE_TEST_SUITE_P(By, PowercapTest, testing::Values("fuse", "plain"),
                         [](const auto& by) { return std::string(by.param); });

/// What a command sees that runs on the machine.
class EnterTest : public testing::Test {
 protected:
  EnterTest() { ::setenv("TMPDIR", tree_.root().c_str(), 1); }
  ~EnterTest() override { ::unsetenv("TMPDIR"); }
  test::Tree tree_;
};

TEST_F(EnterTest, ShowsTheZonesAtTheirFixedPath) {
  auto s = Session::create("square");
  ASSERT_TRUE(s) << s.error().detail;
  const pid_t pid = ::fork();
  if (pid == 0) {
    const Status entered = enter(**s);
    if (!entered) {
      std::fprintf(stderr, "%s\n", entered.error().detail.c_str());
      ::_exit(entered.error().vendor == EPERM ? 77 : 1);
    }
    const auto name = read_line("/sys/class/powercap/intel-rapl:0/name");
    const char* const path = std::getenv("LD_LIBRARY_PATH");
    const bool ok = name == "package-0" && fs::exists("/sys/class/powercap/intel-rapl") &&
                    fs::exists("/sys/class/net/lo/address") && path != nullptr &&
                    std::string(path).starts_with((*s)->libraries().string());
    ::_exit(ok ? 0 : 2);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "namespaces are refused here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace zeus::sim
