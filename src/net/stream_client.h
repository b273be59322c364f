#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "net/asio.h"
#include "net/discovery.h"
#include "net/endpoint.h"
#include "zeus/device.h"

namespace zeus::net {

/// A sample of a device's power, as a daemon pushed it.
struct PowerSample {
  DeviceInfo::Kind kind{};
  std::uint16_t id = 0;  ///< As the daemon counts.
  double watts = 0;      ///< Of the GPU, or of the package.
  std::optional<double> dram_watts{};
  std::int64_t timestamp_ms = 0;  ///< By the daemon's wall clock, Unix epoch.
  Instant received{};
  /// Our wall clock less the daemon's, to be added to the timestamp; a daemon before 0.4 has none.
  std::optional<double> offset_s{};
};

/// Follows one stream of power of one daemon for as long as it lives, on an io_context of the
/// caller's that serves any number of them with one thread. Everything, the constructor and the
/// destructor too, runs on that thread, or while nothing runs.
///
/// Each time it connects it asks the daemon anew what there is, and for its clock: the offset is
/// the median over five GET /time of (t_sent + t_received) / 2 - t_daemon (specification of the
/// wire, appendix B).
class StreamFollower {
 public:
  enum class State : std::uint8_t {
    connecting,
    live,
    stale,    ///< Connected, but silent. A daemon without heartbeats may mean "constant" by it.
    down,     ///< It will be tried again.
    refused,  ///< 401 or 403: it will not.
  };
  struct Options {
    DeviceInfo::Kind kind = DeviceInfo::Kind::gpu;
    std::string token{};
    std::string ca_file{};  ///< PEM, for https; empty: what the system trusts.
    /// Between attempts, doubled each time up to the second, and spread by a half. The first again
    /// once a stream has lived for longer than `most_delay`.
    Duration first_delay = std::chrono::milliseconds(500);
    Duration most_delay = std::chrono::seconds(30);
    Duration step = std::chrono::seconds(5);  ///< For each step of connecting.
    /// Silence after which a stream is stale. A daemon that promises heartbeats, one in 5 s at
    /// least, is dead after three times as much.
    Duration patience = std::chrono::seconds(5);
  };
  struct Health {
    State state = State::connecting;
    std::string why{};  ///< Of down and refused: one sentence.
    Instant heard{};    ///< When anything came last; zero: never.
    std::uint64_t samples = 0;
    std::uint64_t bad = 0;       ///< Events that were skipped: none that can be read, or too long.
    std::uint64_t connects = 0;  ///< Streams that began.
    std::optional<double> offset_s{};
    std::optional<Discovery> discovery{};  ///< What the daemon said last.
  };
  using Take = std::function<void(const PowerSample&)>;

  /// Begins once `io` runs.
  StreamFollower(asio::io_context& io, const Endpoint& endpoint, Options options, Take take);
  StreamFollower(const StreamFollower&) = delete;
  StreamFollower& operator=(const StreamFollower&) = delete;
  ~StreamFollower();  ///< Takes no sample any more.

  Health health(Instant now = std::chrono::steady_clock::now()) const;
  const Endpoint& endpoint() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};
const char* to_string(StreamFollower::State state) noexcept;

}  // namespace zeus::net
