#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zeus::net {

/// Walks through a small JSON text without building it, for answers that are read many times a
/// second. It checks what it takes; what it passes over need not be right. Once it fails it stays
/// failed. Keys and texts are given as they stand there, escapes included.
class JsonScan {
 public:
  explicit JsonScan(std::string_view text) noexcept : rest_(text) {}
  bool ok() const noexcept { return ok_; }
  /// Nothing but blanks is left, and nothing was wrong.
  bool done() noexcept {
    blanks();
    return ok_ && rest_.empty();
  }

  /// Calls `member(key)` for each member of an object; that takes or skips the value.
  template <class F>
  bool object(F&& member) noexcept {
    if (!expect('{')) return false;
    if (accept('}')) return ok_;
    do {
      const std::string_view key = text();
      if (!expect(':')) return false;
      member(key);
      if (!ok_) return false;
    } while (accept(','));
    return expect('}');
  }

  /// An unsigned whole number; anything else fails.
  std::uint64_t number() noexcept {
    blanks();
    std::uint64_t value = 0;
    bool any = false;
    for (; !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9'; rest_.remove_prefix(1)) {
      const auto digit = static_cast<std::uint64_t>(rest_[0] - '0');
      if (value > (~std::uint64_t{0} - digit) / 10) ok_ = false;
      value = value * 10 + digit;
      any = true;
    }
    const bool whole =
        rest_.empty() || std::string_view(" \t\r\n,]}").find(rest_[0]) != std::string_view::npos;
    ok_ = ok_ && any && whole;
    return value;
  }
  /// The same, or null.
  std::optional<std::uint64_t> number_or_null() noexcept {
    blanks();
    if (!rest_.starts_with("null")) return number();
    rest_.remove_prefix(4);
    return std::nullopt;
  }
  bool boolean() noexcept {
    blanks();
    for (const std::string_view word : {"true", "false"}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return word == "true";
    }
    ok_ = false;
    return false;
  }
  std::string_view text() noexcept {
    if (!expect('"')) return {};
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      if (rest_[i] == '\\') {
        ++i;
      } else if (rest_[i] == '"') {
        const std::string_view found = rest_.substr(0, i);
        rest_.remove_prefix(i + 1);
        return found;
      }
    }
    ok_ = false;
    return {};
  }
  /// Passes over a value of any kind.
  void skip() noexcept {
    std::size_t depth = 0;
    do {
      blanks();
      if (rest_.empty()) ok_ = false;
      if (!ok_) return;
      const char c = rest_[0];
      if (c == '"') {
        text();
        continue;
      }
      rest_.remove_prefix(1);
      if (c == '{' || c == '[') {
        ++depth;
      } else if ((c == '}' || c == ']') && depth > 0) {
        --depth;
      } else if (depth == 0) {
        const auto end = rest_.find_first_of(",]} \t\r\n");
        rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end);
      }
    } while (depth > 0);
  }

 private:
  void blanks() noexcept {
    const auto first = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(first == std::string_view::npos ? rest_.size() : first);
  }
  bool accept(char c) noexcept {
    blanks();
    if (!ok_ || !rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool expect(char c) noexcept {
    if (!accept(c)) ok_ = false;
    return ok_;
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace zeus::net
