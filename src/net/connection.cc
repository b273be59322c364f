#include "net/connection.h"

#include <algorithm>

namespace zeus::net {

template <class Start>
error_code Connection::wait(Instant deadline, Start&& start) {
  done_ = false;
  start(Done{this});
  io_.restart();
  io_.run_until(deadline);
  if (done_) return result_;
  transport_->close();  // The operation ends, and gives its memory back.
  io_.restart();
  io_.run();
  return asio::error::timed_out;
}

error_code Connection::connect(const Endpoint& to, asio::ssl::context* tls, const Address& address,
                               Instant deadline) {
  transport_.emplace(io_, to, tls);
  if (const error_code ec = transport_->open(address)) return ec;
  const error_code ec =
      wait(deadline, [&](Done done) { transport_->async_connect(address, done); });
  if (ec || !transport_->encrypted()) return ec;
  return wait(deadline, [&](Done done) { transport_->async_handshake(done); });
}

error_code Connection::open(const Endpoint& to, asio::ssl::context* tls,
                            const std::vector<Address>& addresses, Instant deadline) {
  error_code ec = asio::error::host_not_found;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto share = (deadline - now()) / static_cast<std::int64_t>(addresses.size() - i);
    ec = connect(to, tls, addresses[i], now() + share);
    if (!ec) return ec;
  }
  return ec;
}

error_code Connection::exchange(std::string_view request, ResponseParser& parser,
                                Instant deadline) {
  reusable_ = false;
  silent_ = true;
  inbox_.clear();
  error_code ec = wait(deadline, [&](Done done) {
    transport_->async_write(asio::buffer(request.data(), request.size()), done);
  });
  while (!ec) {
    ec = wait(deadline, [&](Done done) { transport_->async_read_some(inbox_.room(), done); });
    if (ec == asio::ssl::error::stream_truncated) ec = asio::error::eof;
    if (ec == asio::error::eof && parser.need_eof() && parser.is_header_done()) {
      ec = {};
      parser.put_eof(ec);
      return ec;
    }
    if (ec) return ec;
    silent_ = false;
    if (inbox_.take(count_, parser, ec)) {
      // What nobody asked for makes the next answer another one's.
      reusable_ = parser.keep_alive() && inbox_.empty();
      return ec;
    }
  }
  return ec;
}

}  // namespace zeus::net
