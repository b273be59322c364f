#include "net/token.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "fuzz/fuzz.h"
#include "support/signed_token.h"
#include "support/tree.h"

// Bearer tokens: as they come, and with the input as the header and the payload of one that is
// signed.

namespace {

using zeus::fuzz::require;
using Json = nlohmann::json;

constexpr std::string_view kKey = "integration-test-signing-key!!!!";
constexpr std::int64_t kNow = 1'800'000'000;

const zeus::net::SigningKey& key() {
  static const zeus::net::SigningKey loaded = [] {
    zeus::test::Tree tree;
    tree.write("key", kKey);
    return zeus::net::SigningKey::load(tree.root() / "key", false).value();
  }();
  return loaded;
}

/// OpenSSL alone says that this was signed with the key.
bool is_signed(std::string_view token) {
  const std::size_t dot = token.rfind('.');
  return dot != std::string_view::npos &&
         token.substr(dot + 1) == zeus::test::hs256(token.substr(0, dot), kKey);
}

bool check(const std::string& token) {
  const auto claims = zeus::net::verify(key(), token, kNow);
  if (!claims) {
    const std::string& why = claims.error().detail;
    require(claims.error().code == zeus::Errc::denied);
    require(why == zeus::net::kNotValid || (why == zeus::net::kExpired && is_signed(token)));
    return false;
  }
  require(is_signed(token) && token.size() <= 8192);
  require(!claims->expires || *claims->expires >= kNow - zeus::net::kLeewayS);
  const auto again = zeus::net::verify(key(), zeus::net::issue(key(), *claims), kNow);
  require(again && again->subject == claims->subject && again->scopes == claims->scopes &&
          again->expires == claims->expires);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(zeus::fuzz::text_of(data, size));
  check(text);
  const std::size_t line = std::min(text.find('\n'), text.size());
  const std::string header = text.substr(0, line);
  const std::string payload = text.substr(std::min(line + 1, text.size()));
  if (check(zeus::test::signed_token(header, payload, kKey))) {
    const Json h = Json::parse(header, nullptr, false), p = Json::parse(payload, nullptr, false);
    require(h.is_object() && h.value("alg", Json()) == "HS256" && !h.contains("crit"));
    require(p.is_object() && p.value("sub", Json()).is_string() && !p.contains("aud"));
    require(p.value("scopes", Json()).is_array() && !p.value("exp", Json()).is_number_float());
  }
  check(zeus::test::signed_token(R"({"typ":"JWT","alg":"HS256"})", text, kKey));
  return 0;
}
