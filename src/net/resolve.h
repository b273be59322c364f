#pragma once

#include <vector>

#include "net/transport.h"

namespace zeus::net {

/// Every address of an endpoint. A name is looked up on the calling thread, in the resolver's time.
inline std::vector<Address> resolve(const Endpoint& endpoint, error_code& ec) {
  if (endpoint.transport == Endpoint::Transport::unix_socket) {
    return {asio::local::stream_protocol::endpoint(endpoint.path)};
  }
  asio::io_context io;
  asio::ip::tcp::resolver resolver(io);
  std::vector<Address> out;
  const auto service = std::to_string(endpoint.port);
  const auto flags = asio::ip::resolver_base::numeric_service;
  for (const auto& found : resolver.resolve(endpoint.host, service, flags, ec)) {
    out.emplace_back(found.endpoint());
  }
  return out;
}

}  // namespace zeus::net
