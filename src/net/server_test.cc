#include "net/server.h"

#include <gtest/gtest.h>

#include "support/net_server.h"

namespace zeus::net {
namespace {

std::string body_of(const std::string& answer) {
  const auto at = answer.find("\r\n\r\n");
  return at == std::string::npos ? std::string() : answer.substr(at + 4);
}

TEST(Server, AnswersOneRequestAfterTheOtherOnOneConnection) {
  Running s;
  for (const std::string& where : {s.path(), s.port()}) {
    Wire w(where);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(w.send(kGet));
      const std::string answer = w.answer().text();
      EXPECT_EQ(body_of(answer), "get /a?b=c|h|");
      EXPECT_TRUE(
          answer.starts_with("HTTP/1.1 200 OK\r\ncontent-length: 13\r\n"
                             "content-type: text/plain\r\ndate: "))
          << answer;
      EXPECT_EQ(answer.find("connection: close"), std::string::npos);
    }
  }
  EXPECT_EQ(s.server().count().accepted, 2U);
}

TEST(Server, AnswersRequestsInTheOrderInWhichTheyWerePiped) {
  Running s;
  Wire w = s.wire();
  std::string all;
  for (int i = 0; i < 500; ++i) all += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost:\r\n\r\n";
  ASSERT_TRUE(w.send(all));
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(w.answer().body, "get /" + std::to_string(i) + "?||");
  }
}

TEST(Server, ReadsRequestsThatComeByteByByte) {
  Running s;
  Wire w = s.wire();
  const std::string request =
      "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n0\r\n\r\nPOST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "0\r\n\r\nPOST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nwxyz";
  for (const char c : request) ASSERT_TRUE(w.send({&c, 1}));
  for (const char* path : {"/a", "/b", "/c"}) {
    EXPECT_EQ(w.answer().body, std::string("post ") + path + "?|h|");
  }
}

