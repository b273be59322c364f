#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "e2e/zeusd.h"
#include "net/listen.h"
#include "support/signed_token.h"

namespace zeus::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr std::string_view kSet = "POST /gpu/set_power_limit?gpu_ids=0&block=true&power_limit_mw=";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr long kMostKib = 2 << 20;  // They need the most of it.
#else
constexpr long kMostKib = 100 << 10;  // 10 KiB a connection.
#endif

constexpr std::string_view kKey = "a key of thirty-two bytes or more";

std::string token(std::string_view claims) {
  return signed_token(R"({"typ":"JWT","alg":"HS256"})", claims, kKey);
}

std::string set(long mw, const std::string& lease = {}) {
  return std::string(kSet) + std::to_string(mw) + (lease.empty() ? "" : "&lease=" + lease);
}

/// The id of a lease that lives for as long as its heartbeats come.
std::string open_lease(const Place& place) {
  const std::string answer = place.ask("POST /lease/open?ttl_s=60", "Zeus-Protocol: 1\r\n");
  const auto at = answer.find("\"lease\":\"");
  EXPECT_NE(at, std::string::npos) << answer;
  return at == std::string::npos ? std::string() : answer.substr(at + 9, 32);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(folder, ec)) out.push_back(e.path().filename());
  return out;
}

/// A shell that does this first, and then becomes the daemon.
std::vector<std::string> after(const std::string& command) {
  return {"/bin/sh", "-c", command + "; exec \"$@\"", "sh"};
}

bool one_sentence(const std::string& err) {
  return err.find('\n') == err.size() - 1 && err.find(" error ") != std::string::npos;
}

