#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/tree.h"

namespace zeus::test {

/// A server of real sockets whose answers a test writes byte by byte: some daemon that we do not
/// own. It reads a request up to its blank line and hands it to the script.
class Peer {
 public:
  /// One connection, in the hands of the script.
  class Call {
   public:
    Call(int fd, std::string request, const std::atomic<bool>& over)
        : request_(std::move(request)), fd_(fd), over_(over) {}
    const std::string& request() const { return request_; }
    std::string line() const { return request_.substr(0, request_.find("\r\n")); }
    /// "/gpu/get_power?gpu_ids=0".
    std::string target() const {
      const auto from = request_.find(' ') + 1;
      return request_.substr(from, request_.find(' ', from) - from);
    }
    bool has(std::string_view text) const { return request_.find(text) != std::string::npos; }

    /// False once nobody reads.
    bool send(std::string_view bytes) const {
      return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(bytes.size());
    }
    void answer(int status, std::string_view body) const {
      send("HTTP/1.1 " + std::to_string(status) +
           " x\r\ncontent-length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body));
    }
    /// The connection ends with a reset in the place of an orderly end.
    void reset() const {
      const linger now{1, 0};
      ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    /// Until the client has gone or the test is over.
    void wait() const {
      char byte = 0;
      while (!over_) {
        pollfd p{fd_, POLLIN, 0};
        if (::poll(&p, 1, 5) > 0 && ::recv(fd_, &byte, 1, MSG_DONTWAIT) <= 0) return;
      }
    }

   private:
    std::string request_;
    int fd_;
    const std::atomic<bool>& over_;
  };
  /// Answers one request; true: the connection stays open for another.
  using Script = std::function<bool(const Call&)>;

  explicit Peer(Script script) : Peer(std::move(script), AF_INET) {}
  /// At a path of its own.
  static Peer at_path(Script script) { return Peer(std::move(script), AF_UNIX); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() { stop(); }

  /// "127.0.0.1:PORT" or the path.
  std::string where() const { return where_; }
  std::size_t connections() const { return connections_; }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

  /// Nothing listens any more, and every connection ends.
  void stop() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  /// Listens again at the same place.
  void start(Script script) {
    script_ = std::move(script);
    over_ = false;
    listen();
    thread_ = std::thread([this] { run(); });
  }

 private:
  Peer(Script script, int family) : family_(family) { start(std::move(script)); }

  void listen() {
    fd_ = ::socket(family_, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (family_ == AF_UNIX) {
      where_ = (tree_.root() / "z.sock").string();
      ::unlink(where_.c_str());
      sockaddr_un a{};
      a.sun_family = AF_UNIX;
      where_.copy(a.sun_path, sizeof a.sun_path - 1);
      bind(&a, sizeof a);
    } else {
      const int on = 1;
      ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      sockaddr_in a{};
      a.sin_family = AF_INET;
      a.sin_port = port_;
      a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      bind(&a, sizeof a);
      socklen_t size = sizeof a;
      ::getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &size);
      port_ = a.sin_port;
      where_ = "127.0.0.1:" + std::to_string(ntohs(port_));
    }
  }
  void bind(const void* address, socklen_t size) const {
    if (::bind(fd_, static_cast<const sockaddr*>(address), size) != 0 || ::listen(fd_, 16) != 0) {
      ::abort();
    }
  }

  void run() {
    std::vector<std::thread> serving;
    while (!over_) {
      pollfd p{fd_, POLLIN, 0};
      if (::poll(&p, 1, 5) <= 0) continue;
      const int client = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) continue;
      ++connections_;
      serving.emplace_back([this, client] {
        while (!over_ && serve(client)) {
        }
        ::close(client);
      });
    }
    for (std::thread& t : serving) t.join();
  }

  bool serve(int client) {
    std::string request;
    while (request.find("\r\n\r\n") == std::string::npos) {
      pollfd p{client, POLLIN, 0};
      if (over_) return false;
      if (::poll(&p, 1, 5) <= 0) continue;
      char buffer[4096];
      const ssize_t n = ::recv(client, buffer, sizeof buffer, 0);
      if (n <= 0) return false;
      request.append(buffer, static_cast<std::size_t>(n));
    }
    const Call call(client, std::move(request), over_);
    {
      const std::lock_guard lock(mutex_);
      lines_.push_back(call.line());
    }
    return script_(call);
  }

  Tree tree_;
  Script script_;
  int family_, fd_ = -1;
  in_port_t port_ = 0;
  std::string where_;
  std::atomic<bool> over_{false};
  std::atomic<std::size_t> connections_{0};
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  std::thread thread_;
};

}  // namespace zeus::test
