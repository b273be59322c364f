#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

// What the fuzzers share. Each is one file with one LLVMFuzzerTestOneInput, which checks what must
// hold for every input. It runs under libFuzzer (scripts/fuzz), and in every build under main.cc.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace zeus::fuzz {

/// Ends the process where an invariant does not hold, and says which line it was.
inline void require(bool holds, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: an invariant does not hold\n", file, line);
  std::abort();
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Takes numbers off an input; zeros once it is used up.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  /// The next `bytes` bytes, the least significant first.
  std::uint64_t take(unsigned bytes) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < bytes && left_ > 0; ++i, --left_) {
      value |= std::uint64_t{*data_++} << (8 * i);
    }
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

}  // namespace zeus::fuzz
