#include "net/query.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "net/percent.h"

namespace zeus::net {
namespace {

constexpr std::size_t kMostPairs = 64;
constexpr std::string_view kSpaces = " \t\n\r\f\v";

/// A key or a value; nothing if it is malformed.
std::optional<std::string> form_decode(std::string_view raw) {
  std::string spaced(raw);
  std::replace(spaced.begin(), spaced.end(), '+', ' ');
  auto text = percent_decode(spaced);
  if (!text || !is_utf8(*text) || text->find('\0') != std::string::npos) return std::nullopt;
  return text;
}

std::optional<bool> parse_flag(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::optional<std::uint32_t> parse_number(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  std::uint32_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, ec] = std::from_chars(text.data(), last, number);
  if (ec != std::errc{} || end != last) return std::nullopt;
  return number;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

Error bad_list(std::string why) { return {Errc::invalid, 0, std::move(why)}; }

}  // namespace

Query::Query(std::string_view raw) {
  while (!raw.empty()) {
    const std::string_view part = raw.substr(0, raw.find('&'));
    raw.remove_prefix(std::min(raw.size(), part.size() + 1));
    if (part.empty()) continue;
    if (pairs_.size() == kMostPairs) {
      add(pairs_.size(), fmt::format("invalid query: more than {} arguments", kMostPairs));
      return;
    }
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view raw_value = part.substr(std::min(equals + 1, part.size()));
    const auto key = form_decode(part.substr(0, equals)), value = form_decode(raw_value);
    const bool readable = key && value;
    if (!readable) {
      add(pairs_.size(),
          fmt::format("invalid argument `{}`: a percent escape or UTF-8 is malformed, or it holds "
                      "a NUL",
                      shown(part)));
    }
    pairs_.push_back({key.value_or(""), value.value_or(""), readable});
  }
}

bool Query::flag(std::string_view key) {
  const auto value = flag_if(key);
  require(value.has_value(), key);
  return value.value_or(false);
}

std::optional<bool> Query::flag_if(std::string_view key) {
  return value_if<bool>(key, parse_flag, "was not `true` or `false`");
}

std::uint32_t Query::number(std::string_view key) {
  const auto value = number_if(key);
  require(value.has_value(), key);
  return value.value_or(0);
}

std::optional<std::uint32_t> Query::number_if(std::string_view key) {
  return value_if<std::uint32_t>(key, parse_number, "is no whole number from 0 to 4294967295");
}

std::string Query::text(std::string_view key) {
  auto value = text_if(key);
  require(value.has_value(), key);
  return std::move(value).value_or("");
}

std::optional<std::string> Query::text_if(std::string_view key) {
  const Pair* const pair = find(key);
  return pair == nullptr ? std::nullopt : std::optional(pair->value);
}

template <class Value, class Parse>
std::optional<Value> Query::value_if(std::string_view key, Parse parse, std::string_view wanted) {
  const Pair* const pair = find(key);
  if (pair == nullptr) return std::nullopt;
  const std::optional<Value> value = parse(pair->value);
  if (!value) {
    add(static_cast<std::size_t>(pair - pairs_.data()),
        fmt::format("invalid value of `{}`: `{}` {}", key, shown(pair->value), wanted));
  }
  return value;
}

const Query::Pair* Query::find(std::string_view key) {
  if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) asked_.emplace_back(key);
  const Pair* found = nullptr;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (!pairs_[i].readable || pairs_[i].key != key) continue;
    if (found != nullptr) {
      add(i, fmt::format("duplicate field `{}`", key));
      break;
    }
    found = &pairs_[i];
  }
  return found;
}

/// A value that is there but wrong was complained about before, further to the front.
void Query::require(bool there, std::string_view key) {
  if (!there) add(pairs_.size(), fmt::format("missing field `{}`", key));
}

void Query::add(std::size_t at, std::string text) {
  if (!first_ || at < first_->at) first_ = Fault{at, std::move(text)};
}

std::string Query::unknown(std::string_view key) const {
  std::string expected = "there are no fields";
  if (asked_.size() == 1) expected = fmt::format("expected `{}`", asked_[0]);
  if (asked_.size() == 2) expected = fmt::format("expected `{}` or `{}`", asked_[0], asked_[1]);
  if (asked_.size() > 2) {
    expected = fmt::format("expected one of `{}`", fmt::join(asked_, "`, `"));
  }
  return fmt::format("unknown field `{}`, {}", shown(key), expected);
}

std::string Query::fault() const {
  const std::size_t before = first_ ? std::min(first_->at, pairs_.size()) : pairs_.size();
  for (std::size_t i = 0; i < before; ++i) {
    if (std::find(asked_.begin(), asked_.end(), pairs_[i].key) == asked_.end()) {
      return "Query deserialize error: " + unknown(pairs_[i].key);
    }
  }
  return first_ ? "Query deserialize error: " + first_->text : "";
}

Result<std::vector<unsigned>> parse_ids(std::string_view list) {
  if (trimmed(list).empty()) return bad_list("the list of indices is empty; leave it out for all");
  std::vector<unsigned> ids;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view item = trimmed(list.substr(0, comma));
    const auto id = parse_number(item);
    if (item.empty()) return bad_list("the list of indices has an empty item");
    if (!id) return bad_list(fmt::format("\"{}\" is no device index", shown(item)));
    ids.push_back(*id);
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace zeus::net
