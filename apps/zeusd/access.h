#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "leases.h"
#include "live.h"
#include "net/http.h"
#include "net/protocol.h"
#include "net/token.h"
#include "zeus/result.h"

namespace zeus::zeusd {

using zeus::net::Group;
using zeus::net::refusal;

/// Users and groups of this host, by number.
struct People {
  std::set<uid_t> users;
  std::set<gid_t> groups;
  /// "alice,@zeusd,1000": names and numbers of users; of groups behind an @.
  static zeus::Result<People> parse(std::string_view list);
  bool has(const zeus::net::Peer& peer) const;
};

/// Who asks, once that is known.
struct Caller {
  std::optional<zeus::net::Claims> claims{};
  Holder holder{};
  std::string name{};  ///< For the audit: "uid 1000 pid 77", "token alice from 10.0.0.7:4711".
};

/// Where a path belongs.
struct Place {
  std::optional<Group> group{};  ///< Whose scope it takes.
  bool open = false;             ///< For everybody, token or not.
  bool known = false;            ///< It is a route.
};

/// Decides who may do what. Works on the decoded path alone, which is the one that is routed.
class Access {
 public:
  struct Options {
    std::vector<Group> enabled;
    std::optional<zeus::net::SigningKey> key{};
    std::map<Group, People> people{};  ///< Of peers on a Unix socket; groups without are for all.
    std::set<std::string, std::less<>> hosts{};  ///< Names in Host besides addresses and localhost.
    bool check_hosts = true;
    bool tcp_read_only = false;  ///< No control but over a Unix socket.
  };
  explicit Access(Options options);

  bool enabled(Group group) const noexcept;
  bool required() const noexcept { return required_; }
  const std::vector<Group>& groups() const noexcept { return options_.enabled; }

  /// Tokens are signed with `key` from now on. Only where there was a key.
  void exchange_key(zeus::net::SigningKey key);

  /// The refusal, or nothing, and then who asks. The order is that of the wire: a disabled group
  /// before a missing token before a missing scope.
  std::optional<zeus::net::Response> check(const zeus::net::Request& request, const Place& place,
                                           Caller& caller) const;
  /// Whether `caller` has a group without asking for it: what /metrics shows of it.
  bool may(Group group, const zeus::net::Peer& peer, const Caller& caller) const;

 private:
  std::optional<zeus::net::Response> check_host(const zeus::net::Request& request) const;

  Options options_;  ///< But for the key.
  const bool required_;
  Live<zeus::net::SigningKey> key_;
};

}  // namespace zeus::zeusd
