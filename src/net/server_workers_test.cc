#include <gtest/gtest.h>
#include <time.h>

#include "net/peer.h"
#include "support/net_server.h"

namespace zeus::net {
namespace {

/// Says which worker answered, and what it was asked. "/spin" takes the processor for 5 ms.
class Names final : public Handler {
 public:
  asio::awaitable<Response> handle(const Request& request, WorkerRef worker) override {
    if (request.path == "/spin") spin();
    Response r;
    r.body = std::to_string(worker.index) + ' ' + std::string(request.query);
    co_return r;
  }

 private:
  static void spin() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    const auto end = t.tv_nsec + 5'000'000;
    while (t.tv_nsec < end && t.tv_nsec + 900'000'000 > end) {
      ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    }
  }
};

struct ServerWorkers : testing::Test {
  test::Tree tree;
  Names names;
  std::optional<UnixListener> listener;
  std::optional<Server> server;
  std::string port;

  void start(Server::Options options) {
    server.emplace(std::move(options), names);
    listener = UnixListener::open(tree.root() / "s", {}).value();
    (void)server->listen(std::move(*listener).take());
    (void)server->listen(listen_tcp("127.0.0.1:0", port).value());
    server->start();
  }
  std::string path() const { return (tree.root() / "s").string(); }
};

TEST_F(ServerWorkers, OneServesForAsLongAsItKeepsUp) {
  Server::Options o;
  o.workers = 4;
  start(o);
  std::vector<Wire> wires;
  for (int i = 0; i < 40; ++i) wires.emplace_back(i % 2 == 0 ? path() : port);
  for (Wire& w : wires) EXPECT_EQ(w.ask("GET /?a").body, "0 a");
}

TEST_F(ServerWorkers, OthersTakeConnectionsOverFromOneThatDoesNot) {
  Server::Options o;
  o.workers = 3;
  o.busy = 0.02;
  start(o);
  std::vector<Wire> wires;
  for (int i = 0; i < 8; ++i) wires.emplace_back(i % 2 == 0 ? path() : port);
  const std::string one = "GET /spin?1 HTTP/1.1\r\nHost: h\r\n\r\n",
                    two = "GET /?2 HTTP/1.1\r\nHost: h\r\n\r\n";
  std::vector<std::size_t> by_worker(3);
  ASSERT_TRUE(soon([&] {
    for (Wire& w : wires) EXPECT_TRUE(w.send(one + two));
    for (Wire& w : wires) {
      const std::string first = w.answer().body, second = w.answer().body;
      EXPECT_EQ(first.substr(1), " 1");
      EXPECT_EQ(second.substr(1), " 2") << "what was piped behind it goes with the connection";
      if (first.size() == 3) ++by_worker[static_cast<std::size_t>(first[0] - '0')];
    }
    return by_worker[1] > 0 && by_worker[2] > 0;
  }));
  EXPECT_EQ(server->count().accepted, 8U);
  EXPECT_TRUE(soon([&] { return server->count().open == 8; }));
}

TEST_F(ServerWorkers, OneHostGetsNoMoreConnectionsThanItsShare) {
  Server::Options o;
  o.per_peer = 3;
  start(o);
  std::vector<Wire> wires;
  for (int i = 0; i < 3; ++i) {
    wires.emplace_back(port);
    EXPECT_EQ(wires.back().raw(kGet), 200);
  }
  for (const char* address : {"127.0.0.1", "127.0.0.2"}) {
    Wire more(port, 0, address);
    const test::Answer a = more.answer();
    EXPECT_EQ(a.status, 429);
    EXPECT_EQ(a.error(),
              "loopback has 3 connections open, the most of one user or host; close some, or start "
              "the daemon with a larger --max-connections-per-peer");
    EXPECT_TRUE(more.ended());
  }
  EXPECT_EQ(server->count().refused, 2U);
  EXPECT_EQ(Wire(path()).raw(kGet), 200);
  wires.pop_back();
  EXPECT_TRUE(soon([&] { return Wire(port).raw(kGet) == 200; }));
}

sockaddr_storage at(int family, const char* text) {
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  void* const place = family == AF_INET
                          ? static_cast<void*>(&reinterpret_cast<sockaddr_in&>(address).sin_addr)
                          : &reinterpret_cast<sockaddr_in6&>(address).sin6_addr;
  EXPECT_EQ(::inet_pton(family, text, place), 1);
  return address;
}

TEST(Peers, AreCountedByWhatAHostCannotChoose) {
  EXPECT_EQ(tcp_peer(at(AF_INET, "10.0.0.7")).who, "10.0.0.7");
  EXPECT_EQ(tcp_peer(at(AF_INET6, "::ffff:10.0.0.7")).who, "10.0.0.7");
  EXPECT_EQ(tcp_peer(at(AF_INET6, "2001:db8:1:2:3:4:5:6")).who, "2001:db8:1:2::/64");
  for (const char* here : {"127.0.0.1", "127.9.9.9"}) {
    EXPECT_EQ(tcp_peer(at(AF_INET, here)).who, "loopback");
  }
  for (const char* here : {"::1", "::ffff:127.0.0.2"}) {
    EXPECT_EQ(tcp_peer(at(AF_INET6, here)).who, "loopback");
  }
}

TEST(Peers, RootMayTakeAllSeatsAndOthersTheirShare) {
  Seats seats(2);
  Peer root, user;
  root.local = user.local = true;
  root.uid = 0;
  user.uid = 7;
  user.who = "uid 7";
  std::vector<Seats::Seat> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(seats.take(root).value());
  {
    const auto first = seats.take(user), second = seats.take(user);
    EXPECT_TRUE(first && second);
    EXPECT_FALSE(seats.take(user));
  }
  EXPECT_TRUE(seats.take(user));
}

}  // namespace
}  // namespace zeus::net
