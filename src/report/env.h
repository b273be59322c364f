#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/json.h"
#include "report/run.h"
#include "report/text.h"

namespace zeus::report {

/// Everything that `zeus env` has to say.
struct Environment {
  std::string version;
  Host host;
  unsigned euid = 0;
  std::vector<Device> devices;  ///< All of the machine, chosen or not.
  std::vector<Problem> problems;
  std::vector<std::pair<std::string, Selection>> selections;
  /// What `--require` asked for and is not there: the word, and why.
  std::vector<std::pair<std::string, std::string>> unmet;
};

/// How the energy of a device is told: "counter", "integrated", "none".
const char* how(const Device& device) noexcept;

std::string to_text(const Environment& env, Style style);
Json to_json(const Environment& env);  ///< The schema "zeus.env/1".

}  // namespace zeus::report
