#include "words.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "net/percent.h"

namespace zeus::zeusd {
namespace {

class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  /// Why it cannot be split; empty if all went well.
  std::string run() {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == ' ' || c == '\t' || c == '\n') {
        within_ = false;
      } else if (c == '#' && !within_) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '\\') {
        if (at_ == text_.size()) return "it ends after a backslash";
        const char next = text_[at_++];
        if (next != '\n') add(next);
      } else if (c == '\'' || c == '"') {
        if (!quoted(c)) return "a quote is not closed";
      } else {
        add(c);
      }
    }
    return words_.empty() ? "it has zero tokens" : "";
  }

  std::vector<std::string> words() && { return std::move(words_); }

 private:
  std::string& word() {
    if (!std::exchange(within_, true)) words_.emplace_back();
    return words_.back();
  }
  void add(char c) { word() += c; }

  /// What stands up to the second `quote`; false if there is none.
  bool quoted(char quote) {
    std::string& to = word();
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == quote) return true;
      const char next = at_ < text_.size() ? text_[at_] : '\0';
      const bool escapes = std::string_view("$`\"\\\n").find(next) != std::string_view::npos;
      if (quote == '"' && c == '\\' && escapes) {
        ++at_;
        if (next != '\n') to += next;
      } else {
        to += c;
      }
    }
    return false;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool within_ = false;  // A word.
  std::vector<std::string> words_;
};

}  // namespace

Result<std::vector<std::string>> split_command(std::string_view text) {
  Splitter splitter(text);
  const std::string why =
      text.find('\0') != std::string_view::npos ? "it holds a NUL" : splitter.run();
  if (why.empty()) return std::move(splitter).words();
  return Error{Errc::invalid, 0,
               fmt::format("the command \"{}\" cannot be split: {}", net::shown(text, 200), why)};
}

}  // namespace zeus::zeusd
