#include <sys/mman.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "base/files.h"
#include "fuzz/fuzz.h"

// Counters as sysfs shows them: one decimal number, in text and in a file.

namespace {

using zeus::fuzz::require;

/// By hand: digits, then blanks and ends of lines.
std::optional<std::uint64_t> slowly(std::string_view text) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  std::uint64_t value = 0;
  std::size_t i = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    const auto digit = static_cast<std::uint64_t>(text[i] - '0');
    if (value > (kMost - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  if (i == 0) return std::nullopt;
  for (; i < text.size(); ++i) {
    if (text[i] != ' ' && text[i] != '\n') return std::nullopt;
  }
  return value;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = zeus::fuzz::text_of(data, size);
  const auto expected = slowly(text);
  std::uint64_t value = 0;
  const zeus::Errc e = zeus::parse_decimal(text, value);
  require((e == zeus::Errc::ok) == expected.has_value());
  require(!expected || value == *expected);

  static const int memory = ::memfd_create("counter", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(memory);
  require(::ftruncate(memory, 0) == 0);
  require(::pwrite(memory, data, size, 0) == static_cast<ssize_t>(size));
  const auto file = zeus::CounterFile::open(path);
  if (file) {
    // Never a number that is not the whole file's; a file longer than any number may be refused.
    require(file->read(value) == zeus::Errc::ok);
    require(expected == value);
  } else {
    require(file.error().code == zeus::Errc::malformed && !file.error().detail.empty());
    require(!expected || size > 30);
  }
  return 0;
}
