#pragma once

// The real daemon over a simulated machine, and clients of it: over real sockets.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/process.h"
#include "support/simulated.h"
#include "support/tree.h"
#include "support/wire.h"

namespace zeus::test {

using Words = std::vector<std::string>;
using namespace std::chrono_literals;

/// The machine of upstream's tests: four GPUs of 150 W whose limit goes from 100 W to 300 W, one
/// package with DRAM. `more`: further lines of the scenario.
inline std::string four_gpus_and_a_cpu(const std::string& more = {}) {
  return "[nvml]\ncontrol = \"everyone\"\n[[gpu]]\ncount = 4\nmodel = \"Four\"\n"
         "power = { kind = \"constant\", watts = 150 }\n"
         "limit = { min = 100, max = 300, default = 300 }\n"
         "energy = { update = \"20ms\" }\n"
         "power_instant = { kind = \"instant\", update = \"1ms\" }\n"
         "[[zone]]\npath = \"intel-rapl:0\"\nname = \"package-0\"\npower = { watts = 60 }\n"
         "[[zone]]\npath = \"intel-rapl:0:0\"\nname = \"dram\"\npower = { watts = 10 }\n" +
         more;
}

/// Waits until something is so, for as long as a patient person would.
inline bool eventually(const std::function<bool()>& so, std::chrono::milliseconds patience = 20s) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

/// `zeusd serve` in a process of its own, on a Unix socket and a TCP port.
class Daemon {
 public:
  explicit Daemon(Simulated& sim, Words arguments = {}, Process::Options options = {})
      : sim_(sim), arguments_(std::move(arguments)), options_(std::move(options)) {
    ::chmod(tree_.root().c_str(), 0755);
    start();
  }

  /// Starts it, or starts it again on the same socket and journal.
  void start(Words more = {}) {
    Words words = {ZEUSD_BINARY,
                   "serve",
                   "--host",
                   "sim:" + sim_.session().folder().string(),
                   "--allow-simulated",
                   "--socket-path",
                   socket(),
                   "--mode",
                   "uds,tcp",
                   "--tcp-bind-address",
                   "127.0.0.1:0",
                   "--journal",
                   journal(),
                   "--audit-log",
                   audit_file(),
                   "--num-workers",
                   "2"};
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    words.insert(words.end(), more.begin(), more.end());
    process_ = std::make_unique<Process>(words, options_);
    ASSERT_TRUE(process_->says(" serves ")) << process_->said();
    const std::string& said = process_->said();
    const auto at = said.find("listening on 127.0.0.1:");
    ASSERT_NE(at, std::string::npos) << said;
    tcp_ = said.substr(at + 13, said.find_first_of(" \n", at + 13) - at - 13);
  }
  /// Ends it by a signal; what it said on standard error.
  Process::Result stop(int signal = SIGTERM) {
    process_->signal(signal);
    const auto result = process_->wait();
    process_.reset();
    return result;
  }
  ~Daemon() {
    if (!process_) return;
    const auto r = stop();
    EXPECT_EQ(r.status, 0) << r.err;
  }

  std::string socket() const { return tree_.root() / "not/there/z.sock"; }
  const std::string& tcp() const { return tcp_; }
  std::string journal() const { return tree_.root() / "journal"; }
  std::string audit_file() const { return tree_.root() / "audit.log"; }
  std::filesystem::path folder() const { return tree_.root(); }
  pid_t pid() const { return process_->pid(); }
  /// Reads standard error until `text` has come.
  bool says(const std::string& text) { return process_->says(text); }

  Answer get(const std::string& target, const std::string& headers = {}) const {
    return Wire(socket()).ask("GET " + target, headers);
  }
  Answer post(const std::string& target, const std::string& headers = {}) const {
    return Wire(socket()).ask("POST " + target, headers);
  }
  /// A connection that has asked for a stream, and its answer's head.
  Wire stream(const std::string& target, const std::string& headers = {}) const {
    Wire wire(socket());
    wire.request("GET " + target, headers);
    const Answer a = wire.answer();
    EXPECT_EQ(a.status, 200) << a.body;
    EXPECT_EQ(a.header("content-type"), "text/event-stream");
    EXPECT_EQ(a.header("transfer-encoding"), "chunked");
    return wire;
  }

  std::string open_lease(const std::string& arguments = {}) const {
    const Answer a = post("/lease/open" + arguments);
    EXPECT_EQ(a.status, 200) << a.body;
    return a.json().value("lease", "");
  }
  Answer set_limit(const std::string& gpus, unsigned mw, const std::string& lease = {}) const {
    return post("/gpu/set_power_limit?gpu_ids=" + gpus + "&power_limit_mw=" + std::to_string(mw) +
                "&block=true" + (lease.empty() ? "" : "&lease=" + lease));
  }

  /// The lines of the audit, as far as they are there.
  std::vector<Json> audit() const {
    std::vector<Json> out;
    std::ifstream in(audit_file());
    for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
    return out;
  }

 private:
  Simulated& sim_;
  Words arguments_;
  Process::Options options_;
  Tree tree_;
  std::string tcp_;
  std::unique_ptr<Process> process_;
};

/// What the simulated driver itself holds a GPU to, in watts.
inline double limit_w(Simulated& sim, std::size_t gpu = 0) {
  return sim.session().machine().limit_watts(gpu);
}

/// A child process that runs `work`, and hands back the text that this gives. It lives on until
/// finish() or kill(), so that it can hold what belongs to a process.
class Child {
 public:
  explicit Child(const std::function<std::string()>& work, uid_t uid = 0) {
    int to_us[2], to_it[2];
    if (::pipe2(to_us, O_CLOEXEC) != 0 || ::pipe2(to_it, O_CLOEXEC) != 0) ::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      if (uid != 0 && (::setgid(uid) != 0 || ::setuid(uid) != 0)) ::_exit(1);
      const std::string text = work() + '\0';
      (void)!::write(to_us[1], text.data(), text.size());
      ::close(to_it[1]);
      char byte = 0;
      (void)!::read(to_it[0], &byte, 1);
      ::_exit(0);
    }
    ::close(to_us[1]);
    ::close(to_it[0]);
    stay_ = to_it[1];
    char buffer[4096];
    while (text_.find('\0') == std::string::npos) {
      const ssize_t n = ::read(to_us[0], buffer, sizeof buffer);
      if (n <= 0) break;
      text_.append(buffer, static_cast<std::size_t>(n));
    }
    ::close(to_us[0]);
    text_ = text_.substr(0, text_.find('\0'));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { end(0); }
  const std::string& text() const { return text_; }
  pid_t pid() const { return pid_; }
  void kill() { end(SIGKILL); }

 private:
  void end(int signal) {
    if (pid_ <= 0) return;
    if (signal != 0) ::kill(pid_, signal);
    ::close(stay_);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  pid_t pid_ = -1;
  int stay_ = -1;
  std::string text_;
};

/// The answer that another user gets. Needs root.
inline Answer ask_as(uid_t uid, const std::string& where, const std::string& line) {
  const Child child(
      [&] {
        const Answer a = Wire(where).ask(line);
        return std::to_string(a.status) + ' ' + a.body;
      },
      uid);
  const std::string& text = child.text();
  const auto blank = text.find(' ');
  if (blank == std::string::npos) return {};
  return {std::stoi(text.substr(0, blank)), {}, text.substr(blank + 1)};
}

}  // namespace zeus::test
