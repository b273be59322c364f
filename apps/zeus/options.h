#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/run.h"
#include "report/text.h"
#include "zeus/device.h"

namespace zeus::cli {

/// Something the user must change: one sentence with the way out, and exit status 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

/// What every verb understands.
struct Globals {
  std::string host = "local:";
  std::string output;
  bool json = false, verbose = false, no_color = false;
  std::vector<std::string> command;  ///< What stands behind `--`.
  /// Where the value of an option came from if not from the command line: "ZEUS_GPUS".
  std::map<std::string, std::string> sources;

  report::Style style(int fd) const;  ///< Colour only where `fd` is a terminal that wants it.
};

/// A verb and what it does once the command line is read. The result is the exit status.
using Verbs = std::vector<std::pair<CLI::App*, std::function<int()>>>;

void add_env(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_run(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_monitor(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_sim(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_restore(CLI::App& app, const Globals& globals, Verbs& verbs);

/// "100ms", "2s", "1.5s", "10us", "1m"; a plain number is in `plain_unit` seconds.
Result<Duration> parse_duration(std::string_view text, double plain_unit = 1);
CLI::Option* add_duration(CLI::App* app, const std::string& names, Duration& target,
                          const std::string& help, double plain_unit = 1);

/// Fills options that the command line did not set, from ZEUS_* and from zeus.toml.
void apply_settings(CLI::App& app, Globals& globals);

/// Opens the machine that `--host` names.
Machine open_machine(const Globals& globals);
report::Host host_of(const Globals& globals, const Machine& machine);
std::optional<std::string> environment(const char* name);

/// Which devices to measure.
struct Choice {
  std::string gpus, cpus;
  bool no_gpu = false, no_cpu = false;
  std::vector<std::size_t> positions;  ///< Among the visible GPUs.
};
void add_choice(CLI::App* app, Choice& choice);

/// Drops the others from `machine`, and says what was chosen and why: "gpu", then "cpu".
std::vector<std::pair<std::string, Selection>> choose(Machine& machine, const Choice& choice,
                                                      const Globals& globals);

}  // namespace zeus::cli
