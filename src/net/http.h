#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace zeus::net {

enum class Method : std::uint8_t { get, post, other };

/// Who is at the other end of a connection.
struct Peer {
  bool local = false;     ///< A Unix socket: pid, uid and gid are the kernel's word.
  bool loopback = false;  ///< TCP from this very host.
  pid_t pid = 0;          ///< 0: of a namespace that we do not see into.
  uid_t uid = static_cast<uid_t>(-1);
  gid_t gid = static_cast<gid_t>(-1);
  int socket = -1;   ///< Its descriptor, while the request is answered.
  std::string name;  ///< "uid 1000 pid 77", "127.0.0.1:5555".
  std::string who;   ///< Whose connections count together: "uid 1000", "10.0.0.7", "loopback".
};

/// What was asked. Views hold until the response is made.
struct Request {
  Method method = Method::other;
  std::string path;        ///< Decoded, once. What is routed and authorised.
  std::string_view query;  ///< As it came, without the question mark.
  std::string_view authorization, host, origin, protocol;  ///< Headers; empty where absent.
  const Peer* peer = nullptr;
};

/// A connection that has become a stream of server-sent events. Every call is made on the thread of
/// its worker.
class EventSink {
 public:
  virtual ~EventSink() = default;
  /// Sends an event that chunk() made, or keeps it until the peer has read what came before. Of one
  /// topic only the newest is kept: a slow peer misses values, never the present.
  virtual void send(std::uint32_t topic, const std::shared_ptr<const std::string>& chunk) = 0;
  virtual void end() = 0;  ///< No more events: the response is complete.
};

/// One subscription. Made by whoever answers the request; it goes when the connection does, on the
/// thread of its worker.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void open(EventSink& sink) = 0;  ///< The head of the response has been sent.
};

/// "data: ...\n\n" as one chunk of an HTTP/1.1 body.
std::shared_ptr<const std::string> chunk(std::string_view event);

struct Response {
  unsigned status = 200;
  std::string_view type{};  ///< Content type, a literal; empty: none is sent.
  std::string body{};
  std::shared_ptr<const std::string> shared{};  ///< Instead of `body`: many answers, one text.
  std::string headers{};                        ///< Further lines, each with its "\r\n".
  std::unique_ptr<Stream> stream{};             ///< Instead of a body: events, until either ends.
  std::optional<std::int64_t> until{};          ///< Unix time at which the stream must end.
};

/// {"error": why}, whatever bytes are in it.
Response refusal(unsigned status, std::string_view why);

}  // namespace zeus::net