TEST(Server, GivesAClientOfHttp10OneAnswer) {
  Running s;
  Wire w = s.wire();
  ASSERT_TRUE(w.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n"));
  const std::string all = w.rest();
  EXPECT_NE(all.find("connection: close\r\n"), std::string::npos);
  EXPECT_EQ(body_of(all), "get /a?||");
}

TEST(Server, StreamsToAClientOfHttp10WithoutChunks) {
  Running s;
  Wire w = s.wire();
  ASSERT_TRUE(w.send("GET /stream HTTP/1.0\r\n\r\n"));
  const std::string head = w.until("\r\n\r\n");
  EXPECT_EQ(head.find("transfer-encoding"), std::string::npos) << head;
  ASSERT_TRUE(soon([&] { return s.kinds().streams == 1; }));
  s.kinds().publish(s.server(), 0, "data: 1\n\n");
  EXPECT_EQ(w.until("\n\n"), "data: 1\n\n");
  s.server().stop();
  EXPECT_EQ(w.rest(), "");
}

TEST(Server, ClosesWhereTheClientAsksForIt) {
  Running s;
  Wire w = s.wire();
  ASSERT_TRUE(w.send("GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  EXPECT_NE(w.rest().find("connection: close\r\n"), std::string::npos);
}

// It would be taken for the next answer.
TEST(Server, SendsNoBodyInAnswerToHead) {
  Running s;
  Wire w = s.wire();
  ASSERT_TRUE(w.send("HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_NE(w.answer(true).head.find("content-length: 12\r\n"), std::string::npos);
  EXPECT_EQ(w.raw(kGet), 200);
  ASSERT_TRUE(w.send("OPTIONS /a HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(w.answer().body, "other /a?|h|");
}

TEST(Server, AsksForABodyThatTheClientHoldsBack) {
  Running s;
  Wire w = s.wire();
  ASSERT_TRUE(
      w.send("POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
             "Content-Length: 3\r\n\r\n"));
  EXPECT_EQ(w.until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(w.send("abc"));
  EXPECT_EQ(w.answer().body, "post /a?|h|");
  // Not where it would be refused, and not where nothing is to come.
  ASSERT_TRUE(w.send("POST /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(w.answer().body, "post /b?|h|");
  EXPECT_EQ(w.raw("POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                  "Content-Length: 65537\r\n\r\n"),
            413);
}

/// What a server that reads it otherwise than those before it would be led astray by.
TEST(Server, RefusesWhatCouldBeReadInTwoWays) {
  Running s;
  const std::string line = "POST / HTTP/1.1\r\n", host = "Host: h\r\n";
  const std::string smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
  for (const std::string& request : std::vector<std::string>{
           line + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           line + host + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
           line + host + "Content-Length: 0\r\nContent-Length: 4\r\n\r\n",
           line + host + "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
           line + host + "Content-Length: 4, 4\r\n\r\nabcd",
           line + host + "Content-Length: +4\r\n\r\nabcd",
           line + host + "Content-Length: 0x4\r\n\r\nabcd",
           line + host + "Content-Length: -1\r\n\r\n",
           line + host + "Content-Length:\r\n\r\n",
           line + host + "Content-Length: 18446744073709551620\r\n\r\nabcd",
           line + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
           line + host + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
           line + host + "Transfer-Encoding: identity\r\n\r\n" + smuggled,
           line + host + "Transfer-Encoding: xchunked\r\n\r\n" + smuggled,
           line + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
           line + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
           line + host + "Transfer-Encoding\x0b: chunked\r\n\r\n0\r\n\r\n",
           "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           line + host + "Transfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n",
           line + host + "Transfer-Encoding: chunked\r\n\r\n1;\r\n\r\nx\r\n0\r\n\r\n",
           line + host + "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n",
           line + host + "Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\nx\r\n0\r\n\r\n",
           line + host + host + "\r\n",
           line + "Host: a\r\nX: y\r\nHost: b\r\n\r\n",
           line + "\r\n",
           line + host + "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
           line + host + "Authorization:\r\nAuthorization: Bearer b\r\n\r\n",
           line + host + "Origin: a\r\nOrigin: b\r\n\r\n",
           line + host + "Zeus-Protocol: 1\r\nZeus-Protocol: 2\r\n\r\n",
           line + "Host: h\nX: y\r\n\r\n",
           line + host + "X: a\rb\r\n\r\n",
           line + host + std::string("X: a\0b\r\n\r\n", 10),
           "POST / HTTP/1.1\nHost: h\n\n\r\n\r\n",
           "POST / HTTP/2.0\r\nHost: h\r\n\r\n",
           "POST / HTTP/1.2\r\nHost: h\r\n\r\n",
           "POST / HTTP/1.1 \r\nHost: h\r\n\r\n",
           "POST  / HTTP/1.1\r\nHost: h\r\n\r\n",
           "POST /\r\n\r\n",
           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
           "P\xc3\xb6st / HTTP/1.1\r\nHost: h\r\n\r\n",
           std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15),
       }) {
    Wire w = s.wire();
    ASSERT_TRUE(w.send(request));
    w.half_close();
    const std::string all = w.rest();
    EXPECT_TRUE(all.starts_with("HTTP/1.1 400 ")) << request << '\n' << all;
    EXPECT_EQ(all.find("date: "), all.rfind("date: ")) << "a second answer\n" << request;
    EXPECT_EQ(body_of(all).substr(0, 10), "{\"error\":\"") << all;
  }
}

// RFC 9112 section 5.2: refused, or made one line of.
TEST(Server, MakesOneLineOfAFoldedOne) {
  Running s;
  Wire w = s.wire();
  ASSERT_TRUE(w.send("GET / HTTP/1.1\r\nHost: h\r\n Authorization: a\r\n\t b\r\n\r\n"));
  EXPECT_EQ(w.answer().body, "get /?|h Authorization: a b|");
}

TEST(Server, TakesNoHeaderThatComesBehindTheBody) {
  Running s;
  Wire w = s.wire();
  ASSERT_TRUE(
      w.send("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
             "1;name=value\r\nx\r\n0\r\nAuthorization: Bearer t\r\nHost: other\r\n\r\n"));
  EXPECT_EQ(w.answer().body, "post /a?|h|");
}

TEST(Server, RefusesMoreThanAnybodySays) {
  Running s;
  const std::string line = "GET / HTTP/1.1\r\n", host = "Host: h\r\n";
  std::string many, piece = "X: " + std::string(1000, 'y') + "\r\n";
  for (int i = 0; i < 33; ++i) many += piece;  // 33 KiB.
  std::string lines;
  for (int i = 0; i < 95; ++i) lines += "X: y\r\n";
  EXPECT_EQ(s.wire().raw(line + host + many + "\r\n"), 431);
  EXPECT_EQ(s.wire().raw(line + host + "X: " + std::string(33 << 10, 'y') + "\r\n\r\n"), 431);
  EXPECT_EQ(s.wire().raw("GET /" + std::string(33 << 10, 'y') + " HTTP/1.1\r\n" + host + "\r\n"),
            431);
  EXPECT_EQ(s.wire().raw(line + host + lines + "\r\n"), 200);  // 96 of them.
  EXPECT_EQ(s.wire().raw(line + host + lines + "X: y\r\n\r\n"), 431);
  const std::string largest = line + host +
                              "X: " + std::string((32 << 10) - line.size() - host.size() - 7, 'y') +
                              "\r\n\r\n";
  EXPECT_EQ(s.wire().raw(largest), 200);
  EXPECT_EQ(s.wire().raw(line + "X" + largest.substr(line.size())), 431);
  // Line by line it is as long.
  Wire w = s.wire();
  ASSERT_TRUE(w.send(line + host));
  for (int i = 0; i < 33; ++i) w.send(piece);
  EXPECT_EQ(w.status(), 431);
}

TEST(Server, RefusesBodiesThatNobodyReads) {
  Running s;
  const std::string line = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::string chunked = line + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(s.wire().raw(line + "Content-Length: 65537\r\n\r\n"), 413);
  EXPECT_EQ(s.wire().raw(line + "Content-Length: 65536\r\n\r\n" + std::string(65536, 'x')), 200);
  EXPECT_EQ(s.wire().raw(chunked + "10001\r\n"), 413);
  EXPECT_EQ(s.wire().raw(chunked + "10000\r\n" + std::string(65536, 'x') + "\r\n1\r\n"), 413);
  // Nor what frames it without end.
  EXPECT_EQ(s.wire().raw(chunked + "1;" + std::string(33 << 10, 'x')), 431);
  EXPECT_EQ(s.wire().raw(chunked + "0\r\nX: " + std::string(33 << 10, 'x')), 431);
}

TEST(Server, TellsAClientThatItsRequestDidNotArriveInTime) {
  Running s(hurried());
  const std::string line = "GET / HTTP/1.1\r\n";
  std::vector<Wire> late;
  for (const std::string& begun : {std::string("G"), line, line + "Host: h\r\n",
                                   line + "Host: h\r\nContent-Length: 3\r\n\r\nx",
                                   line + "Host: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    late.push_back(s.wire());
    ASSERT_TRUE(late.back().send(begun));
  }
  // A byte now and then does not put the end off.
  std::atomic<bool> over = false;
  Wire slow = s.wire();
  std::thread drip([&] {
    slow.send(line);
    while (!over && slow.send("X: y\r\n")) std::this_thread::sleep_for(50ms);
  });
  EXPECT_EQ(slow.status(), 408);
  over = true;
  drip.join();
  for (Wire& w : late) {
    const std::string all = w.rest();
    EXPECT_EQ(Wire::status_of(all), 408) << all;
    EXPECT_NE(all.find("connection: close\r\n"), std::string::npos);
  }
}

TEST(Server, ClosesConnectionsThatAreIdle) {
  Running s(hurried());
  Wire never = s.wire(), once = s.wire();
  EXPECT_EQ(once.raw(kGet), 200);
  EXPECT_TRUE(never.closes());
  EXPECT_TRUE(once.closes());
}

TEST(Server, AnswersClientsThatHaveSaidTheirLast) {
  Running s;
  for (const std::string& where : {s.path(), s.port()}) {
    Wire w(where);
    ASSERT_TRUE(w.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n"));
    w.half_close();
    EXPECT_EQ(body_of(w.rest()).size(), Kinds::kBig);
  }
}

TEST(Server, OutlivesClientsThatLeaveInMidAnswer) {
  Running s;
  for (int i = 0; i < 20; ++i) {
    Wire w(i % 2 == 0 ? s.path() : s.port());
    ASSERT_TRUE(w.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n"));
    (void)w.until("\r\n\r\n");
  }
  EXPECT_TRUE(soon([&] { return s.server().count().open == 0; }));
  EXPECT_EQ(s.wire().raw(kGet), 200);
}

TEST(Server, LetsGoOfClientsThatDoNotReadTheirAnswer) {
  Running s(hurried());
  Wire w = s.wire();
  ASSERT_TRUE(w.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(soon([&] { return s.server().count().open == 1; }));
  EXPECT_TRUE(soon([&] { return s.server().count().open == 0; }));
}

TEST(Server, LosesOneConnectionWhereAHandlerFails) {
  Running s;
  Wire w = s.wire();
  ASSERT_TRUE(w.send("GET /throw HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_TRUE(w.closes());
  EXPECT_EQ(s.wire().raw(kGet), 200);
}

TEST(Server, EndsStreamsWithTheirLastChunkWhenItStops) {
  Running s;
  std::vector<Wire> all;
  for (int i = 0; i < 50; ++i) {
    all.emplace_back(i % 2 == 0 ? s.path() : s.port());
    ASSERT_TRUE(all.back().send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"));
    const std::string head = all.back().until("\r\n\r\n");
    EXPECT_NE(head.find("content-type: text/event-stream\r\n"), std::string::npos);
    EXPECT_NE(head.find("transfer-encoding: chunked\r\n"), std::string::npos);
  }
  ASSERT_TRUE(soon([&] { return s.kinds().streams == 50; }));
  s.kinds().publish(s.server(), 0, "data: 1\n\n");
  const auto begin = Clock::now();
  s.server().stop();
  EXPECT_LT(Clock::now() - begin, 2s);
  for (Wire& w : all) EXPECT_EQ(w.rest(), "9\r\ndata: 1\n\n\r\n0\r\n\r\n");
  EXPECT_EQ(s.kinds().streams, 0);
}

TEST(Server, EndsAStreamWhenTheClientGoes) {
  Running s;
  {
    Wire goes = s.wire(), half = s.wire();
    for (Wire* w : {&goes, &half}) {
      ASSERT_TRUE(w->send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\nleft over"));
      (void)w->until("\r\n\r\n");
    }
    ASSERT_TRUE(soon([&] { return s.kinds().streams == 2; }));
    half.half_close();
    EXPECT_TRUE(soon([&] { return s.kinds().streams == 1; }));
  }
  // Nothing needs to be sent for it to be seen.
  EXPECT_TRUE(soon([&] { return s.kinds().streams == 0 && s.server().count().open == 0; }));
}

TEST(Server, KeepsForASlowReaderTheNewestOfEachTopic) {
  Running s;
  Wire w = s.wire();
  ASSERT_TRUE(w.send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"));
  (void)w.until("\r\n\r\n");
  ASSERT_TRUE(soon([&] { return s.kinds().streams == 1; }));
  constexpr unsigned kSent = 2000;
  for (unsigned i = 1; i <= kSent; ++i) {
    s.kinds().publish(s.server(), i % 2, std::to_string(i) + std::string(1000, ' ') + "\n\n");
  }
  EXPECT_GT(s.server().count().skipped, 0U);
  unsigned last[2] = {0, 0}, received = 0;
  while (last[0] < kSent || last[1] < kSent - 1) {
    const std::string text = w.until("\n\n\r\n");
    const auto value =
        static_cast<unsigned>(std::strtoul(text.c_str() + text.find("\r\n") + 2, nullptr, 10));
    ASSERT_GT(value, last[value % 2]) << "older than what came before";
    last[value % 2] = value;
    ++received;
  }
  EXPECT_EQ(received + s.server().count().skipped, kSent);
  s.kinds().publish(s.server(), 0, "data: now\n\n");
  EXPECT_EQ(w.until("\n\n\r\n"), "b\r\ndata: now\n\n\r\n");
}

// What a token lets see ends with it, also for who does not read.
TEST(Server, EndsAStreamWhoseTimeIsUp) {
  Running s;
  Wire reads = s.wire(), sleeps = s.wire();
  for (Wire* w : {&reads, &sleeps}) {
    ASSERT_TRUE(w->send("GET /expired HTTP/1.1\r\nHost: h\r\n\r\n"));
    (void)w->until("\r\n\r\n");
  }
  ASSERT_TRUE(soon([&] { return s.kinds().streams > 0; }));
  const std::string much(1 << 20, ' ');
  s.kinds().publish(s.server(), 0, much);
  EXPECT_TRUE(reads.rest().ends_with("\r\n0\r\n\r\n"));
  EXPECT_TRUE(soon([&] { return s.server().count().open == 0; }));
}

TEST(Server, StopsInTimeThoughAHandlerNeverAnswers) {
  Running s;
  std::vector<Wire> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(s.wire());
    ASSERT_TRUE(waiting.back().send("GET /never HTTP/1.1\r\nHost: h\r\n\r\n"));
  }
  ASSERT_TRUE(soon([&] { return s.kinds().waiting == 8; }));
  const auto begin = Clock::now();
  s.server().stop(200ms);
  EXPECT_LT(Clock::now() - begin, 2s);
}

TEST(Server, LetsAnAnswerThatIsUnderWayGoOutWhenItStops) {
  Running s;
  Wire w = s.wire();
  ASSERT_TRUE(w.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n"));
  const std::string head = w.until("\r\n\r\n");
  std::string rest;
  std::thread reader([&] { rest = w.rest(); });
  s.server().stop();
  reader.join();
  EXPECT_EQ(rest.size(), Kinds::kBig);
}

TEST(Server, MakesRoomByTheOneThatIsIdleForLongest) {
  Server::Options o;
  o.connections = 8;
  o.workers = 2;
  Running s(o);
  std::vector<Wire> all;
  for (int i = 0; i < 8; ++i) all.push_back(s.wire());
  for (Wire& w : all) EXPECT_EQ(w.raw(kGet), 200);
  // The two that came first are the ones that were asked last.
  for (int i : {0, 1}) EXPECT_EQ(all[static_cast<std::size_t>(i)].raw(kGet), 200);
  Wire more = s.wire(), another = s.wire();
  EXPECT_EQ(more.raw(kGet), 200);
  EXPECT_EQ(another.raw(kGet), 200);
  EXPECT_TRUE(all[2].closes());
  EXPECT_TRUE(all[3].closes());
  for (std::size_t i : {0U, 1U, 4U, 5U, 6U, 7U}) EXPECT_EQ(all[i].raw(kGet), 200) << i;
  EXPECT_EQ(s.server().count().refused, 0U);
}

TEST(Server, RefusesAndCountsWhereNobodyIsIdle) {
  Server::Options o;
  o.connections = 4;
  o.workers = 2;
  Running s(o);
  std::vector<Wire> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(s.wire());
    ASSERT_TRUE(all.back().send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"));
    (void)all.back().until("\r\n\r\n");
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(s.wire().status(), 503);
  EXPECT_EQ(s.server().count().refused, 3U);
  EXPECT_EQ(s.server().count().open, 4U);
  all.clear();
  ASSERT_TRUE(soon([&] { return s.server().count().open == 0; }));
  EXPECT_EQ(s.wire().raw(kGet), 200);
}

}  // namespace
}  // namespace zeus::net
