#include "net/async_connection.h"

#include <utility>

namespace zeus::net {

using asio::awaitable;
using asio::redirect_error;
using asio::use_awaitable;

AsyncConnection::AsyncConnection(asio::io_context& io, const Endpoint& endpoint)
    : io_(io),
      endpoint_(endpoint),
      resolver_(io),
      watch_(io),
      turn_(std::make_shared<std::uint64_t>(0)) {}

Status AsyncConnection::prepare(const std::string& token, const std::string& ca_file) {
  auto headers = common_headers(endpoint_, token);
  if (!headers) return headers.error();
  headers_ = std::move(*headers);
  if (endpoint_.transport != Endpoint::Transport::tls) return ok();
  auto tls = tls_context(ca_file);
  if (!tls) return tls.error();
  tls_.emplace(std::move(*tls));
  return ok();
}

void AsyncConnection::close() noexcept {
  open_ = false;
  resolver_.cancel();
  if (transport_) transport_->close();
}

void AsyncConnection::arm(Duration limit) {
  expired_ = false;
  if (limit == Duration::zero()) return;
  watch_.expires_after(limit);
  watch_.async_wait([this, turn = std::weak_ptr(turn_), mine = ++*turn_](const error_code& ec) {
    const auto alive = turn.lock();
    if (ec || !alive || *alive != mine) return;
    expired_ = true;
    close();
  });
}

error_code AsyncConnection::disarm(error_code ec) {
  ++*turn_;
  watch_.cancel();
  if (std::exchange(expired_, false)) ec = asio::error::timed_out;
  if (ec == asio::ssl::error::stream_truncated) ec = asio::error::eof;
  if (ec) close();
  return ec;
}

awaitable<std::vector<Address>> AsyncConnection::addresses(error_code& ec) {
  std::vector<Address> out;
  if (endpoint_.transport == Endpoint::Transport::unix_socket) {
    out.emplace_back(asio::local::stream_protocol::endpoint(endpoint_.path));
    co_return out;
  }
  const std::string service = std::to_string(endpoint_.port);
  const auto found = co_await resolver_.async_resolve(endpoint_.host, service,
                                                      asio::ip::resolver_base::numeric_service,
                                                      redirect_error(use_awaitable, ec));
  for (const auto& f : found) out.emplace_back(f.endpoint());
  co_return out;
}

awaitable<error_code> AsyncConnection::connect(Duration limit) {
  close();
  inbox_.clear();
  error_code ec;
  arm(limit);
  const std::vector<Address> all = co_await addresses(ec);
  ec = disarm(ec);
  if (ec) co_return ec;
  ec = asio::error::host_not_found;
  for (const Address& address : all) {
    transport_.emplace(io_, endpoint_, tls_ ? &*tls_ : nullptr);
    ec = transport_->open(address);
    if (ec) continue;
    arm(limit);
    co_await transport_->async_connect(address, redirect_error(use_awaitable, ec));
    if (!ec && transport_->encrypted()) {
      co_await transport_->async_handshake(redirect_error(use_awaitable, ec));
    }
    ec = disarm(ec);
    open_ = !ec;
    if (open_) break;
  }
  co_return ec;
}

awaitable<error_code> AsyncConnection::send(std::string target, Duration limit) {
  error_code ec;
  if (!open_) ec = co_await connect(limit);
  if (ec) co_return ec;
  const std::string request = "GET " + target + " HTTP/1.1" + headers_ + "\r\n\r\n";
  arm(limit);
  co_await transport_->async_write(asio::buffer(request), redirect_error(use_awaitable, ec));
  co_return disarm(ec);
}

awaitable<error_code> AsyncConnection::receive(ResponseParser& parser, Duration limit) {
  error_code ec;
  arm(limit);
  const std::size_t count =
      co_await transport_->async_read_some(inbox_.room(), redirect_error(use_awaitable, ec));
  ec = disarm(ec);
  if (ec == asio::error::eof && parser.need_eof() && parser.is_header_done()) {
    ec = {};
    parser.put_eof(ec);
  } else if (!ec) {
    inbox_.take(count, parser, ec);
  }
  if (ec) close();
  co_return ec;
}

awaitable<Result<HttpResponse>> AsyncConnection::get(std::string target, Duration limit) {
  HttpResponse out;
  ResponseParser parser(out.body);
  const auto status = co_await begin(std::move(target), parser, limit);
  if (!status) co_return status.error();
  while (!parser.is_done()) {
    const auto more = co_await this->more(parser, limit);
    if (!more) co_return more.error();
  }
  if (!parser.keep_alive() || !inbox_.empty()) close();
  out.status = *status;
  co_return out;
}

awaitable<Result<unsigned>> AsyncConnection::begin(std::string target, ResponseParser& parser,
                                                   Duration limit) {
  error_code ec = co_await send(std::move(target), limit);
  while (!ec && !parser.is_header_done()) ec = co_await receive(parser, limit);
  if (ec) co_return explain(endpoint_, ec);
  const auto version = parser.check_protocol(endpoint_);
  if (!version) co_return version.error();
  co_return parser.status();
}

awaitable<Result<bool>> AsyncConnection::more(ResponseParser& parser, Duration limit) {
  if (parser.is_done()) co_return false;
  const error_code ec = co_await receive(parser, limit);
  if (ec) co_return explain(endpoint_, ec);
  co_return !parser.is_done();
}

}  // namespace zeus::net
