#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/asio.h"
#include "net/http.h"
#include "zeus/result.h"

namespace zeus::zeusd {

/// Whose a lease is: a user of this host, or the subject of a token; nobody in particular where
/// there are neither, and then the id alone is the right.
struct Holder {
  std::string who;  ///< "uid 1000", "token alice", "".
  pid_t pid = 0;    ///< The process whose end ends the lease; 0: none.
  friend bool operator==(const Holder&, const Holder&) = default;
};

/// How long what a client set is to stay. A lease lives as long as the process that opened it, or
/// as long as its heartbeats come, or both. What knobs it turned is the business of Control, which
/// is told of its end.
class Leases {
 public:
  using Clock = std::chrono::steady_clock;
  /// Called once for each lease that ends by itself, with the GPUs that it touched; never under the
  /// lock.
  using Ended = std::function<void(const std::string& id, const std::set<unsigned>& gpus,
                                   std::string_view why)>;

  /// Ends of processes are watched for on `context`.
  Leases(boost::asio::io_context& context, Ended ended);
  ~Leases();

  struct Info {
    std::string id, who;
    pid_t pid = 0;
    std::optional<std::uint32_t> ttl_s{};
    std::optional<double> left_s{};  ///< Until it ends without a heartbeat.
    bool waiting = false;            ///< Of an earlier daemon: it ends unless it is taken up.
    std::set<unsigned> gpus{};
  };

  /// `ttl_s`: between heartbeats. Errc::invalid where neither a process nor a ttl bounds it;
  /// Errc::busy where the holder has too many.
  zeus::Result<Info> open(const zeus::net::Peer& peer, const Holder& holder,
                          std::optional<std::uint32_t> ttl_s);
  /// A heartbeat, as every write under it is. Takes up a lease that waits. Errc::absent: it has
  /// ended or never was; denied: it is somebody else's.
  zeus::Result<Info> renew(std::string_view id, const zeus::net::Peer& peer, const Holder& holder);
  /// Ends it, without a word to Ended: the caller has the GPUs put back that it touched.
  zeus::Result<std::set<unsigned>> release(std::string_view id, const Holder& holder);
  /// Notes that a GPU was touched. False: the lease has ended meanwhile.
  bool touch(std::string_view id, unsigned gpu);

  /// Takes over what an earlier daemon left, as Control found it by owner(). It waits until
  /// `deadline` for a heartbeat.
  void adopt(std::string_view owner, unsigned gpu, Clock::time_point deadline);
  /// One line for the journal; empty where there is no such lease.
  std::string owner(std::string_view id) const;
  /// The id in such a line; empty where it is none of ours.
  static std::string id_of(std::string_view owner);

  void sweep(Clock::time_point now);  ///< Ends what has had no heartbeat in time.
  void end_all(std::string_view why);
  std::vector<Info> list() const;

 private:
  struct Lease {
    Info info;
    std::optional<Clock::time_point> deadline;
    std::unique_ptr<boost::asio::posix::stream_descriptor> process;
  };
  using Map = std::map<std::string, std::shared_ptr<Lease>, std::less<>>;

  void watch(Lease& lease, int pidfd);
  void end(const std::string& id, std::string_view why);
  std::shared_ptr<Lease> take_out(std::string_view id);
  void forget(std::shared_ptr<Lease> lease);
  zeus::Result<std::shared_ptr<Lease>> find(std::string_view id, const Holder& holder) const;
  static Info snapshot(const Lease& lease);

  boost::asio::io_context& context_;
  Ended ended_;
  mutable std::mutex mutex_;
  Map leases_;
};

}  // namespace zeus::zeusd
