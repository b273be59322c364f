#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "gpu_check/check.h"

namespace zeus::check {

/// The file "zeus.gpu-check/1". What is not known is null.
nlohmann::ordered_json to_json(const Outcome& outcome, const Machine& machine,
                               const Device& device);

/// A short table for people.
std::string to_text(const Outcome& outcome, const Machine& machine, const Device& device);

}  // namespace zeus::check
