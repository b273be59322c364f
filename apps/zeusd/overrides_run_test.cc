#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "overrides.h"
#include "support/tree.h"

// Overrides that run real scripts.

namespace zeus::zeusd {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

struct Running : testing::Test {
  std::string at(const std::string& name) const { return (tree.root() / name).string(); }
  std::string text(const std::string& name) const {
    std::ifstream in(at(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  std::string script(const std::string& name, const std::string& body) {
    tree.write(name, "#!/bin/sh\ncd " + tree.root().string() + "\n" + body + "\n");
    EXPECT_EQ(::chmod(at(name).c_str(), 0755), 0);
    return at(name);
  }
  /// Overrides of the power limit by these commands, with further keys.
  Overrides overrides(const std::vector<std::string>& commands, const std::string& keys = "") {
    std::string toml = "[set_power_limit]\ncommands = [";
    for (const std::string& c : commands) toml += "'''" + c + "''',";
    tree.write("x.toml", toml + "]\n" + keys);
    return Overrides::load(at("x.toml")).value();
  }
  Status run(const Overrides& o) const { return o.run(Operation::set_power_limit, values, stop); }
  /// Why the only command, a script, failed; "" if it did not.
  std::string failure(const std::string& body, const std::string& keys = "") {
    const auto status = run(overrides({script("run", body)}, keys));
    if (status) return "";
    EXPECT_EQ(status.error().code, Errc::malformed);
    return status.error().detail;
  }
  bool alive(const std::string& pid_file) const {
    const std::string pid = text(pid_file);
    if (pid.empty()) return false;
    // A zombie that nobody waits for in a container is dead too.
    const std::string stat = [&] {
      std::ifstream in("/proc/" + std::to_string(std::stol(pid)) + "/stat");
      return std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }();
    const std::size_t name = stat.rfind(") ");
    return name != std::string::npos && stat[name + 2] != 'Z';
  }
  bool dies(const std::string& pid_file) const {
    const auto end = Clock::now() + seconds(10);
    while (alive(pid_file) && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return !alive(pid_file);
  }
  void kill(const std::string& pid_file) const {
    (void)::kill(static_cast<pid_t>(std::stol(text(pid_file))), SIGKILL);
  }

  test::Tree tree;
  OverrideValues values{.gpu_id = 3,
                        .uuid = "GPU-1",
                        .pci = "0000:41:00.0",
                        .power_limit_mw = 253'999,
                        .min_clock_mhz = 210,
                        .max_clock_mhz = 1980,
                        .enabled = false};
  std::atomic<bool> stop{false};
};

TEST_F(Running, SucceedsWithAStatusOfZero) { EXPECT_EQ(failure("echo fine; echo bad >&2"), ""); }

TEST_F(Running, FillsInPlaceholders) {
  const std::string run_it = script("run", R"(printf '<%s>' "$@" >>args)");
  tree.write("x.toml", "[set_power_limit]\ncommands = ['" + run_it +
                           " {gpu_id} {power_limit_mw} {power_limit_w}W {gpu_uuid}/{gpu_pci}']\n" +
                           "[set_gpu_locked_clocks]\ncommands = ['" + run_it +
                           " \"{min_clock_mhz} {max_clock_mhz}\" {gpu_id}{gpu_id}']\n" +
                           "[set_persistence_mode]\ncommands = ['" + run_it + " {enabled}']\n");
  const Overrides o = Overrides::load(at("x.toml")).value();
  EXPECT_TRUE(o.run(Operation::set_power_limit, values, stop));
  EXPECT_TRUE(o.run(Operation::set_gpu_locked_clocks, values, stop));
  EXPECT_TRUE(o.run(Operation::set_persistence_mode, values, stop));
  values.enabled = true;
  EXPECT_TRUE(o.run(Operation::set_persistence_mode, values, stop));
  EXPECT_EQ(text("args"), "<3><253999><253W><GPU-1/0000:41:00.0><210 1980><33><0><1>");
}

TEST_F(Running, LeavesNoShellAnythingToExpand) {
  values.uuid = "$(touch pwned) `x` ; * ' \"";
  const auto o = overrides({script("run", R"(printf '<%s>' "$@" >args)") + " {gpu_uuid} $HOME *"});
  EXPECT_TRUE(run(o));
  EXPECT_EQ(text("args"), "<$(touch pwned) `x` ; * ' \"><$HOME><*>");
}

TEST_F(Running, NeedsWhatItNamesTheGpuBy) {
  values.uuid.clear();
  const auto status = run(overrides({script("run", "") + " {gpu_uuid}"}));
  ASSERT_FALSE(status);
  EXPECT_TRUE(holds(status.error().detail, "GPU 3 tells no UUID; name it by {gpu_id}"));
}

TEST_F(Running, TellsTheStatusTheOutputsAndTheCommand) {
  const auto status = run(overrides(
      {script("run", "printf 'to out\\nx\\n'; echo 'to \"err\" \xff' >&2; exit 7") + " {gpu_id}"}));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().vendor, 7);
  EXPECT_EQ(status.error().detail, "Override command failed: " + at("run") +
                                       " 3: exited with code 7; stdout \"to out\\nx\"; stderr "
                                       "\"to \"err\" ?\"");
}

TEST_F(Running, TellsTheSignal) {
  EXPECT_TRUE(holds(failure("kill -TERM $$"), "killed by signal 15"));
}

TEST_F(Running, StopsWithTheFirstCommandThatFails) {
  const std::string first = script("first", "echo first >>log; exit $1"),
                    second = script("second", "echo second >>log");
  EXPECT_TRUE(run(overrides({first + " 0", second})));
  EXPECT_EQ(text("log"), "first\nsecond\n");
  EXPECT_FALSE(run(overrides({first + " 1", second})));
  EXPECT_EQ(text("log"), "first\nsecond\nfirst\n");
}

TEST_F(Running, FailsIfAnOutputMatchesThePattern) {
  const std::string keys = "error_pattern = '(?i)not supported'";
  EXPECT_EQ(failure("echo fine", keys), "");
  EXPECT_TRUE(holds(failure("echo Not Supported", keys), "matched error_pattern"));
  EXPECT_TRUE(holds(failure("echo Not Supported >&2", keys), "matched error_pattern"));
  EXPECT_TRUE(holds(failure("echo Not Supported; exit 2", keys), "exited with code 2"));
}

TEST_F(Running, MatchesTheOutputsApart) {
  EXPECT_EQ(failure("printf fa; printf il >&2", "error_pattern = 'fail'"), "");
  EXPECT_TRUE(holds(failure("echo x; echo end >&2", "error_pattern = '^end$|^end\\n'"), "matched"));
}

TEST_F(Running, MatchesWhatIsNoTextAsText) {
  EXPECT_TRUE(holds(failure(R"(printf 'a\377b')", R"(error_pattern = 'a.b')"), "matched"));
  EXPECT_TRUE(holds(failure(R"(printf 'a\000b')", R"(error_pattern = 'a\x00b')"), "matched"));
}

TEST_F(Running, KeepsTheBeginningOfALongOutput) {
  // Far more than a pipe holds: it must be read on, or the script would hang.
  const std::string flood = "head -c 5000000 /dev/zero | tr '\\0' x; echo END >&2";
  EXPECT_EQ(failure(flood), "");
  const std::string text = failure(flood + "; exit 1");
  EXPECT_LT(text.size(), 3000u);
  EXPECT_TRUE(holds(text, "xxx...\"; stderr \"END\""));
  EXPECT_TRUE(holds(failure(flood, "error_pattern = 'y'"),
                    "output could not be collected, so "
                    "error_pattern could not be checked"));
  EXPECT_TRUE(holds(failure(flood, "error_pattern = 'xx'"), "matched error_pattern"));
}

TEST_F(Running, IsKilledAtItsTime) {
  const auto begin = Clock::now();
  const std::string text = failure("echo before; sleep 60", "timeout_s = 1");
  EXPECT_LT(Clock::now() - begin, seconds(10));
  EXPECT_TRUE(holds(text, "timed out after 1s; stdout \"before\"")) << text;
}

TEST_F(Running, IsKilledWithAllThatItStarted) {
  EXPECT_TRUE(holds(failure("(sleep 60 & echo $! >pid; wait) & wait", "timeout_s = 1"),
                    "timed out after 1s"));
  EXPECT_TRUE(dies("pid"));
}

TEST_F(Running, LeavesNothingBehindThatCouldFinishAfterAFailure) {
  EXPECT_TRUE(holds(failure("sleep 60 & echo $! >pid; exit 1"), "exited with code 1"));
  EXPECT_TRUE(dies("pid"));
  EXPECT_TRUE(
      holds(failure("sleep 60 >/dev/null 2>&1 & echo $! >pid; echo bad", "error_pattern = 'bad'"),
            "matched"));
  EXPECT_TRUE(dies("pid"));
}

TEST_F(Running, IsNotHeldUpByWhatItLeavesBehind) {
  const auto begin = Clock::now();
  EXPECT_EQ(failure("sleep 60 & echo $! >pid"), "");
  EXPECT_LT(Clock::now() - begin, seconds(30));
  EXPECT_TRUE(alive("pid"));  // Starting a service is a way to succeed.
  kill("pid");
}

TEST_F(Running, CannotBeJudgedWhileSomethingElseMayStillWrite) {
  const std::string text = failure("sleep 60 & echo $! >pid", "error_pattern = 'bad'");
  EXPECT_TRUE(holds(text, "output could not be collected, so error_pattern could not be checked"));
  EXPECT_TRUE(dies("pid"));
}

TEST_F(Running, TimesOutThoughSomethingElseHoldsItsOutput) {
  const auto begin = Clock::now();
  // In a session of its own: beyond our reach.
  const std::string text =
      failure("setsid sh -c 'echo $$ >pid; exec sleep 60' & sleep 60", "timeout_s = 1");
  EXPECT_LT(Clock::now() - begin, seconds(10));
  EXPECT_TRUE(holds(text, "timed out after 1s"));
  if (!this->text("pid").empty()) kill("pid");
}

TEST_F(Running, TellsWhatCannotBeSpawned) {
  const auto o = overrides({script("run", "")});
  tree.write("run", "#!/nonexistent/interpreter\n");
  EXPECT_TRUE(holds(run(o).error().detail, "could not be spawned: No such file or directory"));
  std::filesystem::remove(at("run"));
  EXPECT_TRUE(holds(run(o).error().detail, "could not be spawned: cannot open " + at("run")));
}

TEST_F(Running, TrustsItsProgramNoLongerThanItShould) {
  const auto o = overrides({script("run", "echo ran >log")});
  ASSERT_EQ(::chmod(at("run").c_str(), 0777), 0);
  EXPECT_TRUE(holds(run(o).error().detail,
                    "could not be spawned: cannot trust " + at("run") + ": everybody may write"));
  EXPECT_EQ(text("log"), "");
}

TEST_F(Running, HasACleanEnvironment) {
  ASSERT_EQ(::setenv("LD_LIBRARY_PATH", "/evil", 1), 0);
  EXPECT_EQ(failure("tr '\\0' '\\n' </proc/$$/environ >log; readlink /proc/self/fd/0 >>log"), "");
  ASSERT_EQ(::unsetenv("LD_LIBRARY_PATH"), 0);
  EXPECT_EQ(
      text("log"),
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nLANG=C\n/dev/null\n");
}

TEST_F(Running, HasNoFileOfOursAndNoSignalsHeldBack) {
  const int leak = ::dup(1);  // As a library that forgets O_CLOEXEC would leave one.
  ASSERT_GE(leak, 3);
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  sigset_t block, was;
  sigemptyset(&block);
  sigaddset(&block, SIGTERM);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &block, &was), 0);
  ASSERT_EQ(::sigaction(SIGPIPE, &ignore, &before), 0);
  EXPECT_EQ(failure("ls /proc/self/fd | grep -vx '[0-3]' >fds; "  // 3 is the folder ls reads.
                    "grep -E '^Sig(Blk|Ign):' /proc/self/status | cut -f2 >signals"),
            "");
  ::sigaction(SIGPIPE, &before, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &was, nullptr);
  ::close(leak);
  EXPECT_EQ(text("fds"), "");
  std::istringstream signals(text("signals"));
  std::uint64_t blocked = 1, ignored = 1;
  signals >> std::hex >> blocked >> ignored;
  EXPECT_EQ(blocked, 0u);
  EXPECT_EQ(ignored & 0x7fffffffU, 0u);  // 32 and 33 are the C library's own.
}

TEST_F(Running, LeadsASessionOfItsOwnInTheRootFolder) {
  const auto o = overrides({"/bin/sh -c 'echo $(ps -o sid= -p $$) $$ $(pwd)'"},
                           "error_pattern = '^ *([0-9]+) ([0-9]+) /\\n$'");
  const auto status = run(o);
  ASSERT_FALSE(status) << "the pattern is what it should print";
  const std::string out = status.error().detail.substr(status.error().detail.find("stdout \"") + 8);
  EXPECT_EQ(std::stol(out), std::stol(out.substr(out.find(' ')))) << out;
}

TEST_F(Running, EndsWhenTheDaemonDoes) {
  const auto o = overrides({script("run", "echo $$ >pid; sleep 60"), script("second", ">log")});
  std::thread daemon([&] {
    while (!alive("pid")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stop = true;
  });
  const auto begin = Clock::now();
  const auto status = run(o);
  daemon.join();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::busy);
  EXPECT_LT(Clock::now() - begin, seconds(30));
  EXPECT_FALSE(alive("pid"));
  EXPECT_EQ(run(o).error().code, Errc::busy);  // And nothing more is started.
  EXPECT_FALSE(std::filesystem::exists(at("log")));
}

TEST_F(Running, IsDoneForSeveralGpusAtOnce) {
  // Each waits for the other: alone neither would end.
  const auto o = overrides(
      {script("run", "touch here$1; while [ ! -e here1 ] || [ ! -e here2 ]; do sleep 0.01; done") +
       " {gpu_id}"});
  std::vector<std::thread> threads;
  for (const unsigned gpu : {1U, 2U}) {
    threads.emplace_back([&, gpu] {
      OverrideValues mine = values;
      mine.gpu_id = gpu;
      EXPECT_TRUE(o.run(Operation::set_power_limit, mine, stop));
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST_F(Running, IsDoneOneAtATimeIfItActsOnTheNode) {
  const auto o = overrides({script("run", "mkdir alone && sleep 0.02 && rmdir alone")});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_TRUE(run(o)); });
  for (std::thread& t : threads) t.join();
}

TEST_F(Running, NeedsAnOverride) {
  EXPECT_FALSE(Overrides().run(Operation::reset_locked_clocks, values, stop));
}

}  // namespace
}  // namespace zeus::zeusd
