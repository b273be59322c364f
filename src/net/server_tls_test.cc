#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "support/net_server.h"

namespace zeus::net {
namespace {

/// What to speak on a port, with a certificate that only this test believes in.
std::shared_ptr<asio::ssl::context> self_signed() {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> x(X509_new(), X509_free);
  X509_set_pubkey(x.get(), key.get());
  X509_gmtime_adj(X509_getm_notBefore(x.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(x.get()), 3600);
  X509_sign(x.get(), key.get(), EVP_sha256());
  auto tls = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  EXPECT_EQ(SSL_CTX_use_certificate(tls->native_handle(), x.get()), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey(tls->native_handle(), key.get()), 1);
  return tls;
}

/// A client that speaks TLS over a connection.
class TlsWire {
 public:
  explicit TlsWire(const std::string& where) : wire_(where), context_(TLS_client_method()) {
    SSL_set_fd(ssl_.get(), wire_.fd());
    const timeval patience{10, 0};
    ::setsockopt(wire_.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  bool connect() { return SSL_connect(ssl_.get()) == 1; }
  bool send(std::string_view bytes) {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
  }
  std::string until(std::string_view text) {
    std::string got;
    char byte = 0;
    while (got.find(text) == std::string::npos && SSL_read(ssl_.get(), &byte, 1) == 1) got += byte;
    return got;
  }
  std::string rest() { return until("there is no such text"); }
  Wire& wire() { return wire_; }

 private:
  struct Context {
    explicit Context(const SSL_METHOD* method) : pointer(SSL_CTX_new(method)) {}
    ~Context() { SSL_CTX_free(pointer); }
    SSL_CTX* pointer;
  };
  Wire wire_;
  Context context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{SSL_new(context_.pointer), SSL_free};
};

TEST(ServerTls, AnswersOneRequestAfterTheOther) {
  Running s({}, self_signed());
  TlsWire w(s.port());
  ASSERT_TRUE(w.connect());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(w.send(kGet));
    EXPECT_TRUE(w.until("get /a?b=c|h|").ends_with("get /a?b=c|h|"));
  }
  EXPECT_EQ(s.wire().raw(kGet), 200) << "the Unix socket speaks plain text still";
}

TEST(ServerTls, StreamsAndEndsThemWhenItStops) {
  Running s({}, self_signed());
  TlsWire w(s.port());
  ASSERT_TRUE(w.connect() && w.send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"));
  (void)w.until("\r\n\r\n");
  ASSERT_TRUE(soon([&] { return s.kinds().streams == 1; }));
  s.kinds().publish(s.server(), 0, "data: 1\n\n");
  EXPECT_EQ(w.until("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  // Two of one topic: where the first is still being written, the second waits for it.
  s.kinds().publish(s.server(), 0, "data: 2\n\n");
  s.kinds().publish(s.server(), 0, "data: 3\n\n");
  const auto begin = Clock::now();
  s.server().stop();
  EXPECT_LT(Clock::now() - begin, 2s);
  EXPECT_TRUE(w.rest().ends_with("0\r\n\r\n"));
}

TEST(ServerTls, EndsAStreamWhenTheClientGoes) {
  Running s({}, self_signed());
  {
    TlsWire w(s.port());
    ASSERT_TRUE(w.connect() && w.send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"));
    ASSERT_TRUE(soon([&] { return s.kinds().streams == 1; }));
  }
  EXPECT_TRUE(soon([&] { return s.kinds().streams == 0 && s.server().count().open == 0; }));
}

TEST(ServerTls, LetsGoOfAClientThatSpeaksPlainText) {
  Running s({}, self_signed());
  Wire w(s.port());
  ASSERT_TRUE(w.send(kGet));
  EXPECT_EQ(w.rest().find("HTTP/1.1"), std::string::npos);
  EXPECT_TRUE(soon([&] { return s.server().count().open == 0; }));
}

TEST(ServerTls, LetsGoOfAClientThatNeverFinishesItsHandshake) {
  Running s(hurried(), self_signed());
  Wire silent(s.port()), stuck(s.port());
  ASSERT_TRUE(stuck.send(std::string("\x16\x03\x01\x02\x00\x01", 6)));
  EXPECT_TRUE(silent.closes());
  EXPECT_TRUE(soon([&] { return s.server().count().open == 0; }));
}

TEST(ServerTls, LetsGoOfAClientThatLeavesInMidAnswer) {
  Running s({}, self_signed());
  for (int i = 0; i < 5; ++i) {
    TlsWire w(s.port());
    ASSERT_TRUE(w.connect() && w.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n"));
    (void)w.until("\r\n\r\n");
  }
  EXPECT_TRUE(soon([&] { return s.server().count().open == 0; }));
}

TEST(Server, LetsGoOfAClientThatSpeaksTlsToAPlainPort) {
  Running s;
  TlsWire w(s.port());
  EXPECT_FALSE(w.connect());
  w.wire().close();
  EXPECT_TRUE(soon([&] { return s.server().count().open == 0; }));
  EXPECT_EQ(s.wire().raw(kGet), 200);
}

}  // namespace
}  // namespace zeus::net
