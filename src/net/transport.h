#pragma once

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "net/asio.h"
#include "net/endpoint.h"
#include "zeus/result.h"
#include "zeus/sensor.h"

namespace zeus::net {

using StreamSocket = asio::generic::stream_protocol::socket;
using Address = asio::generic::stream_protocol::endpoint;

/// What deadlines are measured against.
inline Instant now() noexcept { return std::chrono::steady_clock::now(); }

/// A client's end of one connection: TCP or a Unix socket, with or without TLS on it.
class Transport {
 public:
  /// `tls` is null where there is none; it outlives the transport.
  Transport(asio::io_context& io, const Endpoint& to, asio::ssl::context* tls);

  /// A socket fit for `address`, which no program started meanwhile inherits.
  error_code open(const Address& address);
  void close() noexcept;
  bool encrypted() const noexcept { return tls_.has_value(); }

  template <class Token>
  auto async_connect(const Address& address, Token&& token) {
    return socket_.async_connect(address, std::forward<Token>(token));
  }
  template <class Token>
  auto async_handshake(Token&& token) {
    return tls_->async_handshake(asio::ssl::stream_base::client, std::forward<Token>(token));
  }
  template <class Buffer, class Token>
  auto async_read_some(const Buffer& buffer, Token&& token) {
    if (tls_) return tls_->async_read_some(buffer, std::forward<Token>(token));
    return socket_.async_read_some(buffer, std::forward<Token>(token));
  }
  template <class Buffer, class Token>
  auto async_write(const Buffer& buffer, Token&& token) {
    if (tls_) return asio::async_write(*tls_, buffer, std::forward<Token>(token));
    return asio::async_write(socket_, buffer, std::forward<Token>(token));
  }

 private:
  StreamSocket socket_;
  std::optional<asio::ssl::stream<StreamSocket&>> tls_;
};

/// What certificates are checked against: `ca_file` (PEM), or what the system trusts where that is
/// empty (OpenSSL's SSL_CERT_FILE and SSL_CERT_DIR are heeded). Errc::invalid.
Result<asio::ssl::context> tls_context(const std::string& ca_file);

/// What a failure means for the caller.
Errc to_errc(const error_code& ec) noexcept;
/// "cannot reach zeusd at node1:4938: connection refused; is zeusd running? ...".
Error explain(const Endpoint& to, const error_code& ec);

/// What precedes "\r\n\r\n" of a request, up to its last header.
/// Errc::invalid where the token is none that a header can carry.
Result<std::string> common_headers(const Endpoint& to, const std::string& token);

}  // namespace zeus::net
