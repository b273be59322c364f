#include "net/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>

#include "net/asio.h"
#include "net/server_connection.h"
#include "net/worker.h"

namespace zeus::net {
namespace {

using std::chrono::steady_clock;

}  // namespace

std::shared_ptr<const std::string> chunk(std::string_view event) {
  return std::make_shared<const std::string>(fmt::format("{:x}\r\n{}\r\n", event.size(), event));
}

Response refusal(unsigned status, std::string_view why) {
  Response response;
  response.status = status;
  response.type = "application/json";
  response.body =
      nlohmann::json{{"error", why}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return response;
}

void write_head(std::string& out, const Response& response, std::size_t length, bool close,
                const Worker& worker) {
  if (response.status == 200) {
    out += "HTTP/1.1 200 OK\r\n";
  } else {
    const auto reason =
        boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(response.status));
    fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\n", response.status,
                   std::string_view(reason.data(), reason.size()));
  }
  if (response.stream) {
    out += "content-type: text/event-stream\r\ncache-control: no-cache\r\n";
    // Without chunks it ends with its connection.
    if (!close) out += "transfer-encoding: chunked\r\n";
  } else {
    const fmt::format_int digits(length);
    out += "content-length: ";
    out.append(digits.data(), digits.size());
    out += "\r\n";
    if (!response.type.empty()) {
      out += "content-type: ";
      out += response.type;
      out += "\r\n";
    }
  }
  out += response.headers;
  out += worker.options.headers_sent;
  out += worker.date;
  if (close) out += "connection: close\r\n";
  out += "\r\n";
}

struct Server::Impl final : Crew {
  Impl(Options its_options, Handler& its_handler)
      : options(std::move(its_options)), handler(its_handler), seats(options.per_peer) {
    for (std::size_t i = 0; i < std::max<std::size_t>(options.workers, 1); ++i) {
      workers.push_back(std::make_unique<Worker>(options, handler, counters, *this, i));
    }
    spare = Fd(::eventfd(0, EFD_CLOEXEC));
  }

  struct Listener {
    asio::posix::stream_descriptor socket;
    std::shared_ptr<asio::ssl::context> tls;
    bool starved = false;  ///< No descriptor was left when it was looked at last.
  };
  static constexpr int kAtOnce = 16;

  void wait(Listener& listener) {
    listener.socket.async_wait(asio::posix::stream_descriptor::wait_read,
                               [this, &listener](boost::system::error_code ec) {
                                 if (ec || stopping) return;
                                 accept_some(listener);
                               });
  }

