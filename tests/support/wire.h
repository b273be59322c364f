#pragma once

// A client that says exactly the bytes a test gives it, and tells exactly those that came back.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace zeus::test {

using Json = nlohmann::json;

struct Answer {
  int status = 0;
  std::string head{}, body{};

  std::string text() const { return head + body; }

  /// A header's value; empty where there is none.
  std::string header(const std::string& name) const {
    const auto at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const auto from = at + name.size() + 4;
    return head.substr(from, head.find("\r\n", from) - from);
  }
  Json json() const { return Json::parse(body, nullptr, false); }
  /// The text of {"errors": {"1": "..."}}, or of {"error": "..."} for no id.
  std::string error(const std::string& id = {}) const {
    const Json j = json();
    const Json& e = id.empty() ? j : j.contains("errors") ? j["errors"] : Json();
    const std::string key = id.empty() ? "error" : id;
    return e.is_object() && e.contains(key) ? e[key].get<std::string>() : std::string();
  }
};

/// One connection.
class Wire {
 public:
  using Clock = std::chrono::steady_clock;
  using Patience = std::chrono::milliseconds;
  static constexpr std::chrono::seconds kPatience{20};

  /// The path of a Unix socket, or "127.0.0.1:PORT", which may be called from an address of this
  /// host.
  explicit Wire(const std::string& where, int receive_buffer = 0, const char* from = nullptr) {
    sockaddr_storage address{};
    socklen_t size = sizeof(sockaddr_un);
    if (where.starts_with('/')) {
      auto& un = reinterpret_cast<sockaddr_un&>(address);
      un.sun_family = AF_UNIX;
      where.copy(un.sun_path, sizeof un.sun_path - 1);
    } else {
      auto& in = reinterpret_cast<sockaddr_in&>(address);
      const auto colon = where.rfind(':');
      in.sin_family = AF_INET;
      in.sin_port = htons(static_cast<in_port_t>(std::stoi(where.substr(colon + 1))));
      in.sin_addr.s_addr = ::inet_addr(where.substr(0, colon).c_str());
      size = sizeof(sockaddr_in);
    }
    fd_ = ::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer != 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    if (from != nullptr) {
      sockaddr_in here{};
      here.sin_family = AF_INET;
      here.sin_addr.s_addr = ::inet_addr(from);
      (void)::bind(fd_, reinterpret_cast<const sockaddr*>(&here), sizeof here);
    }
    if (fd_ >= 0 && ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      error_ = errno;
      close();
    }
  }
  Wire(Wire&& o) noexcept { *this = std::move(o); }
  Wire& operator=(Wire&& o) noexcept {
    std::swap(fd_, o.fd_);
    std::swap(error_, o.error_);
    std::swap(closed_, o.closed_);
    std::swap(got_, o.got_);
    return *this;
  }
  ~Wire() { close(); }

  int fd() const { return fd_; }
  bool connected() const { return fd_ >= 0; }
  int error() const { return error_; }  ///< Of connect().
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void half_close() const { (void)::shutdown(fd_, SHUT_WR); }

  /// False once the peer takes no more.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  /// "GET /path", and further lines of the head.
  void request(const std::string& line, const std::string& headers = {}) const {
    send(line + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  }

  /// One answer: its head, and the body that it announces. Status 0: none came.
  Answer answer(bool head_only = false) {
    Answer a;
    a.head = until("\r\n\r\n");
    a.status = status_of(a.head);
    if (head_only) return a;
    const std::string digits = a.header("content-length");
    std::size_t length = 0;
    (void)std::from_chars(digits.data(), digits.data() + digits.size(), length);
    while (got_.size() < length && read_some()) {
    }
    a.body = take(length);
    return a;
  }
  Answer ask(const std::string& line, const std::string& headers = {}) {
    request(line, headers);
    return answer();
  }
  /// The status of one answer; 0: none came.
  int status(bool head_only = false) { return answer(head_only).status; }
  /// The same to a request of which every byte is given.
  int raw(std::string_view request) { return send(request) ? status() : 0; }
  static int status_of(std::string_view answer) {
    int status = 0;
    if (answer.starts_with("HTTP/1.1 ")) {
      (void)std::from_chars(answer.data() + 9, answer.data() + answer.size(), status);
    }
    return status;
  }

  /// What comes until the peer closes, or nothing came for long.
  std::string rest() {
    while (read_some()) {
    }
    return std::exchange(got_, {});
  }
  /// What comes up to and with `text`; all that came where it never did.
  std::string until(std::string_view text, Patience patience = kPatience) {
    std::size_t at = 0;
    while ((at = got_.find(text)) == std::string::npos && read_some(patience)) {
    }
    return take(at == std::string::npos ? got_.size() : at + text.size());
  }
  /// One chunk of a stream; empty at its end, or where none comes in time.
  std::string chunk(Patience patience = kPatience) {
    const std::string digits = until("\r\n", patience);
    if (!digits.ends_with('\n')) {
      got_ = digits + got_;
      return {};
    }
    std::size_t size = 0;
    (void)std::from_chars(digits.data(), digits.data() + digits.size(), size, 16);
    while (got_.size() < size + 2 && size > 0 && read_some()) {
    }
    const std::string text = take(size);
    (void)take(2);
    return text;
  }
  /// Whether the peer closes before long, whatever it says before.
  bool ended() {
    while (read_some()) {
    }
    return closed_;
  }
  /// Whether it closes having said nothing.
  bool closes() { return ended() && got_.empty(); }

 private:
  bool read_some(Patience patience = kPatience) {
    pollfd p{fd_, POLLIN, 0};
    if (fd_ < 0 || closed_ || ::poll(&p, 1, static_cast<int>(patience.count())) <= 0) return false;
    char buffer[65536];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    closed_ = n <= 0;
    if (n > 0) got_.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  }
  std::string take(std::size_t n) {
    std::string out = got_.substr(0, n);
    got_.erase(0, n);
    return out;
  }

  int fd_ = -1, error_ = 0;
  bool closed_ = false;
  std::string got_;
};

}  // namespace zeus::test
