#pragma once

#include <algorithm>
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
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
  std::string host;  ///< Empty: this machine, with the daemon that the environment names.
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
void add_bench(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_monitor(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_record(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_verify(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_sim(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_calibrate(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_fleet(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_processes(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_restore(CLI::App& app, const Globals& globals, Verbs& verbs);
void add_serve_proxy(CLI::App& app, const Globals& globals, Verbs& verbs);

/// "--interval" of "-I,--interval".
std::string long_name(const std::string& names);

/// "100ms", "2s", "1.5s", "10us", "1m"; a plain number is in `plain_unit` seconds.
Result<Duration> parse_duration(std::string_view text, double plain_unit = 1);
CLI::Option* add_duration(CLI::App* app, const std::string& names, Duration& target,
                          const std::string& help, double plain_unit = 1);

/// A whole number of 0 or more, as the value of `option`; anything else is a ValidationError.
std::int64_t whole_number(const std::string& option, const std::string& text, std::int64_t most);
template <class Number>
CLI::Option* add_number(CLI::App* app, const std::string& names, Number& target,
                        const std::string& help) {
  const auto read = [&target, name = long_name(names)](const std::string& text) {
    constexpr auto kMost = std::min<std::intmax_t>(std::numeric_limits<Number>::max(),
                                                   std::numeric_limits<std::int64_t>::max());
    target = static_cast<Number>(whole_number(name, text, kMost));
  };
  return app->add_option_function<std::string>(names, read, help)->type_name("INT");
}

/// The words of a command line without a shell: separated by blanks; within '...' everything is
/// itself, within "..." a backslash makes " and itself so, elsewhere it does so with any character.
/// Errc::invalid for an open quote and for no word at all.
Result<std::vector<std::string>> split_words(std::string_view text);

/// Fills options that the command line did not set, from ZEUS_* and from zeus.toml.
void apply_settings(CLI::App& app, Globals& globals);

/// Opens the machine that `--host` names, with what the user's tables know of its sensors.
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
