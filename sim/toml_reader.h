#pragma once

// Reads tables of TOML strictly: each key is asked for once, and what nobody asked for is an error.
// The first error is kept, so that a reader is written as if nothing could fail.

#include <optional>
#include <string>
#include <vector>

#include "sim/power.h"
#include "sim/toml.h"
#include "zeus/result.h"

namespace zeus::sim {

/// Where the first error of a document is kept.
struct Problems {
  std::string source;
  std::optional<Error> first;
  /// "FILE, line 3: WHAT"
  void say(const toml::node& where, const std::string& what);
};

class TableReader {
 public:
  /// `title` is how messages call the table: "[[gpu]]".
  TableReader(Problems& problems, const toml::table& table, std::string title)
      : problems_(problems), table_(table), title_(std::move(title)) {}

  const toml::node* find(const char* key);
  bool has(const char* key) { return find(key) != nullptr; }
  void read(const char* key, std::string& out);
  void read(const char* key, double& out);  ///< Whole numbers will do; of 1e15 at the most.
  void read(const char* key, bool& out);
  template <class T>
  requires std::is_integral_v<T>
  void read(const char* key, T& out) {
    const toml::node* n = find(key);
    if (n == nullptr) return;
    const auto v = n->value_exact<std::int64_t>();
    if (!v || !std::in_range<T>(*v)) return wrong(*n, key, "a whole number in range");
    out = static_cast<T>(*v);
  }
  /// "100ms", "2 s", "10us", "1h", or a number of seconds.
  void duration(const char* key, Ns& out);
  /// As above, but must be more than nothing.
  void period(const char* key, Ns& out);
  const toml::table* table(const char* key);
  const toml::array* array(const char* key);
  /// All `[[key]]` tables.
  std::vector<const toml::table*> tables(const char* key);

  void say(const char* key, const std::string& what);
  void wrong(const toml::node& node, const char* key, const char* wanted);
  /// Call last: complains about keys that nobody asked for.
  void done();
  const toml::table& raw() const { return table_; }
  const std::string& title() const { return title_; }
  Problems& problems() { return problems_; }

 private:
  Problems& problems_;
  const toml::table& table_;
  std::string title_;
  std::vector<std::string> asked_;
};

/// Nothing if the text is no duration, or one beyond `kLongest`.
std::optional<Ns> parse_duration(std::string_view text);

}  // namespace zeus::sim
