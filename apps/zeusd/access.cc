#include "access.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

namespace zeus::zeusd {
namespace {

using zeus::Errc;
using zeus::Error;
using zeus::net::Peer;
using zeus::net::Request;
using zeus::net::Response;

constexpr std::string_view kBearer = "Bearer ";

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The groups of a user, by the kernel's word for the first and the database's for the rest.
std::vector<gid_t> groups_of(const Peer& peer) {
  std::vector<gid_t> groups = {peer.gid};
  std::vector<char> text(16384);
  passwd entry{}, *found = nullptr;
  if (::getpwuid_r(peer.uid, &entry, text.data(), text.size(), &found) != 0 || found == nullptr) {
    return groups;
  }
  int count = 64;
  groups.resize(static_cast<std::size_t>(count));
  if (::getgrouplist(found->pw_name, peer.gid, groups.data(), &count) < 0) {
    groups.resize(static_cast<std::size_t>(count));
    (void)::getgrouplist(found->pw_name, peer.gid, groups.data(), &count);
  }
  groups.resize(static_cast<std::size_t>(std::max(count, 1)));
  return groups;
}

/// "node1" of "node1:4938", "::1" of "[::1]:4938".
std::string_view host_name(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.rfind(':'));
}

bool is_address(std::string_view name) {
  in6_addr bytes{};
  const std::string text(name);
  return ::inet_pton(AF_INET, text.c_str(), &bytes) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &bytes) == 1;
}

Response unauthorised(std::string_view why) {
  Response r = refusal(401, why);
  r.headers = "www-authenticate: Bearer realm=\"zeusd\"\r\n";
  return r;
}

}  // namespace

zeus::Result<People> People::parse(std::string_view list) {
  People people;
  while (!list.empty()) {
    const auto comma = list.find(',');
    std::string name(list.substr(0, comma));
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    const bool group = name.starts_with('@');
    if (group) name.erase(0, 1);
    unsigned number = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data(), end, number);
    if (!name.empty() && read.ec == std::errc{} && read.ptr == end) {
      if (group) {
        people.groups.insert(number);
      } else {
        people.users.insert(number);
      }
    } else if (const ::group* g = group ? ::getgrnam(name.c_str()) : nullptr; g != nullptr) {
      people.groups.insert(g->gr_gid);
    } else if (const passwd* p = group ? nullptr : ::getpwnam(name.c_str()); p != nullptr) {
      people.users.insert(p->pw_uid);
    } else {
      return Error{
          Errc::invalid, 0,
          fmt::format("there is no {} \"{}\" on this host", group ? "group" : "user", name)};
    }
  }
  return people;
}

bool People::has(const Peer& peer) const {
  if (peer.uid == 0 || users.contains(peer.uid) || groups.contains(peer.gid)) return true;
  if (groups.empty()) return false;
  const auto theirs = groups_of(peer);
  return std::any_of(theirs.begin(), theirs.end(), [this](gid_t g) { return groups.contains(g); });
}

Access::Access(Options options)
    : options_(std::move(options)),
      required_(options_.key.has_value()),
      key_(required_ ? std::make_shared<const zeus::net::SigningKey>(*std::move(options_.key))
                     : nullptr) {}

void Access::exchange_key(zeus::net::SigningKey key) {
  key_.set(std::make_shared<const zeus::net::SigningKey>(std::move(key)));
}

bool Access::enabled(Group group) const noexcept {
  return std::find(options_.enabled.begin(), options_.enabled.end(), group) !=
         options_.enabled.end();
}

/// A page of another site must not steer a daemon through its visitor's browser: neither by a name
/// that it has pointed at us (DNS rebinding), nor by a form.
std::optional<Response> Access::check_host(const Request& request) const {
  if (request.peer->local || !options_.check_hosts) return std::nullopt;
  const auto name = host_name(request.host);
  if (!is_address(name) && name != "localhost" && !options_.hosts.contains(name)) {
    return refusal(403, fmt::format("this daemon does not answer to the name \"{}\"; start it with "
                                    "--allow-host {}",
                                    name.substr(0, 100), name.substr(0, 100)));
  }
  if (request.origin.empty()) return std::nullopt;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (request.origin.starts_with(scheme) &&
        request.origin.substr(scheme.size()) == request.host) {
      return std::nullopt;
    }
  }
  return refusal(403, "pages of other sites may not use this daemon");
}

std::optional<Response> Access::check(const Request& request, const Place& place,
                                      Caller& caller) const {
  const Peer& peer = *request.peer;
  caller.name = peer.name;
  if (auto refused = check_host(request)) return refused;
  if (!request.protocol.empty() && request.protocol != std::to_string(zeus::net::kProtocol)) {
    return refusal(400, fmt::format("this daemon speaks version {} of the protocol, the client "
                                    "version {}; bring both to one release of Zeus",
                                    zeus::net::kProtocol, request.protocol.substr(0, 16)));
  }
  if (place.group && !enabled(*place.group)) {
    return refusal(404, fmt::format("the API group {} is not enabled; start zeusd with --enable {}",
                                    to_string(*place.group), to_string(*place.group)));
  }
  if (!required_) {
    if (request.path.starts_with("/auth/")) {
      return refusal(404, "this daemon asks for no tokens");
    }
  } else if (!place.open) {
    if (!request.authorization.starts_with(kBearer)) {
      return unauthorised("this daemon asks for a token: Authorization: Bearer TOKEN");
    }
    auto claims =
        zeus::net::verify(*key_.get(), request.authorization.substr(kBearer.size()), unix_now());
    if (!claims) return unauthorised(claims.error().detail);
    caller.name = fmt::format("token {} from {}", claims->subject, peer.name);
    caller.holder.who = "token " + claims->subject;
    const auto& scopes = claims->scopes;
    if (place.group && std::find(scopes.begin(), scopes.end(), *place.group) == scopes.end()) {
      std::string held;
      for (const Group g : scopes) held += (held.empty() ? "" : ", ") + std::string(to_string(g));
      return refusal(403,
                     fmt::format("the token of {} lacks the scope {}; it has {}", claims->subject,
                                 to_string(*place.group), held.empty() ? "none" : held));
    }
    caller.claims = std::move(*claims);
  }
  if (!peer.local && options_.tcp_read_only && place.group == Group::gpu_control) {
    return refusal(403, "this daemon takes no control over TCP: use its Unix socket");
  }
  if (peer.local) {
    caller.holder.pid = peer.pid;
    if (!caller.claims) caller.holder.who = fmt::format("uid {}", peer.uid);
    if (place.group) {
      const auto people = options_.people.find(*place.group);
      if (people != options_.people.end() && !people->second.has(peer)) {
        return refusal(403, fmt::format("{} may not use {}: see --allow of zeusd", peer.name,
                                        to_string(*place.group)));
      }
    }
  }
  return std::nullopt;
}

bool Access::may(Group group, const Peer& peer, const Caller& caller) const {
  if (!enabled(group)) return false;
  if (required_) {
    if (!caller.claims) return false;
    const auto& scopes = caller.claims->scopes;
    if (std::find(scopes.begin(), scopes.end(), group) == scopes.end()) return false;
  }
  const auto people = options_.people.find(group);
  return !peer.local || people == options_.people.end() || people->second.has(peer);
}

}  // namespace zeus::zeusd
