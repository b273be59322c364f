#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/process.h"
#include "support/tree.h"

namespace zeus::test {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

/// The real binary with these arguments.
inline Words zeus_words(Words arguments) {
  arguments.insert(arguments.begin(), ZEUS_BINARY);
  return arguments;
}
inline Process::Result zeus(Words arguments, Process::Options options = {}) {
  return Process(zeus_words(std::move(arguments)), std::move(options)).wait();
}

inline std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}
inline Json json_of(const std::filesystem::path& path) {
  return Json::parse(content(path), nullptr, false);
}

/// One sentence on standard error and nothing else: no trace, no second line.
inline bool one_sentence(const std::string& err) {
  return err.starts_with("zeus: ") && err.ends_with("\n") && err.find('\n') == err.size() - 1 &&
         err.size() > 20;
}

}  // namespace zeus::test
