#include "net/transport.h"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <cerrno>

#include "net/protocol.h"
#include "net/response_parser.h"

namespace zeus::net {
namespace {

namespace http = boost::beast::http;

constexpr const char* kRunning = "is zeusd running? systemctl status zeusd";

bool is_http(const error_code& ec) noexcept {
  return ec.category() == http::make_error_code(http::error::end_of_stream).category();
}
bool is_tls(const error_code& ec) noexcept {
  return ec.category() == asio::error::get_ssl_category() ||
         ec.category() == asio::ssl::error::get_stream_category();
}

/// Who may connect to a socket that refuses us.
std::string way_in(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return "may this user enter the folder of its socket?";
  group found{};
  group* group = nullptr;
  char buffer[4096];
  const bool named =
      ::getgrgid_r(s.st_gid, &found, buffer, sizeof buffer, &group) == 0 && group != nullptr;
  const std::string name = named ? group->gr_name : std::to_string(s.st_gid);
  if ((s.st_mode & S_IWGRP) != 0) return "join the group " + name + ", which owns its socket";
  return "its socket admits nobody else; start zeusd with --socket-permissions 660";
}

std::string sentence(const Endpoint& to, const error_code& ec) {
  if (ec == http::error::body_limit || ec == http::error::header_limit) {
    return "it answers with more than anybody asked for; is it zeusd that listens there?";
  }
  if (is_http(ec)) {
    return "what answers there speaks no HTTP (" + ec.message() +
           "); is it zeusd that listens there?";
  }
  if (is_tls(ec)) {
    return "TLS failed (" + ec.message() +
           "); name the file of its authority in SSL_CERT_FILE, or leave https:// out";
  }
  if (ec == asio::error::timed_out) return std::string("it did not answer in time; ") + kRunning;
  if (ec == asio::error::eof || ec == asio::error::connection_reset ||
      ec == asio::error::broken_pipe) {
    return std::string("it closed the connection instead of answering; ") + kRunning;
  }
  if (ec.category() == asio::error::get_netdb_category() ||
      ec.category() == asio::error::get_addrinfo_category()) {
    return "the name " + to.host + " is not known (" + ec.message() + "); check how it is written";
  }
  std::string why = ec.message();
  if (!why.empty()) why.front() = static_cast<char>(std::tolower(why.front()));
  const bool path = to.transport == Endpoint::Transport::unix_socket;
  return why + "; " + (path && ec.value() == EACCES ? way_in(to.path) : kRunning);
}

}  // namespace

Transport::Transport(asio::io_context& io, const Endpoint& to, asio::ssl::context* tls)
    : socket_(io) {
  if (tls == nullptr) return;
  tls_.emplace(socket_, *tls);
  tls_->set_verify_callback(asio::ssl::host_name_verification(to.host));
  // A certificate is chosen by name; a number is none.
  error_code numeric;
  asio::ip::make_address(to.host, numeric);
  if (numeric) SSL_set_tlsext_host_name(tls_->native_handle(), to.host.c_str());
}

error_code Transport::open(const Address& address) {
  const auto protocol = address.protocol();
  const int fd = ::socket(protocol.family(), protocol.type() | SOCK_CLOEXEC, protocol.protocol());
  if (fd < 0) return {errno, boost::system::system_category()};
  error_code ec;
  socket_.assign(protocol, fd, ec);
  if (ec) ::close(fd);
  if (!ec && protocol.family() != AF_UNIX) {
    error_code none;
    socket_.set_option(asio::ip::tcp::no_delay(true), none);
    socket_.set_option(asio::socket_base::keep_alive(true), none);
  }
  return ec;
}

void Transport::close() noexcept {
  error_code none;
  socket_.close(none);
}

Result<asio::ssl::context> tls_context(const std::string& ca_file) {
  asio::ssl::context tls(asio::ssl::context::tls_client);
  error_code ec;
  tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                      asio::ssl::context::no_tlsv1_1,
                  ec);
  if (!ec) tls.set_verify_mode(asio::ssl::verify_peer, ec);
  if (!ec && ca_file.empty()) tls.set_default_verify_paths(ec);
  if (!ec && !ca_file.empty()) tls.load_verify_file(ca_file, ec);
  if (!ec) return tls;
  return Error{Errc::invalid, 0,
               "cannot use the certificates in " +
                   (ca_file.empty() ? std::string("the system's folder") : ca_file) + ": " +
                   ec.message() + "; a file of certificates in PEM is needed"};
}

Errc to_errc(const error_code& ec) noexcept {
  if (!ec) return Errc::ok;
  if (is_http(ec)) return Errc::malformed;
  if (is_tls(ec)) return Errc::denied;
  if (ec == asio::error::timed_out) return Errc::busy;
  if (ec == asio::error::no_memory || ec == asio::error::no_descriptors) return Errc::busy;
  if (ec.category() == boost::system::system_category()) {
    if (ec.value() == EACCES || ec.value() == EPERM) return Errc::denied;
    if (ec.value() == ENOENT) return Errc::absent;
  }
  return Errc::lost;
}

Error explain(const Endpoint& to, const error_code& ec) {
  return {to_errc(ec), ec.value(), "cannot reach zeusd at " + to.text() + ": " + sentence(to, ec)};
}

Result<std::string> common_headers(const Endpoint& to, const std::string& token) {
  const bool fits =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (!fits) {
    return Error{Errc::invalid, 0,
                 "cannot send this token to zeusd at " + to.text() +
                     ": it holds blanks or bytes beyond ASCII; ZEUSD_TOKEN is the one line that "
                     "zeusd token issue printed"};
  }
  std::string out = "\r\nHost: " + to.host_header() + "\r\n" + std::string(kProtocolHeader) + ": " +
                    std::to_string(kProtocol);
  if (!token.empty()) out += "\r\nAuthorization: Bearer " + token;
  return out;
}

void ResponseParser::on_field_impl(http::field name, View text, View value, Code& ec) {
  ec = {};
  if (name == http::field::content_type) {
    event_stream_ = value.starts_with("text/event-stream");
  } else if (boost::beast::iequals(text, View(kProtocolHeader.data(), kProtocolHeader.size()))) {
    protocol_.emplace(value.data(), value.size());
  }
}

Status ResponseParser::check_protocol(const Endpoint& from) const {
  if (!protocol_ || *protocol_ == std::to_string(kProtocol)) return ok();
  return Error{Errc::unsupported, 0,
               "cannot talk to zeusd at " + from.text() + ": it speaks version " + *protocol_ +
                   " of the wire and this program version " + std::to_string(kProtocol) +
                   "; install the same version of both"};
}

}  // namespace zeus::net
