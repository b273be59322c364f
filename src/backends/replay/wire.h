#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

// Numbers as bytes: docs/reference/record-format.md, "Numbers".

namespace zeus::replay {

constexpr std::uint64_t zigzag(std::int64_t v) noexcept {
  return (static_cast<std::uint64_t>(v) << 1) ^ static_cast<std::uint64_t>(v >> 63);
}
constexpr std::int64_t unzigzag(std::uint64_t v) noexcept {
  return static_cast<std::int64_t>(v >> 1) ^ -static_cast<std::int64_t>(v & 1);
}

inline void put_varint(std::string& out, std::uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}

/// The least significant byte first.
inline void put_fixed(std::string& out, std::uint64_t v, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) out += static_cast<char>(v >> (8 * i));
}

/// Takes numbers off bytes. After the first that is not there all are 0 and `good()` is false.
class Bytes {
 public:
  explicit Bytes(std::string_view left) noexcept : left_(left) {}
  bool good() const noexcept { return good_; }
  bool empty() const noexcept { return left_.empty(); }
  std::size_t size() const noexcept { return left_.size(); }
  void fail() noexcept {
    good_ = false;
    left_ = {};
  }

  std::string_view take(std::uint64_t n) noexcept {
    if (n > left_.size()) {
      fail();
      return {};
    }
    const std::string_view out = left_.substr(0, static_cast<std::size_t>(n));
    left_.remove_prefix(static_cast<std::size_t>(n));
    return out;
  }
  std::uint64_t fixed(unsigned bytes) noexcept {
    std::uint64_t v = 0;
    unsigned shift = 0;
    for (const char c : take(bytes)) {
      v |= std::uint64_t{static_cast<unsigned char>(c)} << shift;
      shift += 8;
    }
    return v;
  }
  std::uint64_t varint() noexcept {
    std::uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint64_t byte = fixed(1);
      v |= (byte & 0x7F) << shift;
      if (byte >= 0x80) continue;
      if (shift == 63 && byte > 1) fail();
      return good_ ? v : 0;
    }
    fail();
    return 0;
  }

 private:
  std::string_view left_;
  bool good_ = true;
};

}  // namespace zeus::replay
