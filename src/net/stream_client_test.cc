#include "net/stream_client.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/peer.h"

namespace zeus::net {
namespace {

using namespace std::chrono_literals;
using test::Peer;
using Call = Peer::Call;
using State = StreamFollower::State;

constexpr const char* kUpstream =
    R"({"gpus":[{"id":0,"name":"a"}],"cpus":[],"enabled_api_groups":["gpu-read"],"auth_required":false})";
constexpr const char* kOurs =
    R"({"gpus":[{"id":0,"name":"a"}],"enabled_api_groups":["gpu-read","cpu-read"],"features":["heartbeat"]})";
constexpr const char* kHead =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

std::string chunk(std::string_view text) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + std::string(text) + "\r\n";
}
std::string event(int gpu, int mw) {
  return chunk("data: {\"timestamp_ms\":1762000000000,\"gpu_id\":" + std::to_string(gpu) +
               ",\"power_mw\":" + std::to_string(mw) + "}\n\n");
}
std::string time_now(std::chrono::milliseconds ahead = 0ms) {
  const auto now = std::chrono::system_clock::now().time_since_epoch() + ahead;
  return "{\"timestamp_ms\":" +
         std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) + '}';
}

/// Answers what precedes a stream, and hands the stream to `then`.
template <class F>
Peer::Script daemon(const char* discovery, F then) {
  return [discovery, then](const Call& call) {
    if (call.target() == "/discover") {
      call.answer(200, discovery);
    } else if (call.target() == "/time") {
      call.answer(200, time_now());
    } else {
      then(call);
      return false;
    }
    return true;
  };
}

/// A follower on a loop that the test turns.
class Follower {
 public:
  explicit Follower(const std::string& where, StreamFollower::Options options = {})
      : follower_(io_, parse_endpoint(where).value(), quick(std::move(options)),
                  [this](const PowerSample& s) { samples.push_back(s); }) {}

  /// Runs until `done`; false where a patient person would have given up.
  template <class F>
  bool until(F&& done) {
    const Instant end = std::chrono::steady_clock::now() + 20s;
    while (!done() && std::chrono::steady_clock::now() < end) io_.run_one_for(10ms);
    return done();
  }
  StreamFollower::Health health() const { return follower_.health(); }

  std::vector<PowerSample> samples;

 private:
  static StreamFollower::Options quick(StreamFollower::Options options) {
    options.first_delay = 1ms;
    options.most_delay = 20ms;
    return options;
  }
  asio::io_context io_;
  StreamFollower follower_;
};

TEST(StreamFollower, HandsOutTheSamplesOfAStream) {
  Peer peer(daemon(kUpstream, [](const Call& call) {
    call.send(kHead + event(0, 75'000) + event(1, 1'500));
    call.wait();
  }));
  Follower f(peer.where());
  ASSERT_TRUE(f.until([&] { return f.samples.size() == 2; }));
  EXPECT_EQ(f.samples[0].id, 0);
  EXPECT_DOUBLE_EQ(f.samples[0].watts, 75);
  EXPECT_DOUBLE_EQ(f.samples[1].watts, 1.5);
  EXPECT_EQ(f.samples[0].timestamp_ms, 1'762'000'000'000);
  EXPECT_EQ(f.health().state, State::live);
  EXPECT_EQ(f.health().discovery->gpus.size(), 1u);
}

TEST(StreamFollower, HandsOutPackagesAndTheirDram) {
  Peer peer(daemon(kOurs, [](const Call& call) {
    EXPECT_EQ(call.target(), "/cpu/stream_power");
    call.send(
        kHead +
        chunk("data: {\"timestamp_ms\":1,\"cpu_id\":1,\"cpu_mw\":85000,\"dram_mw\":12000}\n\n"
              "data: {\"timestamp_ms\":1,\"cpu_id\":0,\"cpu_mw\":1000,\"dram_mw\":null}\n\n"));
    call.wait();
  }));
  Follower f(peer.where(), {.kind = DeviceInfo::Kind::cpu});
  ASSERT_TRUE(f.until([&] { return f.samples.size() == 2; }));
  EXPECT_DOUBLE_EQ(f.samples[0].watts, 85);
  EXPECT_DOUBLE_EQ(f.samples[0].dram_watts.value(), 12);
  EXPECT_EQ(f.samples[1].dram_watts, std::nullopt);
}

