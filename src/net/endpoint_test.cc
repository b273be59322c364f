#include "net/endpoint.h"

#include <gtest/gtest.h>

namespace zeus::net {
namespace {

using Transport = Endpoint::Transport;

TEST(Endpoint, IsASocketByItsPath) {
  const Endpoint expected{Transport::unix_socket, "/run/zeusd/zeusd.sock"};
  EXPECT_EQ(parse_endpoint("/run/zeusd/zeusd.sock").value(), expected);
  EXPECT_EQ(parse_endpoint("unix:/run/zeusd/zeusd.sock").value(), expected);
  EXPECT_EQ(parse_endpoint("unix:z.sock").value().text(), "unix:z.sock");
  EXPECT_EQ(expected.host_header(), "localhost");
}

TEST(Endpoint, IsAHostWithTheDaemonsPortUnlessAnotherIsGiven) {
  EXPECT_EQ(parse_endpoint("node1").value(), (Endpoint{Transport::tcp, "", "node1", 4938}));
  EXPECT_EQ(parse_endpoint("node1:80").value(), (Endpoint{Transport::tcp, "", "node1", 80}));
  EXPECT_EQ(parse_endpoint("10.0.0.1:80").value().host, "10.0.0.1");
  EXPECT_EQ(parse_endpoint("http://node1/").value(), (Endpoint{Transport::tcp, "", "node1", 4938}));
  EXPECT_EQ(parse_endpoint("https://node1").value(), (Endpoint{Transport::tls, "", "node1", 4938}));
}

TEST(Endpoint, TakesANumberOfVersion6InBrackets) {
  const auto e = parse_endpoint("[::1]:5000").value();
  EXPECT_EQ(e, (Endpoint{Transport::tcp, "", "::1", 5000}));
  EXPECT_EQ(e.host_header(), "[::1]:5000");
  EXPECT_EQ(parse_endpoint("https://[fe80::1%eth0]").value().text(), "https://[fe80::1%eth0]:4938");
}

TEST(Endpoint, SaysWhatItCannotRead) {
  const auto fault = [](std::string_view text) {
    const auto e = parse_endpoint(text);
    return e ? e->text() : e.error().detail;
  };
  EXPECT_NE(fault("").find("no name of a host"), std::string::npos);
  EXPECT_NE(fault("unix:").find("path of its socket is missing"), std::string::npos);
  EXPECT_NE(fault('/' + std::string(107, 'a')).find("at most 107 bytes"), std::string::npos);
  EXPECT_NE(fault("::1").find("no name of a host"), std::string::npos);
  EXPECT_NE(fault("fe80::1").find("in brackets"), std::string::npos);
  EXPECT_NE(fault("[::1").find("bracket is not closed"), std::string::npos);
  EXPECT_NE(fault("[::1]x").find("only a port"), std::string::npos);
  for (const char* port : {"a:", "a:0", "a:65536", "a:-1", "a:1x", "a:1/x"}) {
    EXPECT_NE(fault(port).find("no number from 1 to 65535"), std::string::npos) << fault(port);
  }
  for (const char* host : {"user@node1", "a b", "a\r\nX: y", "http://node1/path"}) {
    EXPECT_NE(fault(host).find("no name of a host"), std::string::npos) << fault(host);
  }
}

}  // namespace
}  // namespace zeus::net
