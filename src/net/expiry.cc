#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

#include "net/percent.h"
#include "net/token.h"

namespace zeus::net {
namespace {

constexpr std::string_view kBlanks = " \t\n";

struct Unit {
  std::string_view names;  ///< Each between blanks.
  std::int64_t seconds;
};
constexpr Unit kUnits[] = {
    {" s sec secs second seconds ", 1},   {" m min mins minute minutes ", 60},
    {" h hr hrs hour hours ", 3600},      {" d day days ", 86'400},
    {" w wk wks week weeks ", 604'800},   {" M month months ", 2'630'016},
    {" y yr yrs year years ", 31'557'600}};

std::int64_t seconds_of(std::string_view unit) {
  const std::string between = fmt::format(" {} ", unit);
  for (const Unit& u : kUnits) {
    if (u.names.find(between) != std::string_view::npos) return u.seconds;
  }
  return 0;
}

void skip_blanks(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
}

/// Takes one "30m" off `text`, and adds it to `total`; false if there is none or it is too long.
bool take_part(std::string_view& text, std::int64_t& total) {
  std::int64_t number = 0, part = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc{} || text.front() == '-') return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  skip_blanks(text);
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const auto stop = std::find_if_not(text.begin(), text.end(), is_letter);
  const auto length = static_cast<std::size_t>(stop - text.begin());
  const std::int64_t unit = length == 0 ? 0 : seconds_of(text.substr(0, length));
  text.remove_prefix(length);
  skip_blanks(text);
  return unit != 0 && !__builtin_mul_overflow(number, unit, &part) &&
         !__builtin_add_overflow(total, part, &total);
}

}  // namespace

Result<std::optional<std::int64_t>> parse_expiry(std::string_view text, std::int64_t now) {
  const Error error{
      Errc::invalid, 0,
      fmt::format("\"{}\" is no time to expire after; write never, or a duration of a second or "
                  "more like 1h, 7d, 2weeks or \"1h 30m\" (m is a minute, M a month)",
                  shown(text))};
  skip_blanks(text);
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  if (text == "never" || text == "0") return std::optional<std::int64_t>{};
  if (text.empty()) return error;
  std::int64_t total = 0, expires = 0;
  while (!text.empty()) {
    if (!take_part(text, total)) return error;
  }
  if (total < 1 || __builtin_add_overflow(now, total, &expires)) return error;
  return std::optional(expires);
}

}  // namespace zeus::net
