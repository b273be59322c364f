#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "zeus/result.h"

namespace zeus::net {

/// Where a daemon listens.
struct Endpoint {
  enum class Transport : std::uint8_t { unix_socket, tcp, tls };
  Transport transport = Transport::unix_socket;
  std::string path{};  ///< Of the socket.
  std::string host{};  ///< A name or a number, without brackets.
  std::uint16_t port = 0;

  std::string text() const;         ///< As it can be parsed: "/run/zeusd/zeusd.sock", "node1:4938".
  std::string host_header() const;  ///< "localhost", "node1:4938".
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// "/path" and "unix:path" are sockets; "host", "host:port", "[::1]:port" and "http://host:port"
/// are TCP, "https://host:port" is TLS. Without a port it is the daemon's own. Errc::invalid.
Result<Endpoint> parse_endpoint(std::string_view text);

}  // namespace zeus::net
