#pragma once

#include <cstdint>
#include <random>

namespace zeus::solve {

/// Random whole numbers that are the same on every machine for one seed: the standard fixes what
/// its engine answers, but not what its distributions make of that.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// Below `n`, each as likely as the others; `n` is at least 1.
  std::uint64_t below(std::uint64_t n) noexcept {
    const std::uint64_t reject = (0 - n) % n;  // 2^64 modulo n.
    std::uint64_t x = engine_();
    while (x < reject) x = engine_();
    return x % n;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace zeus::solve
