#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

// Tokens made and judged without our code and without libjwt: RFC 7515 appendix A.1 by OpenSSL.

namespace zeus::test {

inline std::string base64url(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string out;
  unsigned bits = 0, held = 0;
  for (const char c : bytes) {
    bits = (bits << 8) | static_cast<unsigned char>(c);
    for (held += 8; held >= 6; held -= 6) out += kDigits[(bits >> (held - 6)) & 63U];
  }
  if (held > 0) out += kDigits[(bits << (6 - held)) & 63U];
  return out;
}

/// The signature of "header.payload", both encoded: HS256, or HS384 and HS512 by another `hash`.
inline std::string hs256(std::string_view text, std::string_view key,
                         const EVP_MD* hash = EVP_sha256()) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  unsigned size = 0;
  HMAC(hash, key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(), &size);
  return base64url({reinterpret_cast<const char*>(mac.data()), size});
}

/// A token with this header and payload, whatever they say, signed by HS256.
inline std::string signed_token(std::string_view header, std::string_view payload,
                                std::string_view key) {
  const std::string text = base64url(header) + '.' + base64url(payload);
  return text + '.' + hs256(text, key);
}

}  // namespace zeus::test
