#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "net/client.h"
#include "support/tree.h"

// A client and a server of OpenSSL, with a certificate made for the test.

namespace zeus::net {
namespace {

template <class T, void (*kFree)(T*)>
struct Free {
  void operator()(T* p) const { kFree(p); }
};
template <class T, void (*kFree)(T*)>
using Owned = std::unique_ptr<T, Free<T, kFree>>;

/// A certificate that signs itself, for `names` as the extension has it: "DNS:localhost".
struct Certificate {
  Owned<EVP_PKEY, EVP_PKEY_free> key{EVP_EC_gen("P-256")};
  Owned<X509, X509_free> x509{X509_new()};

  explicit Certificate(const char* names) {
    X509* const x = x509.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key.get());
    X509_NAME* const name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
    X509_set_issuer_name(x, name);
    X509V3_CTX context;
    X509V3_set_ctx(&context, x, x, nullptr, nullptr, 0);
    const Owned<X509_EXTENSION, X509_EXTENSION_free> extension(
        X509V3_EXT_conf_nid(nullptr, &context, NID_subject_alt_name, names));
    X509_add_ext(x, extension.get(), -1);
    X509_sign(x, key.get(), EVP_sha256());
  }
  std::string pem() const {
    const Owned<BIO, BIO_free_all> bio(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509(bio.get(), x509.get());
    char* text = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &text);
    return {text, static_cast<std::size_t>(size)};
  }
};

/// Answers each request of each connection with "hello".
class TlsServer {
 public:
  explicit TlsServer(const Certificate& certificate) : context_(SSL_CTX_new(TLS_server_method())) {
    SSL_CTX_use_certificate(context_.get(), certificate.x509.get());
    SSL_CTX_use_PrivateKey(context_.get(), certificate.key.get());
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&a), size) != 0 || ::listen(fd_, 4) != 0) abort();
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &size);
    port_ = ntohs(a.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;
  ~TlsServer() {
    ::shutdown(fd_, SHUT_RDWR);  // Ends the wait for a client.
    thread_.join();
    ::close(fd_);
  }
  std::string at(const std::string& host) const {
    return "https://" + host + ':' + std::to_string(port_);
  }

 private:
  void run() {
    for (int client = 0; (client = ::accept(fd_, nullptr, nullptr)) >= 0; ::close(client)) {
      const Owned<SSL, SSL_free> ssl(SSL_new(context_.get()));
      SSL_set_fd(ssl.get(), client);
      if (SSL_accept(ssl.get()) != 1) continue;
      char buffer[4096];
      while (SSL_read(ssl.get(), buffer, sizeof buffer) > 0) {
        constexpr std::string_view kAnswer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        SSL_write(ssl.get(), kAnswer.data(), kAnswer.size());
      }
    }
  }

  Owned<SSL_CTX, SSL_CTX_free> context_;
  int fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::uint16_t port_ = 0;
  std::thread thread_;
};

Result<HttpResponse> ask(const std::string& where, const std::string& ca_file) {
  auto client = Client::create(parse_endpoint(where).value(), {.token = {}, .ca_file = ca_file});
  if (!client) return client.error();
  (void)(*client)->get("/first");  // The second comes on the connection that stands.
  return (*client)->get("/second");
}

TEST(ClientTls, TalksToAServerWhoseCertificateItWasGiven) {
  const Certificate certificate("DNS:localhost,IP:127.0.0.1");
  test::Tree tree;
  tree.write("ca.pem", certificate.pem());
  const TlsServer server(certificate);
  for (const char* host : {"localhost", "127.0.0.1"}) {
    const auto answer = ask(server.at(host), (tree.root() / "ca.pem").string());
    ASSERT_TRUE(answer) << answer.error().detail;
    EXPECT_EQ(answer->body, "hello");
  }
}

TEST(ClientTls, TrustsNoCertificateThatItDoesNotKnow) {
  const Certificate certificate("DNS:localhost"), other("DNS:localhost");
  test::Tree tree;
  tree.write("ca.pem", other.pem());
  const TlsServer server(certificate);
  for (const std::string& ca : {(tree.root() / "ca.pem").string(), std::string()}) {
    const auto answer = ask(server.at("localhost"), ca);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Errc::denied) << answer.error().detail;
    EXPECT_NE(answer.error().detail.find("SSL_CERT_FILE"), std::string::npos);
  }
}

TEST(ClientTls, TrustsNoCertificateOfAnotherHost) {
  const Certificate certificate("DNS:other.example,IP:127.0.0.2");
  test::Tree tree;
  tree.write("ca.pem", certificate.pem());
  const TlsServer server(certificate);
  for (const char* host : {"localhost", "127.0.0.1"}) {
    const auto answer = ask(server.at(host), (tree.root() / "ca.pem").string());
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Errc::denied) << answer.error().detail;
  }
}

TEST(ClientTls, SaysWhichFileOfCertificatesItCannotUse) {
  const auto answer = ask("https://localhost:1", "/nonexistent/ca.pem");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Errc::invalid);
  EXPECT_NE(answer.error().detail.find("/nonexistent/ca.pem"), std::string::npos);
}

}  // namespace
}  // namespace zeus::net
