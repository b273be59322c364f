#include "net/token.h"

#include <fmt/format.h>
#include <jwt.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/trusted_file.h"

namespace zeus::net {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostToken = std::size_t{8} << 10;
constexpr std::size_t kMostKey = std::size_t{64} << 10;
constexpr std::size_t kLeastKey = 16;

struct FreeJwt {
  void operator()(jwt_t* jwt) const noexcept { jwt_free(jwt); }
};
struct FreeText {
  void operator()(char* text) const noexcept { std::free(text); }
};
using Jwt = std::unique_ptr<jwt_t, FreeJwt>;
using CText = std::unique_ptr<char, FreeText>;

std::string base64url(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // OpenSSL adds a NUL.
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                reinterpret_cast<const unsigned char*>(bytes.data()),
                                static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(n));
  text.erase(std::find(text.begin(), text.end(), '='), text.end());
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

/// Three parts of base64url. The library stops at a NUL and forgives other characters.
bool has_form(std::string_view token) {
  const auto belongs = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
           c == '_' || c == '.';
  };
  return token.size() <= kMostToken && std::all_of(token.begin(), token.end(), belongs) &&
         std::count(token.begin(), token.end(), '.') == 2;
}

Jwt decode(const std::string& token, std::string_view key) {
  jwt_t* jwt = nullptr;
  const auto* bytes = reinterpret_cast<const unsigned char*>(key.data());
  const int error =
      jwt_decode(&jwt, token.c_str(), key.empty() ? nullptr : bytes, static_cast<int>(key.size()));
  return Jwt(error == 0 ? jwt : nullptr);
}

/// Whether the header names the one algorithm that we take. Looked at without the key: with it, the
/// library would take any other that the token names, and a key for a certificate.
bool names_hs256(const std::string& token) {
  const Jwt jwt = decode(token, {});
  if (jwt == nullptr) return false;
  const char* const algorithm = jwt_get_header(jwt.get(), "alg");
  // What is "crit" must be understood (RFC 7515 4.1.11), and we understand nothing.
  const CText critical(jwt_get_headers_json(jwt.get(), "crit"));
  return algorithm != nullptr && std::string_view(algorithm) == "HS256" && critical == nullptr;
}

/// Nothing unless every claim that we know has its type.
std::optional<Claims> read_claims(const Json& payload) {
  if (!payload.is_object() || payload.contains("aud")) return std::nullopt;
  const auto subject = payload.find("sub"), scopes = payload.find("scopes"),
             expires = payload.find("exp");
  if (subject == payload.end() || !subject->is_string()) return std::nullopt;
  if (scopes == payload.end() || !scopes->is_array()) return std::nullopt;
  Claims claims{subject->get<std::string>(), {}};
  for (const Json& scope : *scopes) {
    const auto group = scope.is_string() ? group_named(scope.get<std::string>()) : std::nullopt;
    if (!group) return std::nullopt;
    claims.scopes.push_back(*group);
  }
  if (expires == payload.end() || expires->is_null()) return claims;
  if (!expires->is_number_integer() || *expires < 0) return std::nullopt;
  claims.expires = expires->get<std::int64_t>();
  return claims;
}

Error denied(std::string_view why) { return {Errc::denied, 0, std::string(why)}; }

Error weak(const std::filesystem::path& path, const std::string& why) {
  return {Errc::denied, 0, fmt::format("cannot use the signing key {}: {}", path.string(), why)};
}

/// A key that nobody else could have put there, or read.
Result<std::string> read_guarded(const std::filesystem::path& path) {
  const auto file = TrustedFile::open(path, TrustedFile::Use::read);
  if (!file) return file.error();
  constexpr unsigned kOthers =
      0027;  // Reading by a group is how a daemon that is not root gets it.
  if ((file->mode() & kOthers) == 0) return file->read(kMostKey);
  return weak(path, fmt::format("its mode {:04o} lets others read it or a group write it; "
                                "chmod 0600 {}",
                                file->mode(), path.string()));
}

}  // namespace

Result<SigningKey> SigningKey::load(const std::filesystem::path& path, bool strict) {
  auto text = strict ? read_guarded(path) : read_file(path);
  if (!text) return text.error();
  const std::size_t size = text->size();
  if (size == 0) return weak(path, "it is empty; fill it, as by openssl rand -out FILE 32");
  if (size > kMostKey) return weak(path, fmt::format("it is longer than {} bytes", kMostKey));
  if (strict && size < kLeastKey) {
    return weak(path, fmt::format("{} bytes can be guessed, it must have {}; fill it anew, as by "
                                  "openssl rand -out FILE 32",
                                  size, kLeastKey));
  }
  return SigningKey(std::move(*text));
}

std::string issue(const SigningKey& key, const Claims& claims) {
  // Written here, since the library sorts what it writes; upstream's order is a fact of the wire.
  Json payload{{"sub", claims.subject}, {"scopes", Json::array()}};
  for (const Group scope : claims.scopes) payload["scopes"].push_back(to_string(scope));
  if (claims.expires) payload["exp"] = *claims.expires;
  const std::string text = base64url(R"({"typ":"JWT","alg":"HS256"})") + '.' +
                           base64url(payload.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.bytes().data(), static_cast<int>(key.bytes().size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &size);
  return text + '.' + base64url({reinterpret_cast<const char*>(mac.data()), size});
}

Result<Claims> verify(const SigningKey& key, std::string_view token, std::int64_t now) {
  if (!has_form(token)) return denied(kNotValid);
  const std::string text(token);
  if (!names_hs256(text)) return denied(kNotValid);
  const Jwt jwt = decode(text, key.bytes());
  if (jwt == nullptr || jwt_get_alg(jwt.get()) != JWT_ALG_HS256) return denied(kNotValid);
  const CText payload(jwt_get_grants_json(jwt.get(), nullptr));
  if (payload == nullptr) return denied(kNotValid);
  auto claims = read_claims(Json::parse(payload.get(), nullptr, false));
  if (!claims) return denied(kNotValid);
  if (claims->expires && *claims->expires < now - kLeewayS) return denied(kExpired);
  return std::move(*claims);
}

}  // namespace zeus::net
