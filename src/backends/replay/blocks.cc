#include "backends/replay/blocks.h"

#include <array>

#include "backends/replay/wire.h"

namespace zeus::replay {
namespace {

// As PNG does it: no text, and what a transfer as text would break.
constexpr std::string_view kMagic = "\x89ZEUS\r\n";
constexpr std::size_t kPreamble = kMagic.size() + 1;
constexpr std::size_t kHead = 5, kTail = 4;  // Length and kind; checksum.

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? (c >> 1) ^ 0x82F6'3B78 : c >> 1;
    table[i] = c;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) noexcept {
  std::uint32_t c = 0xFFFF'FFFF;
  for (const char b : bytes) c = kCrcTable[(c ^ static_cast<unsigned char>(b)) & 0xFF] ^ (c >> 8);
  return ~c;
}

std::string preamble() { return std::string(kMagic) + static_cast<char>(kVersion); }

std::string frame(BlockKind kind, std::string_view payload) {
  std::string out;
  out.reserve(kHead + payload.size() + kTail);
  put_fixed(out, payload.size(), 4);
  out += static_cast<char>(kind);
  out += payload;
  put_fixed(out, crc32c(out), 4);
  return out;
}

Result<Blocks> Blocks::open(std::string_view bytes, std::string_view name) {
  const std::string cannot = "cannot read " + std::string(name) + ": ";
  if (bytes.size() < kPreamble || !bytes.starts_with(kMagic)) {
    return Error{Errc::invalid, 0, cannot + "it is no recording of zeus record"};
  }
  const auto version = static_cast<std::uint8_t>(bytes[kMagic.size()]);
  if (version != kVersion) {
    return Error{Errc::unsupported, 0,
                 cannot + "it is written in version " + std::to_string(version) +
                     " of the format, and this zeus reads version " + std::to_string(kVersion) +
                     "; use the zeus that wrote it, or a later one"};
  }
  Blocks blocks(bytes);
  blocks.at_ = kPreamble;
  return blocks;
}

std::optional<Block> Blocks::next() {
  if (!damage_.empty() || at_ == bytes_.size()) return std::nullopt;
  const std::string_view rest = bytes_.substr(at_);
  const std::uint64_t length = Bytes(rest).fixed(4);
  const std::string where = "the block at byte " + std::to_string(at_);
  if (rest.size() < kHead + kTail || rest.size() - kHead - kTail < length) {
    damage_ = where + " is cut off";
    return std::nullopt;
  }
  const auto size = static_cast<std::size_t>(length);
  const std::string_view covered = rest.substr(0, kHead + size);
  if (Bytes(rest.substr(covered.size())).fixed(kTail) != crc32c(covered)) {
    damage_ = where + " is damaged: its checksum does not match";
    return std::nullopt;
  }
  const Block block{static_cast<BlockKind>(rest[4]), rest.substr(kHead, size), at_};
  at_ += covered.size() + kTail;
  return block;
}

}  // namespace zeus::replay
