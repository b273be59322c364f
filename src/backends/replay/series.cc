#include "backends/replay/series.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace zeus::replay {
namespace {

// The byte that says how what follows was coded: how many low bits, a flag, and the prediction.
constexpr unsigned kLowBits = 0x1F;
constexpr unsigned kZeroBit = 0x20;  // A zero is one bit, and no other is coded as one.
constexpr unsigned kAllZero = 0x1F;  // Instead of low bits: nothing is left at all.
constexpr unsigned kOrder = 0xC0;
constexpr unsigned kLine = 0x00;    // All lie about a straight line.
constexpr unsigned kFirst = 0x40;   // Each lies about a step from the last.
constexpr unsigned kSecond = 0x80;  // Each step is about as long as the last.

constexpr unsigned kMostLowBits = 30;
constexpr unsigned kMostOnes = 32;  // So many, and the number follows in 64 bits.

/// Sums and differences are those of the ring of 64 bits: whatever the values, they come back.
std::int64_t plus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
std::int64_t minus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

std::int64_t times(std::int64_t a, std::size_t n) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * n);
}

/// How a series is coded, what is left of it then, and in how many bits.
struct Plan {
  unsigned mode = kLine;
  std::int64_t base = 0;  ///< Where the line begins, or the first value.
  std::int64_t step = 0;  ///< Not of second order.
  std::vector<std::uint64_t> left{};
  std::uint64_t bits = 0;
};

std::uint64_t rice_bits(std::uint64_t v, unsigned low) {
  const std::uint64_t ones = v >> low;
  return ones < kMostOnes ? ones + 1 + low : kMostOnes + 64;
}

std::uint64_t cost(const std::vector<std::uint64_t>& left, unsigned mode) {
  const unsigned low = mode & kLowBits;
  std::uint64_t bits = 0;
  for (const std::uint64_t v : left) {
    if ((mode & kZeroBit) == 0) {
      bits += rice_bits(v, low);
    } else {
      bits += v == 0 ? 1 : 1 + rice_bits(v - 1, low);
    }
  }
  return bits;
}

/// The cheapest code of what is left: around the logarithm of the mean it is near the best.
void choose_code(Plan& plan) {
  double sum = 0;
  std::size_t others = 0;
  for (const std::uint64_t v : plan.left) {
    sum += static_cast<double>(v);
    others += v != 0 ? 1 : 0;
  }
  if (others == 0) {
    plan.mode |= kAllZero;
    return;
  }
  const unsigned order = plan.mode & kOrder;
  plan.bits = std::numeric_limits<std::uint64_t>::max();
  for (const bool zero_bit : {false, true}) {
    const double mean = sum / static_cast<double>(zero_bit ? others : plan.left.size());
    const auto log = static_cast<unsigned>(
        std::bit_width(static_cast<std::uint64_t>(std::clamp(mean, 0.0, 0x1p62))));
    for (unsigned low = log > 2 ? log - 2 : 0; low <= std::min(log + 1, kMostLowBits); ++low) {
      const unsigned mode = order | (zero_bit ? kZeroBit : 0) | low;
      const std::uint64_t bits = cost(plan.left, mode);
      if (bits < plan.bits) {
        plan.bits = bits;
        plan.mode = mode;
      }
    }
  }
}

Numbers differences(const Numbers& values) {
  Numbers out;
  for (std::size_t i = 1; i < values.size(); ++i) out.push_back(minus(values[i], values[i - 1]));
  return out;
}

