#include "net/peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <utility>

namespace zeus::net {
namespace {

std::string text_of(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(family, address, text, sizeof text);
  return text;
}

}  // namespace

Peer unix_peer(int fd) {
  Peer peer;
  peer.local = true;
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0) {
    peer.pid = who.pid;
    peer.uid = who.uid;
    peer.gid = who.gid;
  }
  peer.who = fmt::format("uid {}", static_cast<int>(peer.uid));
  peer.name = fmt::format("{} pid {}", peer.who, peer.pid);
  return peer;
}

Peer tcp_peer(const sockaddr_storage& address) {
  Peer peer;
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    const std::string text = text_of(AF_INET, &in.sin_addr);
    peer.loopback = (ntohl(in.sin_addr.s_addr) >> 24) == 127;
    peer.name = fmt::format("{}:{}", text, ntohs(in.sin_port));
    peer.who = text;
  } else if (address.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
    const auto& bytes = in.sin6_addr.s6_addr;
    const std::string text = text_of(AF_INET6, &in.sin6_addr);
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&in.sin6_addr);
    peer.loopback = IN6_IS_ADDR_LOOPBACK(&in.sin6_addr) || (mapped && bytes[12] == 127);
    peer.name = fmt::format("[{}]:{}", text, ntohs(in.sin6_port));
    if (mapped) {
      peer.who = text_of(AF_INET, bytes + 12);
    } else {
      in6_addr network = in.sin6_addr;
      std::fill(network.s6_addr + 8, network.s6_addr + 16, std::uint8_t{0});
      peer.who = text_of(AF_INET6, &network) + "/64";  // A host may choose the rest of it.
    }
  }
  if (peer.loopback) peer.who = "loopback";  // Any of its addresses may be chosen.
  return peer;
}

std::optional<Seats::Seat> Seats::take(const Peer& peer) {
  if (most_ == 0 || (peer.local && peer.uid == 0)) return Seat(nullptr, {});
  const std::lock_guard lock(mutex_);
  std::size_t& taken = taken_[peer.who];
  if (taken >= most_) return std::nullopt;
  ++taken;
  return Seat(this, peer.who);
}

void Seats::leave(const std::string& who) {
  const std::lock_guard lock(mutex_);
  const auto it = taken_.find(who);
  if (--it->second == 0) taken_.erase(it);
}

}  // namespace zeus::net
