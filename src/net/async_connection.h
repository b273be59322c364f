#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/client.h"
#include "net/inbox.h"
#include "net/transport.h"

namespace zeus::net {

/// One connection to a daemon on an io_context that many share. One call at a time; its owner keeps
/// it alive until that has ended.
class AsyncConnection {
 public:
  AsyncConnection(asio::io_context& io, const Endpoint& endpoint);
  AsyncConnection(const AsyncConnection&) = delete;
  AsyncConnection& operator=(const AsyncConnection&) = delete;

  /// Before anything else. Errc::invalid: the token or the CA file cannot be used.
  Status prepare(const std::string& token, const std::string& ca_file);

  /// The answer, on the connection that stands or on a new one, within `limit` for each step.
  asio::awaitable<Result<HttpResponse>> get(std::string target, Duration limit);

  /// Begins an answer without an end, and gives its status.
  asio::awaitable<Result<unsigned>> begin(std::string target, ResponseParser& parser,
                                          Duration limit);
  /// Takes in more of it; without a limit where that is zero. False: it has ended.
  asio::awaitable<Result<bool>> more(ResponseParser& parser, Duration limit);

  void close() noexcept;  ///< What is under way fails.

 private:
  asio::awaitable<error_code> connect(Duration limit);
  asio::awaitable<std::vector<Address>> addresses(error_code& ec);
  asio::awaitable<error_code> send(std::string target, Duration limit);
  asio::awaitable<error_code> receive(ResponseParser& parser, Duration limit);
  void arm(Duration limit);
  error_code disarm(error_code ec);

  asio::io_context& io_;
  Endpoint endpoint_;
  std::string headers_;
  std::optional<asio::ssl::context> tls_;
  std::optional<Transport> transport_;
  asio::ip::tcp::resolver resolver_;
  asio::steady_timer watch_;
  std::shared_ptr<std::uint64_t> turn_;  ///< Of the watch, which may outlive us in a queue.
  Inbox inbox_;
  bool open_ = false, expired_ = false;
};

}  // namespace zeus::net
