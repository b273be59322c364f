#include "net/endpoint.h"

#include <sys/un.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "net/protocol.h"

namespace zeus::net {
namespace {

Error unreadable(std::string_view text, const std::string& why) {
  return {Errc::invalid, 0,
          "cannot read \"" + std::string(text) + "\" as the place of a daemon: " + why +
              "; write it like /run/zeusd/zeusd.sock, node1:4938, [::1]:4938 or https://node1"};
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// What may stand in a host name; a number of version 6 may have colons and a scope as well.
bool is_host(std::string_view host, bool bracketed) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [bracketed](unsigned char c) {
    if (std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_') return true;
    return bracketed && (c == ':' || c == '%');
  });
}

Result<Endpoint> socket_at(std::string_view path, std::string_view text) {
  constexpr std::size_t kMost = sizeof sockaddr_un::sun_path - 1;
  if (path.empty()) return unreadable(text, "the path of its socket is missing");
  if (path.find('\0') != std::string_view::npos) return unreadable(text, "it holds a zero byte");
  if (path.size() > kMost) {
    return unreadable(text, "a socket's path has at most " + std::to_string(kMost) + " bytes");
  }
  return Endpoint{Endpoint::Transport::unix_socket, std::string(path)};
}

Result<std::uint16_t> port_of(std::string_view digits, std::string_view text) {
  std::uint16_t port = 0;
  const char* const last = digits.data() + digits.size();
  const auto [end, ec] = std::from_chars(digits.data(), last, port);
  if (ec == std::errc{} && end == last && port != 0) return port;
  return unreadable(text, "its port is no number from 1 to 65535");
}

}  // namespace

std::string Endpoint::host_header() const {
  if (transport == Transport::unix_socket) return "localhost";
  const bool numeric = host.find(':') != std::string::npos;
  return (numeric ? '[' + host + ']' : host) + ':' + std::to_string(port);
}

std::string Endpoint::text() const {
  if (transport == Transport::tls) return "https://" + host_header();
  if (transport == Transport::tcp) return host_header();
  return path.starts_with('/') ? path : "unix:" + path;
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  std::string_view rest = text;
  if (rest.starts_with('/') || take(rest, "unix:")) return socket_at(rest, text);
  Endpoint out{Endpoint::Transport::tcp};
  const bool tls = take(rest, "https://");
  if (tls) out.transport = Endpoint::Transport::tls;
  if ((tls || take(rest, "http://")) && rest.ends_with('/')) rest.remove_suffix(1);

  const bool bracketed = take(rest, "[");
  const auto end = rest.find(bracketed ? ']' : ':');
  out.host = rest.substr(0, end);
  if (bracketed && end == std::string_view::npos)
    return unreadable(text, "a bracket is not closed");
  rest.remove_prefix(std::min(rest.size(), out.host.size() + (bracketed ? 1 : 0)));
  if (!is_host(out.host, bracketed)) return unreadable(text, "that is no name of a host");

  out.port = kPort;
  if (rest.empty()) return out;
  if (!take(rest, ":")) return unreadable(text, "only a port may follow the host");
  if (rest.find(':') != std::string_view::npos) {
    return unreadable(text, "a number of IP version 6 stands in brackets");
  }
  const auto port = port_of(rest, text);
  if (!port) return port.error();
  out.port = *port;
  return out;
}

}  // namespace zeus::net
