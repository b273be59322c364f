#include "net/client.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/fork_guard.h"
#include "net/connection.h"
#include "net/resolve.h"

namespace zeus::net {
namespace {

using std::chrono::milliseconds;

/// Connections between two exchanges. Neither taking nor giving waits.
class Pool {
 public:
  ~Pool() {
    while (take()) {
    }
  }
  std::unique_ptr<Connection> take() noexcept {
    for (std::atomic<Connection*>& place : places_) {
      Connection* const found = place.exchange(nullptr);
      if (found == nullptr) continue;
      if (found->generation() == fork_generation()) return std::unique_ptr<Connection>(found);
      // The parent's: its sockets and what watches them are shared, and closing may disturb it.
    }
    return nullptr;
  }
  void give(std::unique_ptr<Connection> connection) noexcept {
    for (std::atomic<Connection*>& place : places_) {
      Connection* none = nullptr;
      if (!place.compare_exchange_strong(none, connection.get())) continue;
      (void)connection.release();
      return;
    }
  }

 private:
  std::array<std::atomic<Connection*>, 8> places_{};
};

/// The addresses of a name. What was found stays valid for as long as this lives.
class Names {
 public:
  ~Names() {
    for (const Found* f = newest_; f != nullptr;) delete std::exchange(f, f->before);
  }
  const std::vector<Address>* known() const noexcept {
    const Found* const f = newest_;
    return f == nullptr ? nullptr : &f->addresses;
  }
  const std::vector<Address>* ask(const Endpoint& endpoint, error_code& ec) {
    std::vector<Address> addresses = resolve(endpoint, ec);
    if (ec || (known() != nullptr && *known() == addresses)) return known();
    auto* const found = new Found{std::move(addresses), newest_};
    while (!newest_.compare_exchange_weak(found->before, found)) {
    }
    return &found->addresses;
  }

 private:
  struct Found {
    std::vector<Address> addresses;
    const Found* before;
  };
  std::atomic<const Found*> newest_{nullptr};
};

}  // namespace

struct Client::Impl {
  Endpoint endpoint;
  Options options;
  std::optional<asio::ssl::context> tls{};
  std::string headers{};
  Pool pool{};
  Names names{};
  std::atomic<unsigned> failures{0};  ///< Of new connections, one after the other.
  std::atomic<Instant> not_before{};
  std::atomic<std::uint64_t> connections{0};

  struct Outcome {
    error_code ec{};
    unsigned status = 0;
    Status protocol = ok();
    std::uint64_t connection = 0;
  };

  std::string request(std::string_view method, std::string_view target) const {
    return std::string(method) + ' ' + std::string(target) + " HTTP/1.1" + headers + "\r\n\r\n";
  }

  void failed() noexcept {
    const unsigned n = std::min(failures.fetch_add(1), 6u);
    not_before = now() + std::min<Duration>(milliseconds(100) * (1u << n), milliseconds(5000));
  }

  /// One exchange on a connection that stands, or on a new one.
  Outcome once(Connection& on, std::string_view request, std::string& body, Instant deadline) {
    body.clear();
    ResponseParser parser(body);
    Outcome out;
    out.ec = on.exchange(request, parser, deadline);
    out.status = parser.status();
    out.connection = on.serial();
    if (!out.ec) out.protocol = parser.check_protocol(endpoint);
    return out;
  }

  Outcome fresh(std::string_view request, std::string& body, Instant deadline, bool look_up) {
    error_code ec;
    const std::vector<Address>* addresses = names.known();
    if (addresses == nullptr || (look_up && failures != 0)) addresses = names.ask(endpoint, ec);
    auto connection = std::make_unique<Connection>(fork_generation(), ++connections);
    if (!ec) {
      ec = connection->open(endpoint, tls ? &*tls : nullptr, *addresses,
                            std::min(deadline, now() + options.connect));
    }
    Outcome out{ec};
    if (!ec) out = once(*connection, request, body, deadline);
    if (out.ec) {
      failed();
      return out;
    }
    failures = 0;
    if (connection->reusable()) pool.give(std::move(connection));
    return out;
  }

  /// `again`: a server that closed an idle connection may be asked once more on a new one.
  Outcome exchange(std::string_view request, std::string& body, bool again, bool look_up) try {
    const Instant deadline = now() + options.exchange;
    if (auto idle = again ? pool.take() : nullptr) {
      Outcome out = once(*idle, request, body, deadline);
      if (!out.ec && idle->reusable()) pool.give(std::move(idle));
      if (!out.ec || out.ec == asio::error::timed_out || !idle || !idle->silent()) return out;
    }
    return fresh(request, body, deadline, look_up);
  } catch (const boost::system::system_error& e) {
    return {e.code()};
  } catch (const std::bad_alloc&) {
    return {asio::error::no_memory};
  }

  Result<HttpResponse> answer(std::string_view request, bool again) {
    HttpResponse out;
    const Outcome done = exchange(request, out.body, again, true);
    if (done.ec) return explain(endpoint, done.ec);
    if (!done.protocol) return done.protocol.error();
    out.status = done.status;
    return out;
  }
};

Client::Client(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::create(const Endpoint& endpoint, Options options) {
  auto headers = common_headers(endpoint, options.token);
  if (!headers) return headers.error();
  std::unique_ptr<Impl> impl(new Impl{endpoint, std::move(options)});
  impl->headers = std::move(*headers);
  if (endpoint.transport == Endpoint::Transport::tls) {
    auto tls = tls_context(impl->options.ca_file);
    if (!tls) return tls.error();
    impl->tls.emplace(std::move(*tls));
  }
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Result<HttpResponse> Client::get(std::string_view target) {
  return impl_->answer(impl_->request("GET", target), true);
}

// What it asks for may have been done although no answer came, so it is never asked twice.
Result<HttpResponse> Client::post(std::string_view target) {
  const std::string request = impl_->request("POST", target);
  return impl_->answer(request.substr(0, request.size() - 4) + "\r\nContent-Length: 0\r\n\r\n",
                       false);
}

std::string Client::prepare(std::string_view target) const { return impl_->request("GET", target); }

Client::Answer Client::ask(std::string_view prepared, std::string& body) noexcept try {
  if (impl_->failures != 0 && now() < impl_->not_before.load()) return {Errc::lost};
  const Impl::Outcome done = impl_->exchange(prepared, body, true, false);
  if (done.ec) return {to_errc(done.ec), 0};
  if (!done.protocol) return {done.protocol.error().code, 0};
  return {Errc::ok, done.status, done.connection};
} catch (...) {
  return {Errc::lost};  // What a library throws is no reading.
}

const Endpoint& Client::endpoint() const noexcept { return impl_->endpoint; }

}  // namespace zeus::net
