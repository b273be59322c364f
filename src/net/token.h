#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/protocol.h"
#include "zeus/result.h"

// Bearer tokens: JWS compact with HS256, as upstream's daemon issues and takes them.

namespace zeus::net {

struct Claims {
  std::string subject;
  std::vector<Group> scopes;
  std::optional<std::int64_t> expires{};  ///< Unix seconds.
};

/// A token is good for so long after it expired, for clocks that differ.
inline constexpr std::int64_t kLeewayS = 60;

/// What signs and verifies: the bytes of a file, a line end at its end included.
class SigningKey {
 public:
  /// `strict`: refuses a key of less than 16 bytes, and one that anybody but root, the effective
  /// user and a group could read, or anybody but the first two could write or exchange.
  static Result<SigningKey> load(const std::filesystem::path& path, bool strict);
  std::string_view bytes() const noexcept { return bytes_; }

 private:
  explicit SigningKey(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string bytes_;
};

/// The token of these claims, in the order sub, scopes, exp; the subject must be UTF-8.
std::string issue(const SigningKey& key, const Claims& claims);

/// What a token of at most 8 KiB says, if it was signed with this key by HS256, says it in the
/// right types, and has not expired at `now` (Unix seconds; with kLeewayS). Claims that we do not
/// know are left alone; a token for an audience is not for us. Errc::denied otherwise, with one of
/// two sentences that are safe for whoever sent it: kExpired for a token that was good, or
/// kNotValid.
Result<Claims> verify(const SigningKey& key, std::string_view token, std::int64_t now);
inline constexpr std::string_view kExpired = "the token has expired; ask for a new one";
inline constexpr std::string_view kNotValid = "the token is not valid";

/// When a token is to expire, of `--expires`: nothing for "never" and "0", else `now` plus a
/// duration like 1h, 7d, 30d, 2weeks, "1h 30m", which is at least a second. m is a minute and M a
/// month (30.44 days, and a year 365.25 days, as in the crate humantime).
Result<std::optional<std::int64_t>> parse_expiry(std::string_view text, std::int64_t now);

}  // namespace zeus::net
