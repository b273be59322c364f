#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "net/http.h"

namespace zeus::net {

Peer unix_peer(int fd);
Peer tcp_peer(const sockaddr_storage& address);

/// How many connections each peer has: a user over the Unix socket, over TCP a host. Nobody takes
/// more than a share, so that one client's fault is not everybody's. Root may take them all. Called
/// from any thread.
class Seats {
 public:
  /// One connection of one peer, for as long as it lives.
  class Seat {
   public:
    Seat(Seats* seats, std::string who) : seats_(seats), who_(std::move(who)) {}
    Seat(Seat&& o) noexcept : seats_(std::exchange(o.seats_, nullptr)), who_(std::move(o.who_)) {}
    Seat& operator=(Seat&&) = delete;
    ~Seat() {
      if (seats_ != nullptr) seats_->leave(who_);
    }

   private:
    Seats* seats_;  ///< Null: it is not counted.
    std::string who_;
  };

  /// `most` of one peer; 0 is no bound.
  explicit Seats(std::size_t most) : most_(most) {}
  /// Nothing where the peer has as many as it may have.
  std::optional<Seat> take(const Peer& peer);
  std::size_t most() const noexcept { return most_; }

 private:
  void leave(const std::string& who);

  std::size_t most_;
  std::mutex mutex_;
  std::map<std::string, std::size_t> taken_;
};

}  // namespace zeus::net
