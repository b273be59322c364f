#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include "net/inbox.h"
#include "net/response_parser.h"
#include "net/transport.h"
#include "zeus/sensor.h"

namespace zeus::net {

/// One connection to a daemon, used by one thread at a time. Deadlines are kept by running its
/// io_context on the calling thread for no longer than that.
class Connection {
 public:
  /// `serial` tells it from the others of its client.
  Connection(std::uint64_t generation, std::uint64_t serial)
      : generation_(generation), serial_(serial) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Tries each address in turn, each for its share of the time that is left.
  error_code open(const Endpoint& to, asio::ssl::context* tls,
                  const std::vector<Address>& addresses, Instant deadline);
  /// Sends a request and takes the answer in. After an error the connection is of no more use.
  error_code exchange(std::string_view request, ResponseParser& parser, Instant deadline);

  bool reusable() const noexcept { return reusable_; }
  /// Of the last exchange nothing had come before it failed.
  bool silent() const noexcept { return silent_; }
  std::uint64_t generation() const noexcept { return generation_; }
  std::uint64_t serial() const noexcept { return serial_; }

 private:
  /// Memory for the one operation that is under way: the next uses it again.
  struct Pocket {
    alignas(std::max_align_t) std::array<std::byte, 2048> bytes;
    bool taken = false;
  };
  template <class T>
  struct Allocator {
    using value_type = T;
    Pocket* pocket;
    explicit Allocator(Pocket* p) noexcept : pocket(p) {}
    template <class U>
    Allocator(const Allocator<U>& o) noexcept : pocket(o.pocket) {}  // NOLINT: as allocators do.
    T* allocate(std::size_t n) {
      if (pocket->taken || n * sizeof(T) > pocket->bytes.size()) {
        return static_cast<T*>(::operator new(n * sizeof(T)));
      }
      pocket->taken = true;
      return reinterpret_cast<T*>(pocket->bytes.data());
    }
    void deallocate(T* p, std::size_t /*n*/) noexcept {
      if (reinterpret_cast<std::byte*>(p) != pocket->bytes.data()) return ::operator delete(p);
      pocket->taken = false;
    }
    template <class U>
    bool operator==(const Allocator<U>& o) const noexcept {
      return pocket == o.pocket;
    }
  };
  /// Takes the result of an operation.
  struct Done {
    using allocator_type = Allocator<std::byte>;
    Connection* to;
    allocator_type get_allocator() const noexcept { return allocator_type(&to->pocket_); }
    void operator()(const error_code& ec, std::size_t n = 0) const noexcept {
      to->result_ = ec;
      to->count_ = n;
      to->done_ = true;
    }
  };

  template <class Start>
  error_code wait(Instant deadline, Start&& start);
  error_code connect(const Endpoint& to, asio::ssl::context* tls, const Address& address,
                     Instant deadline);

  Pocket pocket_;
  asio::io_context io_{1};
  std::optional<Transport> transport_;
  Inbox inbox_;
  bool done_ = false, reusable_ = false, silent_ = true;
  error_code result_;
  std::size_t count_ = 0;
  std::uint64_t generation_, serial_;
};

}  // namespace zeus::net
