#pragma once

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
#include <string>
#include <string_view>
#include <utility>

namespace zeus::test {

/// A client that says exactly the bytes a test gives it, and tells exactly those that came back.
class Wire {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPatience{10};

  /// The path of a Unix socket, or "127.0.0.1:PORT".
  explicit Wire(const std::string& where) {
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
    if (fd_ >= 0 && ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      error_ = errno;
      close();
    }
  }
  Wire(Wire&& o) noexcept
      : fd_(std::exchange(o.fd_, -1)), error_(o.error_), got_(std::move(o.got_)) {}
  Wire& operator=(Wire&& o) noexcept {
    std::swap(fd_, o.fd_);
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

  /// What comes until the peer closes, or nothing came for long.
  std::string rest() {
    while (read_some()) {
    }
    return std::exchange(got_, {});
  }
  /// What comes up to and with `text`; all that came where it never did.
  std::string until(std::string_view text) {
    std::size_t at = 0;
    while ((at = got_.find(text)) == std::string::npos && read_some()) {
    }
    return take(at == std::string::npos ? got_.size() : at + text.size());
  }
  /// One answer: its head, and the body that it announces.
  std::string answer(bool head_only = false) {
    std::string head = until("\r\n\r\n");
    const auto at = head.find("content-length: ");
    std::size_t length = 0;
    if (at != std::string::npos) {
      (void)std::from_chars(head.data() + at + 16, head.data() + head.size(), length);
    }
    if (head_only) return head;
    while (got_.size() < length && read_some()) {
    }
    return head + take(std::min(length, got_.size()));
  }
  /// The status of one answer; 0: none came.
  int status(bool head_only = false) { return status_of(answer(head_only)); }
  static int status_of(std::string_view answer) {
    int status = 0;
    if (answer.starts_with("HTTP/1.1 ")) {
      (void)std::from_chars(answer.data() + 9, answer.data() + answer.size(), status);
    }
    return status;
  }
  int ask(std::string_view request) { return send(request) ? status() : 0; }

  /// Whether the peer closes before long, having said nothing.
  bool closes() {
    while (read_some()) {
    }
    return got_.empty() && closed_;
  }

 private:
  bool read_some() {
    pollfd p{fd_, POLLIN, 0};
    if (fd_ < 0 || closed_ || ::poll(&p, 1, static_cast<int>(1000 * kPatience.count())) <= 0)
      return false;
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