TEST(ZeusdHostile, ServesOnThroughGarbageOnBothSockets) {
  Place place;
  std::string port;
  (void)net::listen_tcp("127.0.0.1:0", port);  // One that is free.
  Zeusd d(place, {"--mode", "uds,tcp", "--tcp-bind-address", port});
  ASSERT_TRUE(d.ready());
  std::mt19937 random(20261130);
  const std::string pieces[] = {"GET ",
                                "POST ",
                                "/gpu/get_power",
                                "/gpu/set_power_limit?",
                                "gpu_ids=0",
                                "&",
                                "%",
                                "%2",
                                "%00",
                                "\r\n",
                                "\r\n\r\n",
                                " HTTP/1.1\r\n",
                                "Host: h\r\n",
                                "Content-Length: ",
                                "Transfer-Encoding: chunked\r\n",
                                "99999999999",
                                "\xff\xfe",
                                "\xc3\x28",
                                std::string(3, '\0'),
                                ": ",
                                "Authorization: Bearer ",
                                "Expect: 100-continue\r\n"};
  for (int i = 0; i < 400; ++i) {
    std::string bytes;
    const auto n = random() % 20;
    for (unsigned k = 0; k < n; ++k) {
      if (random() % 4 == 0) {
        bytes += static_cast<char>(random());
      } else {
        bytes += pieces[random() % std::size(pieces)];
      }
    }
    Wire w(i % 2 == 0 ? place.socket() : port);
    ASSERT_TRUE(w.connected()) << i;
    w.send(bytes);
    w.half_close();
    if (i % 8 == 0) (void)w.rest();
  }
  EXPECT_EQ(place.status("GET /gpu/get_power"), 200);
  EXPECT_EQ(place.limit(), 300'000);
  EXPECT_EQ(d.end(SIGTERM).status, 0);
}

TEST(ZeusdHostile, AnswersInUtf8WhateverItWasAsked) {
  Place place;
  Zeusd d(place);
  ASSERT_TRUE(d.ready());
  // A cut in the middle of a character, overlong forms, bytes that are none, and ends of lines.
  const std::string umlauts = [] {
    std::string text = "x";
    for (int i = 0; i < 100; ++i) text += "%C3%A4";
    return text;
  }();
  for (const std::string& target :
       {"/gpu/get_power?gpu_ids=" + umlauts, "/gpu/get_power?" + umlauts + "=1",
        "/lease/renew?lease=" + umlauts, std::string("/gpu/get_power?gpu_ids=%FF"),
        std::string("/gpu/get_power?%C0%AF=1"), std::string("/%FF"), std::string("/a%0D%0Ab"),
        std::string("/gpu/get_power?gpu_ids=\xff\xfe"),
        std::string("/gpu/get_power?gpu_ids=0%00")}) {
    const std::string method = target.starts_with("/lease") ? "POST " : "GET ";
    const std::string answer = place.ask(method + target);
    EXPECT_GE(Wire::status_of(answer), 400) << target << '\n' << answer;
    EXPECT_LT(Wire::status_of(answer), 500) << target << '\n' << answer;
    const auto body = answer.find("\r\n\r\n") + 4;
    if (answer[body] == '{') {
      EXPECT_TRUE(nlohmann::json::accept(answer.substr(body))) << answer;
    }
  }
  EXPECT_EQ(Wire::status_of(place.ask("GET /time", "Zeus-Protocol: \xff\xc3\r\n")), 400);
  EXPECT_EQ(place.status("GET /time"), 200);
}

// Nobody without the scope changes anything, however the path is written.
TEST(ZeusdHostile, LetsNobodyThroughByAnotherSpellingOfThePath) {
  Place place;
  const fs::path key = place.tree().root() / "key";
  std::ofstream(key) << kKey;
  fs::permissions(key, fs::perms::owner_read);
  Zeusd d(place, {"--signing-key-path", key.string()});
  ASSERT_TRUE(d.ready());
  const auto bearer = [](const std::string& claims) {
    return "Authorization: Bearer " + token(claims) + "\r\n";
  };
  const std::string reader = bearer(R"({"sub":"r","scopes":["gpu-read","cpu-read"]})"),
                    nobody = bearer(R"({"sub":"n","scopes":[]})"),
                    control = bearer(R"({"sub":"c","scopes":["gpu-control"]})");
  const std::string query = "?gpu_ids=0&power_limit_mw=200000&block=true";
  for (const std::string path :
       {"/gpu/set_power_limit", "/gpu/%73et_power_limit", "/%67pu/set_power_limit",
        "/gpu/set_power%5Flimit", "/%67%70%75/%73%65%74%5f%70%6f%77%65%72%5f%6c%69%6d%69%74",
        "//gpu/set_power_limit", "/gpu//set_power_limit", "/gpu/./set_power_limit",
        "/time/../gpu/set_power_limit", "/discover/%2e%2e/gpu/set_power_limit",
        "/gpu%2Fset_power_limit", "/gpu/set_power_limit/", "/GPU/set_power_limit",
        "/gpu/set_power_limit%00", "/gpu/set_power_limit%3F", "/gpu\\set_power_limit"}) {
    for (const std::string& headers : {std::string(), reader, nobody, "X: " + control,
                                       "authorization:" + reader.substr(14) + control,
                                       std::string("Authorization: Bearer \r\n")}) {
      for (const char* method : {"POST ", "GET ", "PUT ", "HEAD "}) {
        const int status = Wire::status_of(place.ask(method + path + query, headers));
        EXPECT_TRUE(status >= 400 && status < 500) << method << path << ' ' << status;
      }
      ASSERT_EQ(place.limit(), 300'000) << path;
    }
  }
  EXPECT_EQ(Wire::status_of(place.ask("POST /gpu/%73et_power_limit" + query, control)), 200);
  EXPECT_EQ(place.limit(), 200'000);
}

// A token is judged by the wall clock, with 60 s for clocks that differ; a stream ends with it.
TEST(ZeusdHostile, EndsWhatATokenAllowsWithTheToken) {
  Place place;
  const fs::path key = place.tree().root() / "key";
  std::ofstream(key) << kKey;
  fs::permissions(key, fs::perms::owner_read);
  Zeusd d(place, {"--signing-key-path", key.string()});
  ASSERT_TRUE(d.ready());
  const auto until = [](long seconds) {
    return "Authorization: Bearer " +
           token(R"({"sub":"r","scopes":["gpu-read"],"exp":)" +
                 std::to_string(std::time(nullptr) + seconds) + "}") +
           "\r\n";
  };
  EXPECT_EQ(Wire::status_of(place.ask("GET /gpu/get_power", until(-70))), 401);
  EXPECT_EQ(Wire::status_of(place.ask("GET /gpu/get_power", until(-30))), 200);
  Wire w = place.wire();
  ASSERT_TRUE(w.send("GET /gpu/stream_power HTTP/1.1\r\nHost: h\r\n" + until(1) + "\r\n"));
  EXPECT_TRUE(w.rest().ends_with("\r\n0\r\n\r\n"));
}

TEST(ZeusdHostile, ServesOneClientWhileTenThousandHoldTheirConnections) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 12'000) {
    GTEST_SKIP() << "no more than " << limit.rlim_max << " descriptors: ulimit -n";
  }
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  Place place;
  Zeusd d(place);
  ASSERT_TRUE(d.ready());
  const long before = d.memory_kib();
  Wire client = place.wire();
  const std::string ask = "GET /gpu/get_power HTTP/1.1\r\nHost: h\r\n\r\n";
  std::vector<Wire> idle;
  for (int i = 0; i < 10'000; ++i) {
    idle.push_back(place.wire());
    ASSERT_TRUE(idle.back().connected()) << i;
    if (i % 2 == 0) idle.back().send("GET /gpu/get_power HT");  // Slowloris.
    EXPECT_TRUE(i % 1000 != 0 || client.raw(ask) == 200);
  }
  EXPECT_EQ(client.raw(ask), 200);
  EXPECT_EQ(place.status("GET /gpu/get_power"), 200);
  EXPECT_GT(d.descriptors(), 10'000);
  EXPECT_LT(d.memory_kib() - before, kMostKib);
  idle.clear();
  const auto end = Clock::now() + 10s;
  while (d.descriptors() > 100 && Clock::now() < end) std::this_thread::sleep_for(5ms);
  EXPECT_LT(d.descriptors(), 100);
  EXPECT_EQ(d.end(SIGTERM).status, 0);
}

TEST(ZeusdHostile, LeaksNeitherDescriptorsNorThreads) {
  Place place;
  Zeusd d(place);
  ASSERT_TRUE(d.ready());
  const auto all = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      EXPECT_EQ(place.status("GET /gpu/get_power"), 200);
      EXPECT_EQ(place.status("GET /nothing"), 404);
      EXPECT_EQ(place.status(set(200'000)), 200);
      const std::string lease = open_lease(place);
      EXPECT_EQ(place.status(set(250'000, lease)), 200);
      EXPECT_EQ(place.status("POST /lease/release?lease=" + lease), 200);
      Wire stream = place.wire(), half = place.wire(), gone = place.wire(), bad = place.wire();
      stream.send("GET /gpu/stream_power HTTP/1.1\r\nHost: h\r\n\r\n");
      (void)stream.until("data: ");
      half.send("GET /cpu/get_power HTTP/1.1\r\nHost: h\r\n\r\n");
      half.half_close();
      gone.send("GET /cpu/get_power HTTP/1.1\r\nHost: h\r\n\r\n");
      bad.send("\r\n\r\n\r\n\r\n");
    }
    std::this_thread::sleep_for(300ms);
  };
  all(2);
  // What is being closed is closed soon.
  const auto settled = [&] {
    long before = 0, now = d.descriptors();
    do {
      before = now;
      std::this_thread::sleep_for(200ms);
      now = d.descriptors();
    } while (now < before);
    return now;
  };
  const long descriptors = settled(), threads = d.threads();
  all(25);
  EXPECT_LE(settled(), descriptors);
  EXPECT_LE(d.threads(), threads);
  EXPECT_TRUE(names_in(place.journal()).empty());
}

/// Killed at every point of a write: a GPU is left at what it was, or at what somebody asked for
/// who let it stay.
class Killed : public testing::TestWithParam<bool> {};

TEST_P(Killed, LeavesNoGpuAtAValueThatNobodyAskedFor) {
  const bool leased = GetParam();
  // A driver that takes its time: most of them die within the write.
  Place place("[nvml]\nlatency = \"500us\"\n" + std::string(kTwoGpus));
  std::mt19937 random(leased ? 1 : 2);
  long former = 300'000;
  for (int round = 0; round < 20; ++round) {
    const long wanted = 100'000 + static_cast<long>(random() % 200) * 1000;
    int answered = 0;
    {
      Zeusd d(place);
      ASSERT_TRUE(d.ready());
      ASSERT_EQ(place.limit(), former) << "the start changed it";
      const std::string lease = leased ? open_lease(place) : std::string();
      Wire w = place.wire();
      ASSERT_TRUE(w.send(set(wanted, lease) + " HTTP/1.1\r\nHost: h\r\n\r\n"));
      std::this_thread::sleep_for(
          std::chrono::microseconds(random() % (round % 2 == 0 ? 5'000 : 20'000)));
      d.signal(SIGKILL);
      answered = w.status();
      (void)d.wait();
    }
    // The next daemon takes the leases over, and gives them back when it ends in order.
    Zeusd next(place);
    ASSERT_TRUE(next.ready());
    if (!leased) {
      EXPECT_TRUE(place.limit() == wanted || (answered != 200 && place.limit() == former))
          << "asked for " << wanted << ", was " << former << ", is " << place.limit();
      former = place.limit();
    }
    EXPECT_EQ(next.end(SIGTERM).status, 0);
    EXPECT_EQ(place.limit(), former) << "asked for " << wanted;
    EXPECT_TRUE(names_in(place.journal()).empty());
  }
}

INSTANTIATE_TEST_SUITE_P(ZeusdHostile, Killed, testing::Bool(),
                         [](const auto& p) { return p.param ? "UnderALease" : "WithoutOne"; });

TEST(ZeusdHostile, ChangesNothingWhereTheDiskUnderItsJournalIsFull) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to mount a disk that is full";
  Place place;
  const std::string journal = place.journal().string();
  Zeusd d(place, {},
          {"/usr/bin/unshare", "-m", "/bin/sh", "-c",
           "mkdir -p " + journal + " && mount -t tmpfs -o size=8k,mode=700 none " + journal +
               " && { cat /dev/zero > " + journal + "/full 2>/dev/null; exec \"$@\"; }",
           "sh"});
  ASSERT_TRUE(d.ready());
  for (const std::string& lease : {std::string(), open_lease(place)}) {
    const std::string answer = place.ask(set(200'000, lease));
    EXPECT_GE(Wire::status_of(answer), 400) << answer;
    EXPECT_NE(answer.find("cannot write "), std::string::npos) << answer;
    EXPECT_NE(answer.find("No space left on device"), std::string::npos) << answer;
    EXPECT_EQ(place.limit(), 300'000);
  }
  EXPECT_EQ(place.status("GET /gpu/get_power"), 200);
}

TEST(ZeusdHostile, ChangesNothingWhereItsFilesMayNotGrow) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer keeps its shadow in a file";
#endif
  Place place;
  Zeusd d(place, {}, after("ulimit -f 0"));
  ASSERT_TRUE(d.ready());
  const std::string answer = place.ask(set(200'000, open_lease(place)));
  EXPECT_NE(answer.find("cannot write "), std::string::npos) << answer;
  EXPECT_EQ(place.limit(), 300'000);
  EXPECT_TRUE(names_in(place.journal()).empty());
  EXPECT_TRUE(d.alive());
}

TEST(ZeusdHostile, SaysThatItCannotKeepAJournal) {
  Place place;
  std::ofstream(place.journal()) << "a file";
  Zeusd d(place);
  const auto r = d.wait();
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(one_sentence(r.err)) << r.err;
  EXPECT_NE(r.err.find("cannot keep a journal in " + place.journal().string()), std::string::npos);
  EXPECT_FALSE(fs::exists(place.socket()));
}

TEST(ZeusdHostile, EndsFiftyStreamsWithinTwoSeconds) {
  Place place;
  Zeusd d(place);
  ASSERT_TRUE(d.ready());
  std::vector<Wire> streams;
  for (int i = 0; i < 50; ++i) {
    streams.push_back(place.wire());
    streams.back().send("GET /gpu/stream_power HTTP/1.1\r\nHost: h\r\n\r\n");
  }
  for (Wire& w : streams) ASSERT_FALSE(w.until("data: ").empty());
  const auto begin = Clock::now();
  EXPECT_EQ(d.end(SIGTERM).status, 0);
  EXPECT_LT(Clock::now() - begin, 2s);
  for (Wire& w : streams) EXPECT_TRUE(w.rest().ends_with("\r\n0\r\n\r\n"));
  EXPECT_FALSE(fs::exists(place.socket()));
}

TEST(ZeusdHostile, EndsThoughAGpuHangs) {
  Place place;
  Zeusd d(place);
  ASSERT_TRUE(d.ready());
  sim::Fault hang;
  hang.what = sim::Fault::What::block;
  hang.device = 0;
  hang.calls = sim::calls_named("all");
  hang.block = 120'000'000'000;  // 2 minutes, in ns.
  ASSERT_TRUE(place.machine().session().fault(hang));
  Wire read = place.wire(), write = place.wire(), stream = place.wire();
  read.send("GET /gpu/get_power?gpu_ids=0 HTTP/1.1\r\nHost: h\r\n\r\n");
  write.send(set(200'000) + " HTTP/1.1\r\nHost: h\r\n\r\n");
  stream.send("GET /gpu/stream_power HTTP/1.1\r\nHost: h\r\n\r\n");
  (void)stream.until("\"gpu_id\":1");
  EXPECT_EQ(place.status("GET /gpu/get_power?gpu_ids=1"), 200);
  const auto begin = Clock::now();
  const auto r = d.end(SIGTERM);
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("a call of a driver does not return"), std::string::npos) << r.err;
  EXPECT_FALSE(fs::exists(place.socket()));
}

// What would be opened in their place must not be written the log.
TEST(ZeusdHostile, RunsWithoutStandardStreams) {
  Place place;
  Zeusd d(place, {"--log-level", "trace"}, after("exec <&- >&- 2>&-"));
  ASSERT_TRUE(d.ready());
  for (int fd = 0; fd < 3; ++fd) {
    const auto link = "/proc/" + std::to_string(d.pid()) + "/fd/" + std::to_string(fd);
    EXPECT_EQ(fs::read_symlink(link), "/dev/null");
  }
  EXPECT_EQ(place.status(set(200'000)), 200);
  EXPECT_EQ(d.end(SIGTERM).status, 0);
}

TEST(ZeusdHostile, RefusesASocketThatAnotherDaemonServes) {
  Place place;
  Zeusd first(place);
  ASSERT_TRUE(first.ready());
  Zeusd second(place);
  const auto r = second.wait();
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(one_sentence(r.err)) << r.err;
  EXPECT_NE(r.err.find("cannot listen on " + place.socket() + ": another daemon"),
            std::string::npos);
  EXPECT_EQ(place.status("GET /time"), 200);
  (void)first.end(SIGKILL);
  // Nothing but the name and its lock, which the next one takes over.
  auto left = names_in(place.tree().root());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"journal", "zeusd.sock", "zeusd.sock.lock"}));
  Zeusd third(place);
  ASSERT_TRUE(third.ready());
  EXPECT_EQ(third.end(SIGTERM).status, 0);
  EXPECT_EQ(names_in(place.tree().root()), std::vector<std::string>{"journal"});
}

TEST(ZeusdHostile, KeepsItsNameWhereDescriptorsRunOut) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer takes a pipe to look at an object";
#endif
  Place place;
  Zeusd d(place, {}, after("ulimit -n 64"));
  ASSERT_TRUE(d.ready());
  {
    std::vector<Wire> many;
    for (int i = 0; i < 300; ++i) {
      many.push_back(place.wire());
      many.back().send("GET /gpu/stream_power HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    std::this_thread::sleep_for(200ms);
    EXPECT_TRUE(d.alive());
  }
  const auto end = Clock::now() + 10s;
  int status = 0;
  while (status != 200 && Clock::now() < end) status = place.status("GET /gpu/get_power");
  EXPECT_EQ(status, 200);
  EXPECT_EQ(place.status("GET /healthz"), 200);
  EXPECT_EQ(place.status(set(200'000, open_lease(place))), 200);
  EXPECT_EQ(d.end(SIGTERM).status, 0);
  EXPECT_EQ(place.limit(), 300'000);
}

}  // namespace
}  // namespace zeus::test