std::int64_t median(Numbers values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Plan line(const Numbers& values, std::int64_t step) {
  Numbers level = values;
  for (std::size_t i = 0; i < level.size(); ++i) level[i] = minus(level[i], times(step, i));
  Plan plan{kLine, median(level), step};
  for (const std::int64_t v : level) plan.left.push_back(zigzag(minus(v, plan.base)));
  choose_code(plan);
  return plan;
}

Plan first_order(const Numbers& values, std::int64_t step) {
  Plan plan{kFirst, values[0], step};
  for (const std::int64_t d : differences(values)) plan.left.push_back(zigzag(minus(d, step)));
  choose_code(plan);
  return plan;
}

Plan second_order(const Numbers& values) {
  Plan plan{kSecond, values[0], 0};
  std::int64_t last = 0;
  for (const std::int64_t d : differences(values)) {
    plan.left.push_back(zigzag(minus(d, last)));
    last = d;
  }
  choose_code(plan);
  return plan;
}

Plan best_plan(const Numbers& values) {
  Plan best = line(values, 0);
  if (best.bits == 0) return best;
  const auto steps = static_cast<std::int64_t>(values.size() - 1);
  const std::int64_t typical = median(differences(values));
  for (Plan& plan :
       std::vector{line(values, minus(values.back(), values.front()) / steps),
                   first_order(values, 0), first_order(values, typical), second_order(values)}) {
    if (plan.bits < best.bits) best = std::move(plan);
  }
  return best;
}

class BitWriter {
 public:
  explicit BitWriter(std::string& out) : out_(out) {}
  /// The lowest `n` bits of `v`, the most significant first.
  void put(std::uint64_t v, unsigned n) {
    while (n > 0) {
      if (free_ == 0) {
        out_ += '\0';
        free_ = 8;
      }
      const unsigned take = std::min(n, free_);
      const std::uint64_t part = (v >> (n - take)) & ((1U << take) - 1);
      free_ -= take;
      n -= take;
      out_.back() = static_cast<char>(static_cast<unsigned char>(out_.back()) | part << free_);
    }
  }
  void rice(std::uint64_t v, unsigned low) {
    const std::uint64_t ones = v >> low;
    if (ones >= kMostOnes) {
      put(0xFFFF'FFFF, kMostOnes);
      put(v, 64);
      return;
    }
    put((std::uint64_t{1} << (ones + 1)) - 2, static_cast<unsigned>(ones) + 1);
    put(v, low);
  }

 private:
  std::string& out_;
  unsigned free_ = 0;
};

class BitReader {
 public:
  explicit BitReader(Bytes& in) : in_(in) {}
  std::uint64_t take(unsigned n) {
    std::uint64_t v = 0;
    while (n > 0) {
      if (held_ == 0) {
        byte_ = static_cast<unsigned>(in_.fixed(1));
        held_ = 8;
      }
      const unsigned part = std::min(n, held_);
      held_ -= part;
      n -= part;
      v = v << part | ((byte_ >> held_) & ((1U << part) - 1));
    }
    return v;
  }
  std::uint64_t rice(unsigned low) {
    std::uint64_t ones = 0;
    while (ones < kMostOnes && take(1) == 1) ++ones;
    if (ones == kMostOnes) return take(64);
    return ones << low | take(low);
  }

 private:
  Bytes& in_;
  unsigned byte_ = 0, held_ = 0;
};

}  // namespace

void put_series(std::string& out, const Numbers& values) {
  if (values.empty()) return;
  if (values.size() == 1) {
    put_varint(out, zigzag(values[0]));
    return;
  }
  const Plan plan = best_plan(values);
  out += static_cast<char>(plan.mode);
  put_varint(out, zigzag(plan.base));
  if ((plan.mode & kOrder) != kSecond) put_varint(out, zigzag(plan.step));
  if (plan.bits == 0) return;
  BitWriter bits(out);
  for (const std::uint64_t v : plan.left) {
    if ((plan.mode & kZeroBit) == 0) {
      bits.rice(v, plan.mode & kLowBits);
      continue;
    }
    bits.put(v == 0 ? 0 : 1, 1);
    if (v != 0) bits.rice(v - 1, plan.mode & kLowBits);
  }
}

Numbers take_series(Bytes& in, std::size_t n) {
  Numbers values;
  if (n > kMostValues) in.fail();
  if (n == 0 || !in.good()) return values;
  const auto mode = n == 1 ? kFirst : static_cast<unsigned>(in.fixed(1));
  const unsigned order = mode & kOrder, low = mode & kLowBits;
  const std::int64_t base = unzigzag(in.varint());
  std::int64_t step = n == 1 || order == kSecond ? 0 : unzigzag(in.varint());
  if (order == kOrder) in.fail();
  BitReader bits(in);
  const auto left = [&] {
    std::uint64_t v = 0;
    if (low != kAllZero && (mode & kZeroBit) == 0) v = bits.rice(low);
    if (low != kAllZero && (mode & kZeroBit) != 0 && bits.take(1) != 0) v = bits.rice(low) + 1;
    return unzigzag(v);
  };
  if (order != kLine) values.push_back(base);
  while (values.size() < n && in.good()) {
    if (order == kLine) {
      values.push_back(plus(plus(base, times(step, values.size())), left()));
    } else if (order == kFirst) {
      values.push_back(plus(values.back(), plus(step, left())));
    } else {
      step = plus(step, left());
      values.push_back(plus(values.back(), step));
    }
  }
  return values;
}

}  // namespace zeus::replay
