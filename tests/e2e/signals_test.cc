// Signals on their way through `zeus run`.

#include <gtest/gtest.h>
#include <pty.h>
#include <termios.h>

#include "e2e/cli.h"

namespace zeus::test {
namespace {

using namespace std::chrono_literals;

/// A command that says "ready", then the name of every signal that comes, and ends with `end`.
Words trap(const std::string& end) {
  return {"sh", "-c",
          "trap 'echo HUP' HUP; trap 'echo USR1' USR1; trap 'echo USR2' USR2; "
          "trap 'echo INT; " +
              end + "' INT; trap 'echo TERM; " + end +
              "' TERM; "
              "echo ready; while :; do sleep 0.02; done"};
}

Words run_words(Words options, const Words& command) {
  options.insert(options.begin(), "run");
  options.emplace_back("--");
  options.insert(options.end(), command.begin(), command.end());
  return zeus_words(options);
}

TEST(Signals, ReachTheCommandWhoseStatusIsReturned) {
  Process p(run_words({}, trap("exit 7")));
  ASSERT_TRUE(p.sees("ready\n"));
  p.signal(SIGUSR1);
  ASSERT_TRUE(p.sees("USR1\n"));
  p.signal(SIGUSR2);
  ASSERT_TRUE(p.sees("USR2\n"));
  p.signal(SIGTERM);
  const auto r = p.wait();

  EXPECT_EQ(r.status, 7);
  EXPECT_NE(r.out.find("TERM\n"), std::string::npos);
  EXPECT_NE(r.err.find("exit status 7"), std::string::npos) << r.err;
}

TEST(Signals, ACommandThatIsKilledStillHasAReport) {
  const Tree tree;
  const auto file = tree.root() / "r.json";
  const auto r = zeus({"--host", "sim:constant", "run", "--json", "-o", file.string(), "--", "sh",
                       "-c", "sleep 0.3; kill -9 $$"});

  EXPECT_EQ(r.status, 137);
  EXPECT_EQ(json_of(file)["exit"]["signal"], 9);
  EXPECT_TRUE(json_of(file)["exit"]["code"].is_null());
  EXPECT_EQ(json_of(file)["domains"].size(), 1u);
}

TEST(Signals, ASecondRequestEndsAtOnceWithAReport) {
  const Tree tree;
  const auto file = tree.root() / "r.json";
  // It ignores requests to end, and goes by itself once the report is there.
  Process p(run_words({"--json", "-o", file.string()},
                      {"sh", "-c",
                       "trap 'echo TERM' TERM; echo ready; "
                       "while [ ! -e '" +
                           file.string() + "' ]; do sleep 0.02; done; echo saw it"}));
  ASSERT_TRUE(p.sees("ready\n"));
  p.signal(SIGTERM);
  ASSERT_TRUE(p.sees("TERM\n"));
  std::this_thread::sleep_for(600ms);  // Closer together they are one request.
  p.signal(SIGTERM);
  const auto r = p.wait();

  EXPECT_EQ(r.status, 128 + SIGTERM);
  EXPECT_NE(r.out.find("saw it\n"), std::string::npos);
  EXPECT_TRUE(json_of(file)["exit"]["code"].is_null());
  EXPECT_TRUE(json_of(file)["exit"]["signal"].is_null());
  EXPECT_GT(json_of(file)["window"]["duration_s"], 0.5);
}

TEST(Signals, WhatWasIgnoredStaysIgnored) {
  Process p(Words{"/bin/sh", "-c",
                  "trap '' HUP; exec " ZEUS_BINARY
                  " run -- sh -c 'echo ready; sleep 0.4; echo end'"});
  ASSERT_TRUE(p.sees("ready\n"));
  p.signal(SIGHUP);
  const auto r = p.wait();

  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.out.find("end\n"), std::string::npos);
}

TEST(Signals, CtrlCAtATerminalReachesTheCommandOnce) {
  int master = -1;
  const pid_t pid = ::forkpty(&master, nullptr, nullptr, nullptr);
  if (pid == 0) {
    Words words = run_words({}, {"sh", "-c",
                                 "n=0; trap 'n=$((n+1)); echo got $n' INT; echo ready; "
                                 "i=0; while [ $i -lt 40 ]; do sleep 0.02; i=$((i+1)); done; "
                                 "echo total $n"});
    std::vector<char*> argv;
    for (auto& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(99);
  }
  std::string out;
  const auto read_until = [&](const std::string& text) {
    char buffer[4096];
    while (out.find(text) == std::string::npos) {
      const ssize_t n = ::read(master, buffer, sizeof buffer);
      if (n <= 0) return false;
      out.append(buffer, static_cast<std::size_t>(n));
    }
    return true;
  };
  ASSERT_TRUE(read_until("ready"));
  ASSERT_EQ(::write(master, "\x03", 1), 1);
  EXPECT_TRUE(read_until("total 1")) << out;
  while (read_until("never printed")) {
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ::close(master);

  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_NE(out.find("zeus run"), std::string::npos) << "no report: " << out;
}

}  // namespace
}  // namespace zeus::test
