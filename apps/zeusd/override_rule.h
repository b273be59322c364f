#pragma once

#include <re2/re2.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "overrides.h"

namespace zeus::zeusd {

enum class Placeholder : std::uint8_t {
  gpu_id,
  gpu_uuid,
  gpu_pci,
  power_limit_mw,
  power_limit_w,
  min_clock_mhz,
  max_clock_mhz,
  enabled,
};

/// Text, then what a placeholder stands for.
struct Piece {
  std::string text;
  std::optional<Placeholder> value{};
};
using Word = std::vector<Piece>;

/// A command of which the first word, the program, is an absolute path without placeholders.
struct CommandLine {
  std::vector<Word> words;
  const std::string& program() const { return words.front().front().text; }
};

/// What is done for one operation.
struct OverrideRule {
  std::vector<CommandLine> commands;
  std::unique_ptr<const RE2> error_pattern{};
  std::chrono::seconds timeout{60};
  bool names_gpu = false;
  mutable std::mutex node{};  ///< Held while commands run that name no GPU.
};

/// Errc::invalid, with a sentence that names the operation and the word or command.
Result<CommandLine> parse_command(Operation operation, std::string_view text);
bool names_gpu(const CommandLine& command);

/// The arguments of a command. Errc::malformed if the GPU lacks what the command names it by.
Result<std::vector<std::string>> fill(const CommandLine& command, const OverrideValues& values);

}  // namespace zeus::zeusd
