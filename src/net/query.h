#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeus/result.h"

namespace zeus::net {

/// The arguments of a request, application/x-www-form-urlencoded; each key at most once.
///
/// The keys are asked for one by one, in the order in which a message lists them. What is missing
/// or wrong comes back as a default (false, 0, "", nothing), and fault() says so afterwards: a
/// handler asks for everything, then looks at fault() before it does anything.
class Query {
 public:
  /// `raw` is what stands behind the '?', undecoded. At most 64 arguments are looked at.
  explicit Query(std::string_view raw);

  bool flag(std::string_view key);                    ///< Required: exactly true or false.
  std::optional<bool> flag_if(std::string_view key);  ///< Optional.
  std::uint32_t number(std::string_view key);         ///< Required: decimal, of 32 bits.
  std::optional<std::uint32_t> number_if(std::string_view key);
  std::string text(std::string_view key);  ///< Required, decoded: UTF-8 without a NUL.
  std::optional<std::string> text_if(std::string_view key);

  /// After all keys were asked for: the text of the first fault, "" if there is none. First is what
  /// stands first in the query, and what is missing comes last. A key nobody asked for is a fault.
  /// Phrases: unknown field, duplicate field, missing field, invalid, not `true` or `false`.
  std::string fault() const;

 private:
  struct Pair {
    std::string key, value;
    bool readable = true;
  };
  struct Fault {
    std::size_t at = 0;  ///< The position of the argument; the number of arguments if missing.
    std::string text;
  };

  const Pair* find(std::string_view key);
  template <class Value, class Parse>
  std::optional<Value> value_if(std::string_view key, Parse parse, std::string_view wanted);
  void require(bool there, std::string_view key);
  void add(std::size_t at, std::string text);
  std::string unknown(std::string_view key) const;

  std::vector<Pair> pairs_;
  std::vector<std::string> asked_;
  std::optional<Fault> first_;
};

/// "0, 2,0" -> {0, 2}: sorted, each once. Blanks around an item do not matter. Errc::invalid, with
/// a sentence for the body {"error": ...}, if there is no item, an empty one, or one that is no
/// number of 32 bits.
Result<std::vector<unsigned>> parse_ids(std::string_view list);

}  // namespace zeus::net
