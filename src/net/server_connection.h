#pragma once

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>

#include "net/asio.h"
#include "net/head.h"
#include "net/path.h"
#include "net/worker.h"

namespace zeus::net {

using Socket = asio::generic::stream_protocol::socket;
using TlsStream = asio::ssl::stream<Socket>;

/// Appends the head of a response to `out`.
void write_head(std::string& out, const Response& response, std::size_t length, bool close,
                const Worker& worker);

/// One connection: requests and answers in turn, or a stream of events. S: Socket or TlsStream.
template <class S>
class ServerConnection final : public Tracked,
                               public EventSink,
                               public std::enable_shared_from_this<ServerConnection<S>> {
 public:
  ServerConnection(Worker& worker, S stream, Arrival from)
      : worker_(worker),
        stream_(std::move(stream)),
        from_(std::move(from)),
        buffer_(std::move(from_.read)),
        first_(!from_.served) {
    set_deadline(worker_.options.head_time);
    ++worker_.counters.open;
  }
  ~ServerConnection() override { --worker_.counters.open; }

  /// The whole life of the connection. The caller keeps it alive.
  asio::awaitable<void> run() {
    if constexpr (kTls) {
      co_await stream_.async_handshake(asio::ssl::stream_base::server, token());
      if (ec_) co_return;
    }
    while (!worker_.stopping) {
      Head head(worker_.options.head, worker_.options.headers, worker_.options.body);
      const unsigned fault = co_await read(head);
      if (fault == kGone) break;
      Response response;
      bool keep = false;
      if (fault != 0) {
        response = refusal(fault, std::string(why_));
      } else {
        // Clients of HTTP/1.0 expect no more than one answer.
        keep = head.keep_alive() && head.version >= 11;
        response = co_await answer(head);
      }
      this->idle = false;
      set_deadline(worker_.options.write_time);
      if (response.stream) {
        whole_ = head.version >= 11;
        co_await serve(std::move(response));
        break;
      }
      co_await send(response, !keep, head.bodiless);
      if (ec_ || !keep) break;
      if (worker_.to_give > 0 && given_away()) co_return;
    }
    co_await close();
  }

  // --- Tracked ---

  void expire(Seconds) override {
    if (streaming_ && !ended_) {
      end();
    } else if (reading_ && !this->idle) {
      late_ = true;  // A part of a request: it is told so.
      lowest().cancel(ignored_);
    } else {
      cut();
    }
  }
  void finish() override {
    if (streaming_) return end();
    if (this->idle) cut();
  }
  void cut() override {
    lowest().close(ignored_);
    streaming_ = false;
  }

  // --- EventSink ---

  void send(std::uint32_t topic, const std::shared_ptr<const std::string>& chunk) override {
    if (!streaming_ || ended_) return;
    if (writing_) {
      auto& kept = pending_[topic];
      if (kept) worker_.counters.skipped.fetch_add(1, std::memory_order_relaxed);
      kept = chunk;
      return;
    }
    const std::string_view bytes = as_sent(*chunk);
    if constexpr (!kTls) {
      boost::system::error_code ec;
      const std::size_t sent = lowest().write_some(asio::buffer(bytes), ec);
      if (sent == bytes.size()) return;
      if (ec && ec != asio::error::would_block && ec != asio::error::interrupted) return cut();
      out_ = bytes.substr(sent);
    } else {
      out_ = bytes;
    }
    write_out();
  }
  void end() override {
    if (!streaming_ || ended_) return;
    ended_ = true;
    pending_.clear();
    set_deadline(std::chrono::seconds(1));
    if (writing_) return;
    if (!whole_) return cut();
    out_ = kLastChunk;
    write_out();
  }

 private:
  static constexpr bool kTls = !std::is_same_v<S, Socket>;
  static constexpr unsigned kGone = 1;
  static constexpr std::string_view kLastChunk = "0\r\n\r\n";

  auto token() { return asio::redirect_error(asio::use_awaitable, ec_); }
  Socket& lowest() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }
  /// A chunk, or for a client of HTTP/1.0, which knows of none, what is in it.
  std::string_view as_sent(std::string_view chunk) const {
    if (whole_) return chunk;
    chunk.remove_prefix(chunk.find("\r\n") + 2);
    return chunk.substr(0, chunk.size() - 2);
  }
  void set_deadline(std::chrono::seconds from_now) {
    this->deadline = worker_.now + from_now.count() + 1;
  }

  /// Reads one request. 0; kGone where there is nobody to answer; else the status to refuse with.
  asio::awaitable<unsigned> read(Head& head) {
    this->idle = true;
    // The list has those at its front that are idle for longest.
    this->unlink();
    worker_.connections.push_back(*this);
    bool continued = false;
    while (true) {
      if (!buffer_.empty()) {
        this->idle = false;
        boost::beast::error_code ec;
        const std::size_t used = head.feed(buffer_, ec);
        buffer_.erase(0, used);
        if (ec && ec != boost::beast::http::error::need_more) co_return refuse(ec);
        if (head.is_done()) co_return check(head);
        if (!ec && used > 0 && !buffer_.empty()) continue;
      }
      if (head.is_header_done() && head.expects && !std::exchange(continued, true)) {
        if (const unsigned fault = check(head); fault != 0) co_return fault;
        co_await write("HTTP/1.1 100 Continue\r\n\r\n");
        if (ec_) co_return kGone;
      }
      if (this->idle) set_deadline(first_ ? worker_.options.head_time : worker_.options.idle_time);
      std::array<char, 1024> bytes;
      reading_ = true;
      const std::size_t n = co_await stream_.async_read_some(asio::buffer(bytes), token());
      reading_ = false;
      this->active = true;
      if (ec_ && late_) co_return say(408, "the request did not arrive in time");
      if (ec_ || n == 0) co_return kGone;
      if (this->idle) set_deadline(worker_.options.head_time);
      first_ = false;
      buffer_.append(bytes.data(), n);
    }
  }

