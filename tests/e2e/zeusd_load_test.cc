#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "e2e/zeusd.h"

// Many clients of every kind at once. What a sanitizer finds in the daemon it says on its standard
// error, and the daemon's exit status tells of it.

namespace zeus::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// One client: it does one thing after the other, each drawn by lot.
class Client {
 public:
  Client(const Place& place, unsigned seed) : place_(place), random_(seed), wire_(place.wire()) {}
  /// The statuses that it was given.
  const std::set<int>& statuses() const { return statuses_; }
  unsigned long done() const { return done_; }

  void step() {
    switch (random_() % 10) {
      case 0: return ask("POST /lease/open?ttl_s=5");
      case 1: return ask("POST /lease/renew?lease=" + lease_);
      case 2: return ask("POST /lease/release?lease=" + lease_);
      case 3:
      case 4:
        return ask("POST /gpu/set_power_limit?" + where() + "&power_limit_mw=" + power() +
                   (lease_.empty() ? "" : "&lease=" + lease_));
      case 5: return ask("POST /gpu/reset_locked_clocks?" + where());
      case 6: return stream();
      case 7: return pipe();
      default: return ask(std::string("GET ") + kReads[random_() % std::size(kReads)]);
    }
  }

 private:
  static constexpr const char* kReads[] = {"/discover",
                                           "/time",
                                           "/metrics",
                                           "/healthz",
                                           "/lease/list",
                                           "/gpu/get_power",
                                           "/gpu/get_cumulative_energy",
                                           "/gpu/get_power_limit?gpu_ids=1",
                                           "/gpu/get_power_limit_constraints",
                                           "/gpu/get_persistence_mode",
                                           "/cpu/get_cumulative_energy?cpu=true&dram=true",
                                           "/cpu/get_power",
                                           "/gpu/nothing"};

  std::string where() {
    return std::string(random_() % 2 == 0 ? "gpu_ids=0" : "gpu_ids=0,1") +
           (random_() % 2 == 0 ? "&block=true" : "&block=false");
  }
  std::string power() { return std::to_string(100'000 + random_() % 200'000); }

  void ask(const std::string& line) {
    if (random_() % 16 == 0 || !wire_.connected()) wire_ = place_.wire();
    wire_.send(line + " HTTP/1.1\r\nHost: h\r\n\r\n");
    const std::string answer = wire_.answer().text();
    statuses_.insert(Wire::status_of(answer));
    ++done_;
    const auto at = answer.find("{\"lease\":\"");
    if (line.find("/open") != std::string::npos && at != std::string::npos) {
      lease_ = answer.substr(at + 10, 32);
    }
  }
  /// Comes, listens for a moment, and goes without a word.
  void stream() {
    Wire w = place_.wire();
    w.send(std::string("GET ") + (random_() % 2 == 0 ? "/gpu" : "/cpu") +
           "/stream_power HTTP/1.1\r\nHost: h\r\n\r\n");
    statuses_.insert(w.status(true));
    for (auto n = random_() % 4; n > 0; --n) (void)w.until("\n\n\r\n");
    ++done_;
  }
  void pipe() {
    std::string all;
    for (int i = 0; i < 8; ++i) all += "GET /gpu/get_power HTTP/1.1\r\nHost: h\r\n\r\n";
    Wire w = place_.wire();
    w.send(all);
    for (auto n = random_() % 9; n > 0; --n) statuses_.insert(w.status());
    ++done_;
  }

  const Place& place_;
  std::mt19937 random_;
  Wire wire_;
  std::string lease_;
  std::set<int> statuses_;
  unsigned long done_ = 0;
};

TEST(ZeusdLoad, ServesManyClientsOfEveryKindAtOnce) {
  Place place;
  Zeusd d(place, {"--num-workers", "4", "--gpu-power-poll-hz", "100"});
  ASSERT_TRUE(d.ready());
  constexpr unsigned kClients = 64;
  std::vector<Client> clients;
  for (unsigned i = 0; i < kClients; ++i) clients.emplace_back(place, i);
  std::vector<std::thread> threads;
  const auto end = Clock::now() + 2s;
  for (Client& c : clients) {
    threads.emplace_back([&c, end] {
      while (Clock::now() < end) c.step();
    });
  }
  for (std::thread& t : threads) t.join();
  // A lease may have ended, another may hold the knob, the queue may be full; nothing else.
  const std::set<int> expected = {200, 400, 404, 409, 429};
  for (const Client& c : clients) {
    EXPECT_GT(c.done(), 0U);
    for (const int status : c.statuses()) EXPECT_TRUE(expected.contains(status)) << status;
  }
  const auto r = d.end(SIGTERM);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_TRUE(std::filesystem::is_empty(place.journal()));
  EXPECT_GE(place.limit(), 100'000);
  EXPECT_LE(place.limit(), 300'000);
}

// It stops while they all still ask.
TEST(ZeusdLoad, EndsInOrderUnderFullLoad) {
  Place place;
  Zeusd d(place);
  ASSERT_TRUE(d.ready());
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 32; ++i) {
    threads.emplace_back([&, i] {
      Client c(place, 1000 + i);
      while (!over) c.step();
    });
  }
  std::this_thread::sleep_for(300ms);
  const auto r = d.end(SIGTERM);
  over = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_TRUE(std::filesystem::is_empty(place.journal()));
}

}  // namespace
}  // namespace zeus::test
