#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "net/endpoint.h"
#include "zeus/result.h"
#include "zeus/sensor.h"

namespace zeus::net {

struct HttpResponse {
  unsigned status = 0;
  std::string body{};
};

/// Asks a daemon, and waits for its answer on the calling thread: it has no thread of its own. May
/// be used from several threads at once, each exchange on a connection of its own. Connections are
/// kept; a forked child opens its own. No proxy is ever used.
class Client {
 public:
  struct Options {
    std::string token{};
    std::string ca_file{};  ///< PEM, for https; empty: what the system trusts.
    Duration connect = std::chrono::seconds(2);
    Duration exchange = std::chrono::seconds(5);  ///< From the request to the last byte.
  };

  /// Connects to nothing yet. Errc::invalid: the token or the CA file cannot be used.
  static Result<std::unique_ptr<Client>> create(const Endpoint& endpoint, Options options);
  ~Client();

  /// `target` is a path with its query. Any status is an answer; an error means that there was
  /// none, and says the way out. Errc::absent: no such socket; denied: it may not be used, or its
  /// certificate not be trusted; lost: nobody answers; busy: not in time; malformed: that was no
  /// HTTP; unsupported: it speaks another version of the wire.
  Result<HttpResponse> get(std::string_view target);
  Result<HttpResponse> post(std::string_view target);

  /// What ask() sends, made once.
  std::string prepare(std::string_view target) const;
  /// GET for paths that are asked again and again: once its connection stands and `body` has grown,
  /// nothing is allocated. After a failed connect the next ones fail at once, with Errc::lost, for
  /// a time that doubles from 0.1 s to 5 s.
  struct Answer {
    Errc error = Errc::ok;
    unsigned status = 0;
    std::uint64_t connection = 0;  ///< By which it came; counts up with each new one.
  };
  Answer ask(std::string_view prepared, std::string& body) noexcept;

  const Endpoint& endpoint() const noexcept;

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zeus::net
