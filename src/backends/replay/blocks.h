#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "zeus/result.h"

// A recording as a row of blocks: docs/reference/record-format.md, "Blocks".

namespace zeus::replay {

inline constexpr std::uint8_t kVersion = 1;

enum class BlockKind : std::uint8_t {
  provenance = 1,
  machine = 2,
  subject = 3,
  samples = 4,
  window = 5,
  result = 6,
  end = 7
};

/// CRC-32C (Castagnoli), as iSCSI has it: RFC 3720, appendix B.4.
std::uint32_t crc32c(std::string_view bytes) noexcept;

/// What a recording begins with.
std::string preamble();
/// A block with its length, kind and checksum around it.
std::string frame(BlockKind kind, std::string_view payload);

struct Block {
  BlockKind kind{};
  std::string_view payload;
  std::size_t at = 0;  ///< Of its first byte in the file.
};

/// Goes through the blocks of a file.
class Blocks {
 public:
  /// Errc::invalid for what is no recording, unsupported for one of a later version.
  static Result<Blocks> open(std::string_view bytes, std::string_view name);
  /// The next whole block. Nothing at the end, or where damage() says why.
  std::optional<Block> next();
  const std::string& damage() const noexcept { return damage_; }
  std::size_t at() const noexcept { return at_; }

 private:
  explicit Blocks(std::string_view bytes) : bytes_(bytes) {}
  std::string_view bytes_;
  std::size_t at_ = 0;
  std::string damage_;
};

}  // namespace zeus::replay
