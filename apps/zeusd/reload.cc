#include "reload.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string_view>
#include <utility>

namespace zeus::zeusd {
namespace {

Error named_by(const Error& e, std::string_view option) {
  return {e.code, e.vendor, fmt::format("{}; it is named by {}", e.detail, option)};
}

void say(std::string_view what, const Status& done) {
  if (done) {
    spdlog::info("{} read anew", what);
  } else {
    spdlog::error("{}; the former stays in use", done.error().detail);
  }
}

}  // namespace

Result<zeus::net::SigningKey> load_key(const ServeOptions& options) {
  auto key = zeus::net::SigningKey::load(options.signing_key, !options.compat);
  return key ? std::move(key) : named_by(key.error(), "--signing-key-path");
}

Result<Overrides> load_overrides(const ServeOptions& options) {
  auto overrides = Overrides::load(options.overrides);
  if (!overrides) return named_by(overrides.error(), "--gpu-command-overrides");
  for (const std::string& w : overrides->warnings()) spdlog::warn("{}", w);
  return overrides;
}

void reload(const ServeOptions& options, const Reloaded& parts) {
  spdlog::info("signal 1: reading anew what may change");
  if (parts.access.required()) {
    auto key = load_key(options);
    if (key) parts.access.exchange_key(*std::move(key));
    say("the signing key was", key ? ok() : Status(key.error()));
  }
  if (parts.overrides != nullptr) {
    auto overrides = load_overrides(options);
    if (overrides) parts.overrides->set(std::make_shared<const Overrides>(*std::move(overrides)));
    say("the overrides were", overrides ? ok() : Status(overrides.error()));
  }
  if (!options.audit_log.empty()) say("the name of the audit log was", parts.audit.reopen());
}

}  // namespace zeus::zeusd
