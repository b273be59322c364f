#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/client.h"
#include "net/discovery.h"

namespace zeus::zeusd {

using net::Group;

/// What a status of the daemon means (specification of the wire, section 3.2).
Errc to_errc(unsigned status) noexcept;

/// What a daemon says where it refuses: the text of its "error", of its "errors", or all it said.
std::string words_of(const std::string& body);

/// One daemon and what it served when it was opened. A daemon that was started anew may count its
/// devices differently: each new connection is trusted only once the daemon was asked again.
class Session {
 public:
  /// Connects, and asks for everything that stays: the devices, and what we may do.
  static Result<std::shared_ptr<Session>> open(const std::string& where, const std::string& token);

  const net::Discovery& discovery() const noexcept { return discovery_; }
  const net::Endpoint& endpoint() const noexcept { return client_->endpoint(); }
  net::Client& client() noexcept { return *client_; }
  bool may(Group group) const noexcept;
  /// Why not, with the way out.
  Error why_not(Group group) const;

  /// A prepared request, sent now. Neither waits for others nor allocates while nothing changes.
  net::Client::Answer ask(std::string_view prepared, std::string& body) noexcept;
  /// False where the daemon counts another device, or none, by that number now.
  bool still_gpu(std::size_t position) const noexcept { return same_[position]; }
  bool still_cpu(std::size_t position) const noexcept {
    return same_[discovery_.gpus.size() + position];
  }

 private:
  Session(std::unique_ptr<net::Client> client, net::Discovery discovery);
  Status ask_for_rights();
  bool verify(std::uint64_t connection) noexcept;

  std::unique_ptr<net::Client> client_;
  net::Discovery discovery_;
  std::vector<Group> scopes_;
  std::vector<std::atomic<bool>> same_;  ///< GPUs, then CPUs.
  std::atomic<std::uint64_t> verified_{0};
};
using SessionPtr = std::shared_ptr<Session>;

}  // namespace zeus::zeusd