  unsigned say(unsigned status, std::string_view why) {
    why_ = why;
    return status;
  }
  unsigned refuse(boost::beast::error_code ec) {
    using boost::beast::http::error;
    if (ec == error::header_limit) return say(431, "the head is too large");
    if (ec == error::body_limit) return say(413, "the body is too large; arguments go in the URL");
    return say(400, "this is no HTTP/1.1 request");
  }
  unsigned check(const Head& head) {
    if (head.twice || (head.version >= 11 && !head.hosted)) {
      return say(400, "a header that must stand once stands twice or not at all");
    }
    if (head.coded) return say(400, "a transfer coding other than chunked; send no body");
    return 0;
  }

  asio::awaitable<Response> answer(const Head& head) {
    const std::string_view target = head.target;
    const auto mark = target.find('?');
    auto path = decode_path(target.substr(0, mark));
    if (!path) co_return refusal(400, "the path cannot be decoded");
    Request request;
    request.method = head.method;
    request.path = std::move(*path);
    if (mark != std::string_view::npos) request.query = target.substr(mark + 1);
    request.authorization = head.authorization;
    request.host = head.host;
    request.origin = head.origin;
    request.protocol = head.protocol;
    from_.peer.socket = lowest().native_handle();
    request.peer = &from_.peer;
    // What the daemon does for it has bounds of its own.
    this->deadline = std::numeric_limits<Seconds>::max();
    co_return co_await worker_.handler.handle(request, {worker_.context, worker_.index});
  }

  asio::awaitable<void> send(const Response& response, bool close, bool bodiless) {
    const std::string& body = response.shared ? *response.shared : response.body;
    reply_.clear();
    write_head(reply_, response, body.size(), close, worker_);
    if (!bodiless) reply_ += body;
    co_await write(reply_);
  }

  asio::awaitable<void> write(std::string_view bytes) {
    ec_ = {};
    if constexpr (!kTls) {
      // Most answers fit into the socket's buffer: no need to go round the loop for them.
      boost::system::error_code ec;
      const std::size_t sent = lowest().write_some(asio::buffer(bytes), ec);
      bytes.remove_prefix(sent);
      if (bytes.empty()) co_return;
    }
    co_await asio::async_write(stream_, asio::buffer(bytes), token());
  }

  /// A stream lives until its client goes, or it is ended.
  asio::awaitable<void> serve(Response response) {
    std::string head;
    write_head(head, response, 0, !whole_, worker_);
    co_await write(head);
    if (ec_) co_return;
    this->deadline = std::numeric_limits<Seconds>::max();
    if (response.until) {
      const auto unix_now = std::chrono::duration_cast<std::chrono::seconds>(
          std::chrono::system_clock::now().time_since_epoch());
      set_deadline(std::chrono::seconds(*response.until) - unix_now);
    }
    streaming_ = true;
    if (worker_.stopping) end();
    const std::unique_ptr<Stream> stream = std::move(response.stream);
    stream->open(*this);
    std::array<char, 512> bytes;
    while (streaming_ && !ec_) {  // Whatever it says now has no meaning, but its end has.
      co_await stream_.async_read_some(asio::buffer(bytes), token());
    }
    streaming_ = false;
    pending_.clear();
  }

  void write_out() {
    writing_ = true;
    auto self = this->shared_from_this();
    asio::async_write(stream_, asio::buffer(out_),
                      [self](boost::system::error_code ec, std::size_t) { self->wrote(ec); });
  }
  void wrote(boost::system::error_code ec) {
    writing_ = false;
    if (ec || (ended_ && (!whole_ || out_ == kLastChunk))) return cut();
    out_.clear();
    if (ended_) {
      out_ = kLastChunk;
    } else {
      for (const auto& [topic, chunk] : pending_) out_ += as_sent(*chunk);
      pending_.clear();
    }
    if (!out_.empty()) write_out();
  }

  asio::awaitable<void> close() {
    set_deadline(std::chrono::seconds(1));
    if constexpr (kTls) {
      if (lowest().is_open()) co_await stream_.async_shutdown(token());
    }
    // What it still sends is let go for a moment: a reset would take our last answer from it.
    lowest().shutdown(asio::socket_base::shutdown_send, ignored_);
    std::array<char, 512> bytes;
    for (int i = 0; i < 64 && lowest().is_open(); ++i) {
      ec_ = {};
      const std::size_t n = co_await lowest().async_read_some(asio::buffer(bytes), token());
      if (ec_ || n == 0) break;
    }
    lowest().close(ignored_);
  }

  /// Goes on at a worker that keeps up, where this one does not. What TLS has negotiated cannot be
  /// taken along.
  bool given_away() {
    if constexpr (kTls) return false;
    Worker* const to = worker_.crew.free();
    if (to == nullptr) return false;
    const int fd = lowest().release(ec_);
    if (ec_) return false;
    --worker_.to_give;
    from_.fd = Fd(fd);
    from_.read = std::move(buffer_);
    from_.served = true;
    this->unlink();
    worker_.crew.hand_over(std::move(from_), *to);
    return true;
  }

  Worker& worker_;
  S stream_;
  Arrival from_;
  std::string buffer_;  ///< Read and not yet parsed.
  std::string reply_, out_;
  std::string_view why_;
  std::map<std::uint32_t, std::shared_ptr<const std::string>> pending_;
  boost::system::error_code ec_, ignored_;
  bool first_, reading_ = false, late_ = false;
  bool streaming_ = false, writing_ = false, ended_ = false;
  bool whole_ = true;  ///< Streams go in chunks.
};

}  // namespace zeus::net
