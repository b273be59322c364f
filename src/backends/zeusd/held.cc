#include "backends/zeusd/held.h"

#include <nlohmann/json.hpp>

namespace zeus::zeusd {

Result<std::string> Held::argument() {
  const std::lock_guard lock(mutex_);
  if (session_->endpoint().transport != net::Endpoint::Transport::unix_socket ||
      !session_->discovery().has("lease")) {
    return std::string();
  }
  if (id_.empty()) {
    const auto answer = session_->client().post("/lease/open");
    if (!answer) return answer.error();
    const auto said = nlohmann::json::parse(answer->body, nullptr, false);
    if (answer->status != 200 || !said.is_object() || !said.contains("lease") ||
        !said["lease"].is_string()) {
      return Error{to_errc(answer->status), static_cast<int>(answer->status),
                   "cannot open a lease of zeusd at " + session_->endpoint().text() + ": " +
                       words_of(answer->body)};
    }
    id_ = said["lease"].get<std::string>();
  }
  return "&lease=" + id_;
}

void Held::forget() {
  const std::lock_guard lock(mutex_);
  id_.clear();
  away_.clear();
}

void Held::turned(const Key& key, bool away) {
  const std::lock_guard lock(mutex_);
  if (away) {
    away_.insert(key);
  } else if (away_.erase(key) > 0 && away_.empty()) {
    // The next turn opens another; should this fail, the daemon finds nothing to put back.
    (void)release_now();
  }
}

Status Held::release() {
  const std::lock_guard lock(mutex_);
  away_.clear();
  return release_now();
}

Status Held::release_now() {
  if (id_.empty()) return ok();
  const auto answer = session_->client().post("/lease/release?lease=" + id_);
  id_.clear();
  if (!answer) return answer.error();
  if (answer->status == 200 || answer->status == 404) return ok();
  return Error{to_errc(answer->status), static_cast<int>(answer->status),
               "cannot release a lease of zeusd at " + session_->endpoint().text() + ": " +
                   words_of(answer->body)};
}

}  // namespace zeus::zeusd
