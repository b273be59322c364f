#pragma once

// The real daemon over a simulated machine, and clients of it: over real sockets, byte by byte
// where the bytes matter.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/process.h"
#include "support/simulated.h"
#include "support/tree.h"

namespace zeus::test {

using Json = nlohmann::json;
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

struct Answer {
  int status = 0;
  std::string head{}, body{};

  /// A header's value; empty where there is none.
  std::string header(const std::string& name) const {
    const auto at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const auto from = at + name.size() + 4;
    return head.substr(from, head.find("\r\n", from) - from);
  }
  Json json() const { return Json::parse(body, nullptr, false); }
  /// The text of {"errors": {"1": "..."}}, or of {"error": "..."} for no id.
  std::string error(const std::string& id = {}) const {
    const Json j = json();
    const Json& e = id.empty() ? j : j.contains("errors") ? j["errors"] : Json();
    const std::string key = id.empty() ? "error" : id;
    return e.is_object() && e.contains(key) ? e[key].get<std::string>() : std::string();
  }
};

/// One connection.
class Wire {
 public:
  explicit Wire(const std::string& where, int receive_buffer = 0) {
    const bool local = where.starts_with('/');
    fd_ = ::socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer != 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    if (local) {
      sockaddr_un a{};
      a.sun_family = AF_UNIX;
      where.copy(a.sun_path, sizeof a.sun_path - 1);
      ok_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
    } else {
      sockaddr_in a{};
      a.sin_family = AF_INET;
      a.sin_port = htons(static_cast<std::uint16_t>(std::stoi(where.substr(where.find(':') + 1))));
      a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ok_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
    }
  }
  Wire(Wire&& o) noexcept
      : fd_(std::exchange(o.fd_, -1)), ok_(o.ok_), in_(std::move(o.in_)), over_(o.over_) {}
  Wire& operator=(Wire&&) = delete;
  ~Wire() { close(); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  bool connected() const { return ok_; }

  void send(std::string_view bytes) const {
    (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// "GET /path", and further lines of the head.
  void request(const std::string& line, const std::string& headers = {}) const {
    send(line + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  }
  /// One whole answer. Status 0: none came.
  Answer answer() {
    Answer a;
    a.head = until("\r\n\r\n");
    if (a.head.size() < 12) return a;
    a.status = std::stoi(a.head.substr(9, 3));
    const std::string length = a.header("content-length");
    if (!length.empty()) a.body = take(std::stoul(length));
    return a;
  }
  Answer ask(const std::string& line, const std::string& headers = {}) {
    request(line, headers);
    return answer();
  }
  /// One chunk of a stream; empty at its end, or where none comes in time.
  std::string chunk(std::chrono::milliseconds patience = 20s) {
    const std::string size = until("\r\n", patience);
    if (size.empty()) return {};
    const std::string text = take(std::stoul(size, nullptr, 16));
    (void)take(2);
    return text;
  }
  /// Whether the other side has closed, after everything that came before.
  bool ended() {
    while (read_some(20s)) {
    }
    return over_;
  }

 private:
  std::string until(std::string_view mark, std::chrono::milliseconds patience = 20s) {
    while (in_.find(mark) == std::string::npos) {
      if (!read_some(patience)) return {};
    }
    return take(in_.find(mark) + mark.size());
  }
  std::string take(std::size_t n) {
    while (in_.size() < n && read_some(20s)) {
    }
    const std::string out = in_.substr(0, n);
    in_.erase(0, n);
    return out;
  }
  bool read_some(std::chrono::milliseconds patience) {
    pollfd p{fd_, POLLIN, 0};
    if (over_ || ::poll(&p, 1, static_cast<int>(patience.count())) <= 0) return false;
    char buffer[16384];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) {
      over_ = true;
      return false;
    }
    in_.append(buffer, static_cast<std::size_t>(n));
    return true;
  }

  int fd_ = -1;
  bool ok_ = false;
  std::string in_;
  bool over_ = false;
};

/// `zeusd serve` in a process of its own, on a Unix socket and a TCP port.
class Daemon {
 public:
  explicit Daemon(Simulated& sim, Words arguments = {}) : sim_(sim), arguments_(arguments) {
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
    process_ = std::make_unique<Process>(words);
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

  std::string socket() const { return tree_.root() / "z.sock"; }
  const std::string& tcp() const { return tcp_; }
  std::string journal() const { return tree_.root() / "journal"; }
  std::string audit_file() const { return tree_.root() / "audit.log"; }
  std::filesystem::path folder() const { return tree_.root(); }
  pid_t pid() const { return process_->pid(); }

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
