#include "net/client.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <thread>

#include "support/allocations.h"
#include "support/peer.h"

namespace zeus::net {
namespace {

using namespace std::chrono_literals;
using test::Peer;
using Call = Peer::Call;

std::unique_ptr<Client> client(const std::string& where, Client::Options options = {}) {
  return std::move(*Client::create(parse_endpoint(where).value(), std::move(options)));
}

/// Short times, for servers that never answer.
Client::Options hurried() { return {.connect = 200ms, .exchange = 200ms}; }

bool greet(const Call& call) {
  call.answer(200, "hello");
  return true;
}

std::string fault(const Result<HttpResponse>& r, Errc code) {
  if (r) return "status " + std::to_string(r->status);
  EXPECT_EQ(r.error().code, code) << r.error().detail;
  return r.error().detail;
}

TEST(Client, SpeaksOfItselfAndKeepsItsConnection) {
  std::string request;
  Peer peer([&](const Call& call) {
    request = call.request();
    return greet(call);
  });
  const auto c = client(peer.where(), {.token = "abc.def"});
  for (int i = 0; i < 5; ++i) {
    const auto answer = c->get("/discover");
    ASSERT_TRUE(answer) << answer.error().detail;
    EXPECT_EQ(answer->status, 200u);
    EXPECT_EQ(answer->body, "hello");
  }
  EXPECT_EQ(request, "GET /discover HTTP/1.1\r\nHost: " + peer.where() +
                         "\r\nZeus-Protocol: 1\r\nAuthorization: Bearer abc.def\r\n\r\n");
  EXPECT_EQ(peer.connections(), 1u);
}

TEST(Client, PostsWithoutABody) {
  std::string request;
  Peer peer = Peer::at_path([&](const Call& call) {
    request = call.request();
    return greet(call);
  });
  EXPECT_EQ(client(peer.where())->post("/x?a=1").value().status, 200u);
  EXPECT_EQ(request,
            "POST /x?a=1 HTTP/1.1\r\nHost: localhost\r\nZeus-Protocol: 1\r\n"
            "Content-Length: 0\r\n\r\n");
}

TEST(Client, TakesAnyStatusForAnAnswer) {
  Peer peer([](const Call& call) {
    call.answer(503, "{\"error\":\"later\"}");
    return true;
  });
  const auto answer = client(peer.where())->get("/x").value();
  EXPECT_EQ(answer.status, 503u);
  EXPECT_EQ(answer.body, "{\"error\":\"later\"}");
}

TEST(Client, ReadsChunksAndBodiesThatEndWithTheConnection) {
  Peer peer([](const Call& call) {
    if (call.target() == "/chunks") {
      return call.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n") &&
             call.send("2;x=y\r\nde\r\n0\r\n\r\n");
    }
    call.send("HTTP/1.1 200 OK\r\n\r\nto the end");
    return false;
  });
  const auto c = client(peer.where());
  EXPECT_EQ(c->get("/chunks").value().body, "abcde");
  EXPECT_EQ(c->get("/end").value().body, "to the end");
}

TEST(Client, AsksOnceMoreWhereAnIdleConnectionWasClosed) {
  Peer peer([](const Call& call) {
    greet(call);
    return false;  // Although it said nothing of closing.
  });
  const auto c = client(peer.where());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(c->get("/x").value().status, 200u);
  EXPECT_EQ(peer.lines().size(), 3u);
}

TEST(Client, NeverPostsTwice) {
  Peer peer([](const Call& call) {
    if (call.line().starts_with("GET")) return greet(call);
    return false;
  });
  const auto c = client(peer.where());
  EXPECT_TRUE(c->get("/x"));
  EXPECT_NE(fault(c->post("/x"), Errc::lost).find("closed the connection instead of answering"),
            std::string::npos);
  EXPECT_EQ(peer.lines().size(), 2u);
}

TEST(Client, SaysThatNothingListens) {
  std::string where;
  {
    Peer peer(greet);
    where = peer.where();
  }
  EXPECT_EQ(fault(client(where)->get("/x"), Errc::lost),
            "cannot reach zeusd at " + where +
                ": connection refused; is zeusd running? systemctl status zeusd");
  EXPECT_EQ(fault(client("/nonexistent/zeusd.sock")->get("/x"), Errc::absent),
            "cannot reach zeusd at /nonexistent/zeusd.sock: no such file or directory; is zeusd "
            "running? systemctl status zeusd");
}

TEST(Client, SaysThatANameIsNotKnown) {
  const auto detail = fault(client("no-such-host.invalid")->get("/x"), Errc::lost);
  EXPECT_NE(detail.find("the name no-such-host.invalid is not known"), std::string::npos) << detail;
}

TEST(Client, NamesTheGroupThatMayUseTheSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  Peer peer = Peer::at_path(greet);
  ::chmod(std::filesystem::path(peer.where()).parent_path().c_str(), 0755);
  ::chmod(peer.where().c_str(), 0660);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    const auto answer = client(peer.where())->get("/x");
    const bool right = !answer && answer.error().code == Errc::denied &&
                       answer.error().detail.ends_with(
                           "permission denied; join the group root, which owns its socket");
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Client, WaitsNoLongerThanItSaid) {
  Peer silent([](const Call& call) {
    call.wait();
    return false;
  });
  EXPECT_NE(fault(client(silent.where(), hurried())->get("/x"), Errc::busy)
                .find("did not answer in time"),
            std::string::npos);
  // A byte now and then does not put the end off.
  Peer slow([](const Call& call) {
    call.send("HTTP/1.1 200 OK\r\nx: ");
    while (call.send("y")) std::this_thread::sleep_for(10ms);
    return false;
  });
  EXPECT_NE(fault(client(slow.where(), hurried())->get("/x"), Errc::busy).find("in time"),
            std::string::npos);
}

TEST(Client, TellsAnAnswerThatWasCutShortFromAnAnswer) {
  Peer closes([](const Call& call) {
    call.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc");
    return false;
  });
  EXPECT_NE(fault(client(closes.where())->get("/x"), Errc::lost).find("closed the connection"),
            std::string::npos);
  Peer resets([](const Call& call) {
    call.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc");
    call.reset();
    return false;
  });
  EXPECT_NE(fault(client(resets.where())->get("/x"), Errc::lost).find("closed the connection"),
            std::string::npos);
}

TEST(Client, RefusesWhatIsNoHttp) {
  Peer peer([](const Call& call) {
    call.send("SSH-2.0-OpenSSH_9.2\r\n");
    return false;
  });
  EXPECT_NE(fault(client(peer.where())->get("/x"), Errc::malformed).find("speaks no HTTP"),
            std::string::npos);
}

TEST(Client, RefusesMoreThanAnybodyAskedFor) {
  Peer body([](const Call& call) {
    call.send("HTTP/1.1 200 OK\r\ncontent-length: 16777217\r\n\r\n");
    call.wait();
    return false;
  });
  EXPECT_NE(fault(client(body.where())->get("/x"), Errc::malformed).find("more than anybody"),
            std::string::npos);
  Peer header([](const Call& call) {
    call.send("HTTP/1.1 200 OK\r\n");
    while (call.send("x: " + std::string(1000, 'y') + "\r\n")) {
    }
    return false;
  });
  EXPECT_NE(fault(client(header.where())->get("/x"), Errc::malformed).find("more than anybody"),
            std::string::npos);
  Peer chunks([](const Call& call) {
    call.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    const std::string chunk = "100000\r\n" + std::string(1 << 20, 'z') + "\r\n";
    while (call.send(chunk)) {
    }
    return false;
  });
  EXPECT_NE(fault(client(chunks.where())->get("/x"), Errc::malformed).find("more than anybody"),
            std::string::npos);
}

TEST(Client, NamesBothVersionsOfAWireThatIsNotOurs) {
  Peer peer([](const Call& call) {
    call.send("HTTP/1.1 200 OK\r\nzeus-protocol: 2\r\ncontent-length: 0\r\n\r\n");
    return true;
  });
  const auto c = client(peer.where());
  EXPECT_EQ(fault(c->get("/x"), Errc::unsupported),
            "cannot talk to zeusd at " + peer.where() +
                ": it speaks version 2 of the wire and this program version 1; install the same "
                "version of both");
  std::string body;
  EXPECT_EQ(c->ask(c->prepare("/x"), body).error, Errc::unsupported);
}

TEST(Client, RefusesATokenThatIsNoLine) {
  for (const char* token : {"a b", "a\n", "a\r\nX: y", "\xc3\xa4"}) {
    const auto c = Client::create(parse_endpoint("node1").value(), {.token = token});
    ASSERT_FALSE(c);
    EXPECT_EQ(c.error().code, Errc::invalid);
    EXPECT_EQ(c.error().detail.find(token), std::string::npos) << "a secret is not told";
  }
}

TEST(Client, ServesSeveralThreadsOnConnectionsOfTheirOwn) {
  Peer peer([](const Call& call) {
    call.answer(200, call.target());
    return true;
  });
  const auto c = client(peer.where());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, target = "/" + std::to_string(t)] {
      for (int i = 0; i < 100; ++i) {
        const auto answer = c->get(target);
        if (!answer || answer->body != target) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(peer.connections(), 4u);
}

TEST(Client, OfAForkedChildUsesNoConnectionOfItsParent) {
  Peer peer([](const Call& call) {
    call.answer(200, call.target());
    return true;
  });
  const auto c = client(peer.where());
  EXPECT_EQ(c->get("/parent").value().body, "/parent");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto answer = c->get("/child");
    ::_exit(answer && answer->body == "/child" ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(c->get("/again").value().body, "/again");
  EXPECT_EQ(peer.connections(), 2u);
}

TEST(Client, AsksAgainAndAgainWithoutAllocating) {
  const auto peer = Peer::at_path([](const Call& call) {
    call.answer(200, "{\"0\":{\"energy_mj\":1234567890123}}");
    return true;
  });
  const auto c = client(peer.where());
  const std::string prepared = c->prepare("/gpu/get_cumulative_energy");
  std::string body;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(c->ask(prepared, body).status, 200u);
  const std::size_t before = test::allocations();
  for (int i = 0; i < 10; ++i) (void)c->ask(prepared, body);
  EXPECT_EQ(test::allocations(), before);
  EXPECT_EQ(body, "{\"0\":{\"energy_mj\":1234567890123}}");
}

TEST(Client, AfterAFailedConnectAsksNobodyForAWhile) {
  Peer peer(greet);
  const auto c = client(peer.where());
  const std::string prepared = c->prepare("/x");
  std::string body;
  EXPECT_EQ(c->ask(prepared, body).status, 200u);
  peer.stop();
  EXPECT_EQ(c->ask(prepared, body).error, Errc::lost);
  peer.start(greet);
  const std::size_t before = peer.connections();
  EXPECT_EQ(c->ask(prepared, body).error, Errc::lost);
  EXPECT_EQ(peer.connections(), before) << "it was not asked";
  // Who asks by hand is told how things are.
  EXPECT_TRUE(c->get("/x"));
  EXPECT_EQ(c->ask(prepared, body).status, 200u);
}

}  // namespace
}  // namespace zeus::net
