#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/process.h"
#include "support/simulated.h"
#include "support/wire.h"

namespace zeus::test {

/// Two GPUs whose limits go from 100 W to 300 W and stand at 300 W, and one package.
constexpr std::string_view kTwoGpus = R"(
[[gpu]]
count = 2
power = { watts = 150 }
limit = { min = 100, max = 300 }
energy = { update = "20ms" }
power_instant = { update = "20ms" }

[[zone]]
path = "intel-rapl:0"
name = "package-0"
power = { watts = 60 }
range_uj = 262_143_328_850
)";

/// A place for daemons: a simulated machine that outlives them, their socket, their journal.
class Place {
 public:
  explicit Place(std::string_view scenario = kTwoGpus) : machine_(scenario) {}

  std::string socket() const { return (tree_.root() / "zeusd.sock").string(); }
  std::filesystem::path journal() const { return tree_.root() / "journal"; }
  const Tree& tree() const { return tree_; }
  Simulated& machine() { return machine_; }
  /// In mW.
  long limit(std::size_t gpu = 0) {
    return std::lround(machine_.session().machine().limit_watts(gpu) * 1000);
  }
  std::vector<std::string> words(std::vector<std::string> more = {}) {
    std::vector<std::string> out = {ZEUSD_BINARY,
                                    "serve",
                                    "--host",
                                    "sim:" + machine_.session().folder().string(),
                                    "--allow-simulated",
                                    "--socket-path",
                                    socket(),
                                    "--journal",
                                    journal().string()};
    // Nobody reads what it logs before its end.
    if (std::find(more.begin(), more.end(), "--log-level") == more.end()) {
      out.insert(out.end(), {"--log-level", "warn"});
    }
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  Wire wire() const { return Wire(socket()); }
  /// One request on a connection of its own.
  std::string ask(const std::string& line, const std::string& headers = {}) const {
    Wire w = wire();
    w.send(line + " HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n");
    return w.answer(line.starts_with("HEAD ")).text();
  }
  int status(const std::string& line) const { return Wire::status_of(ask(line)); }

 private:
  Tree tree_;
  Simulated machine_;
};

/// A daemon of the real binary, killed with the test that forgets it.
class Zeusd {
 public:
  /// `prefix`: what runs it, such as a shell that sets a limit before.
  explicit Zeusd(Place& place, const std::vector<std::string>& more = {},
                 std::vector<std::string> prefix = {})
      : place_(place) {
    for (std::string& word : place.words(more)) prefix.push_back(std::move(word));
    process_.emplace(std::move(prefix));
  }
  ~Zeusd() {
    if (process_) end(SIGKILL);
  }
  /// Until it answers; false where it has ended, or for long does not.
  bool ready() {
    const auto end = Wire::Clock::now() + std::chrono::seconds(20);
    while (Wire::Clock::now() < end && alive()) {
      if (place_.wire().connected() && place_.status("GET /time") == 200) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  bool alive() const { return state() != 'Z' && state() != 0; }
  pid_t pid() const { return process_->pid(); }
  void signal(int number) const { process_->signal(number); }
  Process::Result end(int number) {
    signal(number);
    return wait();
  }
  Process::Result wait() {
    Process::Result r = process_->wait();
    process_.reset();
    return r;
  }
  /// Open descriptors, threads, and resident memory in KiB.
  long descriptors() const { return count("fd"); }
  long threads() const { return count("task"); }
  long memory_kib() const {
    std::ifstream in(proc("status"));
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
    }
    return 0;
  }

 private:
  std::string proc(const char* name) const { return "/proc/" + std::to_string(pid()) + '/' + name; }
  long count(const char* name) const {
    std::error_code ec;
    return std::distance(std::filesystem::directory_iterator(proc(name), ec), {});
  }
  char state() const {
    std::ifstream in(proc("stat"));
    std::string line;
    std::getline(in, line);
    const auto name = line.rfind(')');
    return name == std::string::npos ? 0 : line[name + 2];
  }

  Place& place_;
  std::optional<Process> process_;
};

}  // namespace zeus::test
