#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "net/asio.h"
#include "net/http.h"
#include "zeus/result.h"

namespace zeus::net {

namespace asio = boost::asio;

/// One thread of the server and its event loop. A connection leaves its worker between two requests
/// only.
struct WorkerRef {
  asio::io_context& context;
  std::size_t index;
};

/// Answers requests. Called on a worker's thread; must not block it.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual asio::awaitable<Response> handle(const Request& request, WorkerRef worker) = 0;
};

/// An HTTP/1.1 server for small requests and long event streams, over any listening sockets. One
/// worker serves for as long as it keeps up: the others sleep, and take connections over from one
/// that is busy for most of a second.
class Server {
 public:
  struct Options {
    std::size_t workers = 2;
    std::size_t connections = 20'000;    ///< Beyond, one that is idle gives way, or 503.
    std::size_t per_peer = 0;            ///< Of them, of one user or host; beyond is 429. 0: all.
    std::size_t head = 32 * 1024;        ///< Of a request; beyond is 431.
    std::size_t headers = 96;            ///< Lines of a head; beyond is 431.
    std::size_t body = 64 * 1024;        ///< Bodies are read and ignored; beyond is 413.
    double busy = 0.75;                  ///< Of a second at work: beyond, other workers help.
    std::chrono::seconds head_time{10};  ///< For a whole head to arrive; then 408.
    std::chrono::seconds idle_time{75};  ///< Between requests. Longer than clients keep theirs.
    std::chrono::seconds write_time{20};
    std::string headers_sent{};  ///< Lines added to every response, each with its "\r\n".
  };

  Server(Options options, Handler& handler);
  ~Server();  ///< As stop().

  /// Takes a listening socket. `tls`: what to speak on it; null for plain text. Before start().
  Status listen(Fd socket, std::shared_ptr<asio::ssl::context> tls = nullptr);

  void start();
  /// Accepts no more, ends streams, lets answers under way be sent, for `limit` at the most.
  void stop(std::chrono::milliseconds limit = std::chrono::milliseconds(1500));

  std::size_t workers() const noexcept;
  asio::io_context& context(std::size_t worker) noexcept;

  struct Count {
    std::uint64_t accepted = 0, refused = 0, open = 0;
    std::uint64_t skipped = 0;  ///< Events that slow peers did not get.
  };
  Count count() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zeus::net