  void accept_some(Listener& listener) {
    for (int i = 0; i < 64; ++i) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      const int fd =
          ::accept4(listener.socket.native_handle(), reinterpret_cast<sockaddr*>(&address), &size,
                    SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        listener.starved = false;
        take(Fd(fd), address, listener);
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        return out_of_descriptors(listener);
      } else if (errno != EINTR && errno != ECONNABORTED) {
        break;
      }
    }
    wait(listener);
  }

  /// No descriptor is left: who is idle for longest gives way, and where that was not enough the
  /// first in the queue are told so, by a close that the spare one makes possible. The listening
  /// socket stays as it is, and is looked at again a little later.
  void out_of_descriptors(Listener& listener) {
    for (const auto& w : workers) {
      asio::post(w->context, [&w = *w] {
        for (int i = 0; i < kAtOnce && make_room(w); ++i) {
        }
      });
    }
    for (int i = 0; i < kAtOnce && listener.starved; ++i) {
      spare = Fd();
      const Fd refused(::accept4(listener.socket.native_handle(), nullptr, nullptr, SOCK_CLOEXEC));
      spare = Fd(::eventfd(0, EFD_CLOEXEC));
      if (refused.get() < 0) break;
      counters.refused.fetch_add(1, std::memory_order_relaxed);
    }
    listener.starved = true;
    auto pause =
        std::make_shared<asio::steady_timer>(workers[0]->context, std::chrono::milliseconds(20));
    pause->async_wait([this, &listener, pause](boost::system::error_code ec) {
      if (!ec && !stopping) accept_some(listener);
    });
  }

  void take(Fd fd, const sockaddr_storage& address, const Listener& listener) {
    counters.accepted.fetch_add(1, std::memory_order_relaxed);
    const bool local = address.ss_family == AF_UNIX;
    if (!local) {
      const int on = 1;
      (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    Peer peer = local ? unix_peer(fd.get()) : tcp_peer(address);
    auto seat = seats.take(peer);
    if (!seat) {
      return refuse(*workers[0], fd, listener.tls != nullptr, 429,
                    fmt::format("{} has {} connections open, the most of one user or host; close "
                                "some, or start the daemon with a larger "
                                "--max-connections-per-peer",
                                peer.who, seats.most()));
    }
    Worker* const worker = free();
    const std::size_t first = worker != nullptr ? worker->index : next++;
    place({std::move(fd), address.ss_family, std::move(peer), *std::move(seat), listener.tls},
          first, 1);
  }

  Worker* free() override {
    const auto it =
        std::find_if(workers.begin(), workers.end(), [](const auto& w) { return !w->busy; });
    return it == workers.end() ? nullptr : it->get();
  }
  void hand_over(Arrival arrival, Worker& to) override {
    asio::post(to.context,
               [this, &to, a = std::move(arrival)]() mutable { settle(to, std::move(a)); });
  }

  /// Where there are as many connections as there may be, each worker in turn is asked for room.
  void place(Arrival arrival, std::size_t index, std::size_t tries) {
    Worker& worker = *workers[index % workers.size()];
    asio::post(worker.context, [this, &worker, index, tries, a = std::move(arrival)]() mutable {
      if (!worker.stopping && (counters.open.load() < options.connections || make_room(worker))) {
        return settle(worker, std::move(a));
      }
      if (!worker.stopping && tries < workers.size()) {
        return place(std::move(a), index + 1, tries + 1);
      }
      refuse(worker, a.fd, a.tls != nullptr, 503,
             fmt::format("this daemon has {} connections open, which is its --max-connections",
                         options.connections));
    });
  }

  /// On the thread of `worker`. Over TLS nothing can be said without a handshake.
  void refuse(const Worker& worker, const Fd& fd, bool tls, unsigned status,
              const std::string& why) {
    counters.refused.fetch_add(1, std::memory_order_relaxed);
    if (tls) return;
    const Response response = refusal(status, why);
    std::string text;
    write_head(text, response, response.body.size(), true, worker);
    text += response.body;
    (void)::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void settle(Worker& worker, Arrival a) {
    boost::system::error_code ec;
    Socket socket(worker.context);
    socket.assign(asio::generic::stream_protocol(a.family, a.family == AF_UNIX ? 0 : IPPROTO_TCP),
                  a.fd.get(), ec);
    if (ec) {
      counters.refused.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    (void)std::move(a.fd).release();
    socket.non_blocking(true, ec);
    if (a.tls) {
      TlsStream stream(std::move(socket), *a.tls);
      begin(worker, std::move(stream), std::move(a));
    } else {
      begin(worker, std::move(socket), std::move(a));
    }
  }

  template <class S>
  static void begin(Worker& worker, S stream, Arrival a) {
    auto connection =
        std::make_shared<ServerConnection<S>>(worker, std::move(stream), std::move(a));
    worker.connections.push_back(*connection);
    asio::co_spawn(
        worker.context,
        [](std::shared_ptr<ServerConnection<S>> c) -> asio::awaitable<void> {
          co_await c->run();
        }(connection),
        asio::detached);
  }

  /// The connection that was idle for longest gives way.
  static bool make_room(Worker& worker) {
    const auto it = std::find_if(worker.connections.begin(), worker.connections.end(),
                                 [](const Tracked& c) { return c.idle; });
    if (it == worker.connections.end()) return false;
    it->cut();
    it->unlink();
    return true;
  }

  Options options;
  Handler& handler;
  Counters counters;
  Seats seats;
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::unique_ptr<Listener>> listeners;
  Fd spare;
  std::size_t next = 0;
  std::atomic<bool> stopping{false};
  bool started = false;
};

Server::Server(Options options, Handler& handler)
    : impl_(std::make_unique<Impl>(std::move(options), handler)) {}
Server::~Server() { stop(); }

Status Server::listen(Fd socket, std::shared_ptr<asio::ssl::context> tls) {
  const int fd = socket.get();
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return Error{Errc::invalid, errno, "cannot listen on a socket that is not one"};
  }
  impl_->listeners.push_back(std::make_unique<Impl::Listener>(Impl::Listener{
      asio::posix::stream_descriptor(impl_->workers[0]->context, std::move(socket).release()),
      std::move(tls), false}));
  return ok();
}

void Server::start() {
  impl_->started = true;
  for (const auto& worker : impl_->workers) {
    asio::post(worker->context, [&w = *worker] { w.tick(); });
  }
  for (const auto& listener : impl_->listeners) impl_->wait(*listener);
  for (const auto& worker : impl_->workers) {
    worker->thread = std::thread([&w = *worker] { w.run(); });
  }
}

void Server::stop(std::chrono::milliseconds limit) {
  if (!impl_->started || impl_->stopping.exchange(true)) return;
  const auto until = steady_clock::now() + limit;
  asio::post(impl_->workers[0]->context, [this] { impl_->listeners.clear(); });
  for (const auto& worker : impl_->workers) {
    asio::post(worker->context, [&w = *worker] {
      w.stopping = true;
      for (auto it = w.connections.begin(); it != w.connections.end();) (it++)->finish();
    });
  }
  while (impl_->counters.open.load() > 0 && steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const auto& worker : impl_->workers) {
    asio::post(worker->context, [&w = *worker] {
      for (auto it = w.connections.begin(); it != w.connections.end();) (it++)->cut();
      w.ticker.cancel();
      w.work.reset();
    });
  }
  // What still waits for a device is let go with its loop.
  const auto last = steady_clock::now() + std::chrono::milliseconds(200);
  while (impl_->counters.open.load() > 0 && steady_clock::now() < last) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const auto& worker : impl_->workers) worker->context.stop();
  for (const auto& worker : impl_->workers) worker->thread.join();
  // Connections that were cut end here, while all that they use is still there.
  for (const auto& worker : impl_->workers) {
    worker->context.restart();
    (void)worker->context.poll();
  }
}

std::size_t Server::workers() const noexcept { return impl_->workers.size(); }
asio::io_context& Server::context(std::size_t worker) noexcept {
  return impl_->workers[worker]->context;
}

Server::Count Server::count() const noexcept {
  const Counters& c = impl_->counters;
  return {c.accepted.load(), c.refused.load(), c.open.load(), c.skipped.load()};
}

}  // namespace zeus::net