// field failure 162: the daemon's clock is three seconds late, and then two hours early.
TEST(StreamFollower, EstimatesTheClockAnewAfterEachReconnect) {
  std::atomic<std::int64_t> ahead_ms = -3'000;
  Peer peer([&](const Call& call) {
    if (call.target() == "/discover") {
      call.answer(200, kUpstream);
    } else if (call.target() == "/time") {
      call.answer(200, time_now(std::chrono::milliseconds(ahead_ms)));
    } else {
      call.send(kHead + event(0, ahead_ms < 0 ? 1'000 : 2'000));
      ahead_ms = 7'200'000;
      return false;
    }
    return true;
  });
  Follower f(peer.where());
  ASSERT_TRUE(f.until([&] { return f.samples.size() >= 2; }));
  EXPECT_NEAR(f.samples[0].offset_s.value(), 3, 0.5);
  EXPECT_NEAR(f.samples[1].offset_s.value(), -7200, 0.5);
}

TEST(StreamFollower, DoesNotGuessTheClockOfADaemonThatTellsNoTime) {
  Peer peer([](const Call& call) {
    if (call.target() == "/discover") {
      call.answer(200, R"({"gpu_ids":[0]})");
    } else if (call.target() == "/time") {
      call.answer(404, "");
    } else {
      call.send(kHead + event(0, 1'000));
      call.wait();
    }
    return true;
  });
  Follower f(peer.where());
  ASSERT_TRUE(f.until([&] { return f.samples.size() == 1; }));
  EXPECT_EQ(f.samples[0].offset_s, std::nullopt);
}

// field failure 166: a stream that is closed at once is tried again, but not in a spin; what
// cannot be read in it is counted.
TEST(StreamFollower, ComesBackAfterEveryEndAndSkipsWhatItCannotRead) {
  std::atomic<int> streams = 0;
  Peer peer(daemon(kUpstream, [&](const Call& call) {
    if (++streams < 4) {
      call.send(kHead + std::string(streams == 2 ? "0\r\n\r\n" : ""));
      return;
    }
    call.send(kHead + chunk("data: {\"gpu_id\": null}\n\ndata: <html>\n\n") +
              chunk("data: " + std::string(70'000, 'x') + "\n\n") + event(0, 1'000));
    call.wait();
  }));
  Follower f(peer.where());
  ASSERT_TRUE(f.until([&] { return f.samples.size() == 1; }));
  EXPECT_EQ(f.health().bad, 3u);
  EXPECT_EQ(f.health().connects, 4u);
}

// field failure 163: after the connection is lost nothing is handed out as if it were current.
TEST(StreamFollower, SaysThatTheDaemonIsGoneAndFindsItAgain) {
  const auto script = daemon(kUpstream, [](const Call& call) {
    call.send(kHead + event(0, 1'000));
    call.wait();
  });
  Peer peer(script);
  Follower f(peer.where());
  ASSERT_TRUE(f.until([&] { return f.samples.size() == 1; }));
  peer.stop();
  ASSERT_TRUE(f.until([&] { return f.health().why.find("refused") != std::string::npos; }));
  EXPECT_EQ(f.samples.size(), 1u);
  EXPECT_NE(f.health().heard, Instant{});
  peer.start(daemon(kOurs, [](const Call& call) {
    call.send(kHead + event(0, 2'000));
    call.wait();
  }));
  ASSERT_TRUE(f.until([&] { return f.samples.size() == 2; }));
  EXPECT_TRUE(f.health().discovery->has("heartbeat")) << "it was asked anew what it is";
}

// field failure 165: silence is death only where a sign of life was promised.
TEST(StreamFollower, TakesSilenceForDeathOnlyWhereHeartbeatsWerePromised) {
  const auto silent = [](const Call& call) {
    call.send(kHead + event(0, 60'000));
    call.wait();
  };
  Peer upstream(daemon(kUpstream, silent)), ours(daemon(kOurs, silent));
  Follower constant(upstream.where(), {.patience = 50ms}), dead(ours.where(), {.patience = 50ms});
  ASSERT_TRUE(constant.until([&] { return constant.health().state == State::stale; }));
  ASSERT_TRUE(dead.until([&] { return dead.health().connects >= 2; }));
  int turns = 0;
  ASSERT_TRUE(constant.until([&] { return ++turns > 20; }));
  EXPECT_EQ(constant.health().connects, 1u);
}

TEST(StreamFollower, TakesAHeartbeatForASignOfLife) {
  std::atomic<int> beats = 0;
  Peer peer(daemon(kOurs, [&](const Call& call) {
    call.send(kHead + event(0, 60'000));
    while (call.send(chunk(": alive\n\n"))) {
      if (++beats > 130) return call.wait();
      std::this_thread::sleep_for(5ms);
    }
  }));
  Follower f(peer.where(),
             {.patience = 200ms});  // It waits for 600 ms, and the beats go on for 650.
  ASSERT_TRUE(f.until([&] { return beats > 130; }));
  EXPECT_EQ(f.health().connects, 1u);
}

TEST(StreamFollower, DoesNotInsistWhereItIsNotLetIn) {
  for (const int status : {401, 403}) {
    Peer peer(daemon(kUpstream, [&](const Call& call) { call.answer(status, "{}"); }));
    Follower f(peer.where(), {.token = "abc"});
    ASSERT_TRUE(f.until([&] { return f.health().state == State::refused; }));
    EXPECT_NE(f.health().why.find("status " + std::to_string(status)), std::string::npos);
    EXPECT_EQ(peer.connections(), 1u);
  }
}

TEST(StreamFollower, SaysWhatADaemonDoesNotServe) {
  Peer peer(daemon(kUpstream, [](const Call&) {}));
  Follower f(peer.where(), {.kind = DeviceInfo::Kind::cpu});
  ASSERT_TRUE(f.until([&] { return f.health().state == State::down; }));
  EXPECT_EQ(f.health().why, "cannot follow the power of zeusd at " + peer.where() +
                                ": it does not serve cpu-read; start it with --enable cpu-read");
}

TEST(StreamFollower, ConnectsAgainWhereEveryAnswerEndsItsConnection) {
  Peer peer([](const Call& call) {
    if (call.target() == "/gpu/stream_power") {
      call.send(kHead + event(0, 1'000));
      call.wait();
      return false;
    }
    const std::string body = call.target() == "/time" ? time_now() : kUpstream;
    call.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
    return false;
  });
  Follower f(peer.where());
  EXPECT_TRUE(f.until([&] { return f.samples.size() == 1; }));
  EXPECT_EQ(peer.connections(), 7u);
}

TEST(StreamFollower, GivesUpAStepThatTakesTooLong) {
  Peer peer([](const Call& call) {
    call.wait();
    return false;
  });
  Follower f(peer.where(), {.step = 30ms});
  ASSERT_TRUE(f.until([&] { return f.health().state == State::down; }));
  EXPECT_NE(f.health().why.find("did not answer in time"), std::string::npos) << f.health().why;
}

TEST(StreamFollower, EndsAtAnyTime) {
  Peer peer(daemon(kUpstream, [](const Call& call) {
    call.send(kHead + event(0, 1'000));
    call.wait();
  }));
  for (int turns = 0; turns < 20; ++turns) {
    asio::io_context io;
    int samples = 0;
    {
      const StreamFollower f(io, parse_endpoint(peer.where()).value(), {},
                             [&](const PowerSample&) { ++samples; });
      for (int i = 0; i < turns; ++i) io.run_one_for(5ms);
    }
    const int before = samples;
    io.run_for(1s);  // Ends at once: nothing is left to do.
    EXPECT_TRUE(io.stopped());
    EXPECT_EQ(samples, before);
  }
}

}  // namespace
}  // namespace zeus::net
