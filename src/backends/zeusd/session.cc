#include "backends/zeusd/session.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace zeus::zeusd {
namespace {

using net::Discovery;
using nlohmann::json;

Error cannot(const net::Endpoint& endpoint, Errc code, unsigned status, const std::string& why) {
  return {code, static_cast<int>(status), "cannot use zeusd at " + endpoint.text() + ": " + why};
}

Result<Discovery> discover(net::Client& client) {
  const auto answer = client.get("/discover");
  if (!answer) return answer.error();
  if (answer->status != 200) {
    return cannot(client.endpoint(), to_errc(answer->status), answer->status,
                  "GET /discover answers with status " + std::to_string(answer->status) +
                      "; is it zeusd that listens there?");
  }
  auto found = net::parse_discovery(answer->body);
  if (found) return found;
  return cannot(client.endpoint(), Errc::malformed, 200, found.error().detail);
}

/// The same by all that tells a GPU from another. A daemon of version 0.4 gives a number only.
bool same(const Discovery::Gpu& a, const Discovery::Gpu& b) {
  return a.id == b.id && a.name == b.name && a.pci_address == b.pci_address && a.uuid == b.uuid;
}

template <class Devices, class F>
bool any(const Devices& devices, F&& fits) {
  return std::any_of(devices.begin(), devices.end(), std::forward<F>(fits));
}

}  // namespace

Errc to_errc(unsigned status) noexcept {
  switch (status) {
    case 200: return Errc::ok;
    case 400: return Errc::unsupported;
    case 401:
    case 403: return Errc::denied;
    case 404: return Errc::absent;
    case 409:
    case 423:
    case 429: return Errc::busy;
    default: return Errc::lost;
  }
}

std::string words_of(const std::string& body) {
  const json said = json::parse(body, nullptr, false);
  std::string out;
  if (said.is_object()) {
    if (const auto one = said.find("error"); one != said.end() && one->is_string()) {
      return one->get<std::string>();
    }
    if (const auto all = said.find("errors"); all != said.end() && all->is_object()) {
      for (const auto& text : *all) {
        if (text.is_string()) out += (out.empty() ? "" : "; ") + text.get<std::string>();
      }
    }
  }
  return out.empty() ? body.substr(0, 200) : out;
}

Session::Session(std::unique_ptr<net::Client> client, Discovery discovery)
    : client_(std::move(client)),
      discovery_(std::move(discovery)),
      same_(discovery_.gpus.size() + discovery_.cpus.size()) {
  for (std::atomic<bool>& s : same_) s = true;
}

Result<SessionPtr> Session::open(const std::string& where, const std::string& token) {
  const auto endpoint = net::parse_endpoint(where);
  if (!endpoint) return endpoint.error();
  auto client = net::Client::create(*endpoint, {.token = token});
  if (!client) return client.error();
  auto discovery = discover(**client);
  if (!discovery) return discovery.error();
  SessionPtr session(new Session(std::move(*client), std::move(*discovery)));
  if (auto known = session->ask_for_rights(); !known) return known.error();
  return session;
}

Status Session::ask_for_rights() {
  scopes_.assign(net::kGroups.begin(), net::kGroups.end());
  if (!discovery_.auth_required) return ok();
  const auto answer = client_->get("/auth/whoami");
  if (!answer) return answer.error();
  if (answer->status != 200) {
    return cannot(endpoint(), Errc::denied, answer->status,
                  "it asks for a token, and does not accept ours (" + words_of(answer->body) +
                      "); set ZEUSD_TOKEN to what zeusd token issue printed");
  }
  scopes_.clear();
  const json said = json::parse(answer->body, nullptr, false);
  const auto granted = said.is_object() ? said.find("scopes") : said.end();
  if (!said.is_object() || granted == said.end() || !granted->is_array()) return ok();
  for (const json& name : *granted) {
    if (!name.is_string()) continue;
    if (const auto group = net::group_named(name.get<std::string>())) scopes_.push_back(*group);
  }
  return ok();
}

bool Session::may(Group group) const noexcept {
  return discovery_.enables(group) &&
         std::find(scopes_.begin(), scopes_.end(), group) != scopes_.end();
}

Error Session::why_not(Group group) const {
  const std::string name(to_string(group));
  if (!discovery_.enables(group)) {
    return cannot(endpoint(), Errc::denied, 404,
                  "it does not serve " + name + "; start it with --enable " + name);
  }
  return cannot(endpoint(), Errc::denied, 403,
                "the token does not grant " + name + "; ask for one that does");
}

net::Client::Answer Session::ask(std::string_view prepared, std::string& body) noexcept {
  const net::Client::Answer answer = client_->ask(prepared, body);
  if (answer.error != Errc::ok || answer.connection <= verified_) return answer;
  return verify(answer.connection) ? answer : net::Client::Answer{Errc::busy};
}

bool Session::verify(std::uint64_t connection) noexcept try {
  const auto now = discover(*client_);
  if (!now) return false;
  std::size_t i = 0;
  for (const Discovery::Gpu& g : discovery_.gpus) {
    same_[i++] = any(now->gpus, [&g](const Discovery::Gpu& other) { return same(g, other); });
  }
  for (const Discovery::Cpu& c : discovery_.cpus) {
    same_[i++] = any(now->cpus, [&c](const Discovery::Cpu& other) { return c == other; });
  }
  std::uint64_t before = verified_;
  while (before < connection && !verified_.compare_exchange_weak(before, connection)) {
  }
  return true;
} catch (...) {
  return false;  // No memory, say: the next reading tries again.
}

}  // namespace zeus::zeusd
