#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "zeus/result.h"

namespace zeus::zeusd {

/// What an administrator may have done by commands of his own: docs/reference/zeusd-overrides.md.
enum class Operation : std::uint8_t {
  set_persistence_mode,
  set_power_limit,
  set_gpu_locked_clocks,
  reset_gpu_locked_clocks,
  set_mem_locked_clocks,
  reset_mem_locked_clocks,
  reset_locked_clocks,
};
inline constexpr std::size_t kOperations = 7;

constexpr std::string_view to_string(Operation operation) noexcept {
  constexpr std::string_view kNames[kOperations] = {
      "set_persistence_mode",    "set_power_limit",       "set_gpu_locked_clocks",
      "reset_gpu_locked_clocks", "set_mem_locked_clocks", "reset_mem_locked_clocks",
      "reset_locked_clocks"};
  return kNames[static_cast<std::size_t>(operation)];
}

/// What placeholders stand for. What the operation has no use for is not looked at.
struct OverrideValues {
  unsigned gpu_id = 0;
  std::string uuid{}, pci{};
  std::uint32_t power_limit_mw = 0, min_clock_mhz = 0, max_clock_mhz = 0;
  bool enabled = false;
};

struct OverrideRule;

/// Commands that take the place of calls of the driver. Of each operation that is named, the driver
/// is not asked any more.
class Overrides {
 public:
  Overrides() = default;

  /// Reads a file that only root, this process's effective user, or a group can write or exchange;
  /// so must be every program that it names, by an absolute path.
  static Result<Overrides> load(const std::filesystem::path& path);
  /// The same of its text, without a look at the programs. `name` is for messages.
  static Result<Overrides> parse(std::string_view toml, const std::string& name);

  bool has(Operation operation) const noexcept;
  std::vector<Operation> operations() const;  ///< In the order of the enumeration.
  bool empty() const noexcept;
  /// How long each command of an operation that is overridden may run.
  std::chrono::seconds timeout(Operation operation) const noexcept;
  /// Sentences for whoever starts the daemon: what a group may write.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  /// Runs the commands of an operation one after the other, on the caller's thread, and gives up
  /// with the first that fails. Safe from several threads at once; commands that name no GPU act on
  /// the node, and run one at a time. `stop` ends a command that runs, with Errc::busy. Every other
  /// failure is Errc::malformed, whatever it comes from: none is the fault of whoever asked. Its
  /// sentence holds the command, the reason and the beginning of both outputs.
  Status run(Operation operation, const OverrideValues& values,
             const std::atomic<bool>& stop) const;

 private:
  const OverrideRule* rule(Operation operation) const noexcept {
    return rules_[static_cast<std::size_t>(operation)].get();
  }

  std::array<std::shared_ptr<const OverrideRule>, kOperations> rules_;
  std::vector<std::string> warnings_;
};

}  // namespace zeus::zeusd
