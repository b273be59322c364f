#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "net/listen.h"
#include "net/server.h"
#include "support/tree.h"
#include "support/wire.h"

namespace zeus::net {

using namespace std::chrono_literals;
using test::Wire;
using Clock = std::chrono::steady_clock;

/// Answers of each kind, and a hand on the streams that are open.
class Kinds final : public Handler {
 public:
  asio::awaitable<Response> handle(const Request& request, WorkerRef worker) override {
    Response r;
    if (request.path == "/stream") {
      r.stream = std::make_unique<Tap>(*this, worker.index);
    } else if (request.path == "/expired") {
      r.stream = std::make_unique<Tap>(*this, worker.index);
      r.until = 1;
    } else if (request.path == "/never") {
      ++waiting;
      asio::steady_timer timer(worker.context, std::chrono::hours(1));
      co_await timer.async_wait(asio::use_awaitable);
    } else if (request.path == "/throw") {
      throw std::runtime_error("a fault of a handler");
    } else if (request.path == "/big") {
      r.body.assign(kBig, 'b');
    } else if (request.path == "/lost") {
      r.status = 404;
    } else {
      r.type = "text/plain";
      r.body = std::string(request.method == Method::get    ? "get "
                           : request.method == Method::post ? "post "
                                                            : "other ") +
               request.path + '?' + std::string(request.query) + '|' + std::string(request.host) +
               '|' + std::string(request.authorization);
    }
    co_return r;
  }

  /// Sends events to every open stream from its own thread, and waits until they have been.
  void publish(Server& server, std::uint32_t topic, const std::string& text) {
    for (std::size_t i = 0; i < server.workers(); ++i) {
      std::promise<void> sent;
      asio::post(server.context(i), [&, i] {
        for (EventSink* s : sinks_[i]) s->send(topic, chunk(text));
        sent.set_value();
      });
      sent.get_future().wait();
    }
  }

  static constexpr std::size_t kBig = 8 << 20;
  std::atomic<int> waiting{0}, streams{0};

 private:
  class Tap final : public Stream {
   public:
    Tap(Kinds& kinds, std::size_t worker) : kinds_(kinds), worker_(worker) {}
    ~Tap() override {
      if (sink_ == nullptr) return;
      std::erase(kinds_.sinks_[worker_], sink_);
      --kinds_.streams;
    }
    void open(EventSink& sink) override {
      sink_ = &sink;
      kinds_.sinks_[worker_].push_back(&sink);
      ++kinds_.streams;
    }

   private:
    Kinds& kinds_;
    std::size_t worker_;
    EventSink* sink_ = nullptr;
  };
  std::array<std::vector<EventSink*>, 4> sinks_;  ///< One a worker, of its thread.
};

inline Server::Options hurried() {
  Server::Options o;
  o.head_time = o.idle_time = o.write_time = 0s;  // In whole seconds, begun ones not counted.
  return o;
}

/// A server at a path and at a port.
class Running {
 public:
  explicit Running(Server::Options options = {}, std::shared_ptr<asio::ssl::context> tls = nullptr)
      : server_(std::move(options), kinds_) {
    listener_ = UnixListener::open(tree_.root() / "s", {}).value();
    (void)server_.listen(std::move(*listener_).take());
    (void)server_.listen(listen_tcp("127.0.0.1:0", port_).value(), std::move(tls));
    server_.start();
  }
  std::string path() const { return (tree_.root() / "s").string(); }
  const std::string& port() const { return port_; }
  Wire wire() const { return Wire(path()); }
  Server& server() { return server_; }
  Kinds& kinds() { return kinds_; }
  bool at_path() const { return listener_->intact(); }

 private:
  test::Tree tree_;
  Kinds kinds_;
  std::optional<UnixListener> listener_;
  std::string port_;
  Server server_;
};

/// Until it holds, or for long.
template <class Holds>
bool soon(Holds holds) {
  const auto end = Clock::now() + 10s;
  while (!holds()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

constexpr std::string_view kGet = "GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n";

}  // namespace zeus::net
