#include "sim/toml_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace zeus::sim {

void Problems::say(const toml::node& where, const std::string& what) {
  if (first) return;
  first = Error{Errc::invalid, 0,
                source + ", line " + std::to_string(where.source().begin.line) + ": " + what};
}

std::optional<Ns> parse_duration(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, ec] = std::from_chars(text.data(), end, number);
  if (ec != std::errc{}) return std::nullopt;
  std::string_view unit(rest, end);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};
  for (const auto& [name, ns] : kUnits) {
    if (unit == name && std::abs(number * ns) <= static_cast<double>(kLongest)) {
      return std::llround(number * ns);
    }
  }
  return std::nullopt;
}

const toml::node* TableReader::find(const char* key) {
  asked_.emplace_back(key);
  return table_.get(key);
}

void TableReader::wrong(const toml::node& node, const char* key, const char* wanted) {
  problems_.say(node, "`" + std::string(key) + "` in " + title_ + " must be " + wanted);
}

void TableReader::say(const char* key, const std::string& what) {
  const toml::node* n = table_.get(key);
  problems_.say(n != nullptr ? *n : table_, title_ + ": " + what);
}

void TableReader::read(const char* key, std::string& out) {
  const toml::node* n = find(key);
  if (n == nullptr) return;
  if (const auto v = n->value_exact<std::string>()) {
    out = *v;
  } else {
    wrong(*n, key, "a text in quotes");
  }
}

void TableReader::read(const char* key, double& out) {
  const toml::node* n = find(key);
  if (n == nullptr) return;
  constexpr double kMost = 1e15;
  if (const auto v = n->is_number() ? n->value<double>() : std::nullopt;
      v && std::abs(*v) <= kMost) {
    out = *v;
  } else {
    wrong(*n, key, "a number, of 1e15 at the most");
  }
}

void TableReader::read(const char* key, bool& out) {
  const toml::node* n = find(key);
  if (n == nullptr) return;
  if (const auto v = n->value_exact<bool>()) {
    out = *v;
  } else {
    wrong(*n, key, "true or false");
  }
}

void TableReader::duration(const char* key, Ns& out) {
  const toml::node* n = find(key);
  if (n == nullptr) return;
  std::optional<Ns> v;
  if (const auto text = n->value_exact<std::string>()) {
    v = parse_duration(*text);
  } else if (const auto s = n->is_number() ? n->value<double>() : std::nullopt;
             s && std::abs(*s) <= seconds(kLongest)) {
    v = std::llround(*s * 1e9);
  }
  if (v) {
    out = *v;
  } else {
    wrong(*n, key,
          "a duration such as \"100ms\", \"2s\" or \"10us\", or a number of seconds; ten years at "
          "most");
  }
}

void TableReader::period(const char* key, Ns& out) {
  duration(key, out);
  if (const toml::node* n = table_.get(key); n != nullptr && out <= 0) {
    wrong(*n, key, "more than zero");
  }
}

const toml::table* TableReader::table(const char* key) {
  const toml::node* n = find(key);
  if (n == nullptr) return nullptr;
  if (!n->is_table()) wrong(*n, key, "a table: { ... }");
  return n->as_table();
}

const toml::array* TableReader::array(const char* key) {
  const toml::node* n = find(key);
  if (n == nullptr) return nullptr;
  if (!n->is_array()) wrong(*n, key, "a list: [ ... ]");
  return n->as_array();
}

std::vector<const toml::table*> TableReader::tables(const char* key) {
  std::vector<const toml::table*> out;
  if (const toml::array* list = array(key)) {
    for (const toml::node& n : *list) {
      if (n.is_table()) {
        out.push_back(n.as_table());
      } else {
        wrong(n, key, "written as [[...]] tables");
      }
    }
  }
  return out;
}

void TableReader::done() {
  for (const auto& [key, node] : table_) {
    const std::string_view name = key.str();
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
    std::sort(asked_.begin(), asked_.end());
    asked_.erase(std::unique(asked_.begin(), asked_.end()), asked_.end());
    std::string known;
    for (const std::string& a : asked_) known += (known.empty() ? "" : ", ") + a;
    problems_.say(node,
                  "unknown key `" + std::string(name) + "` in " + title_ + "; known are: " + known);
    return;
  }
}

}  // namespace zeus::sim
