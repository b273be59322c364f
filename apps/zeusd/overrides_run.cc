#include <fmt/format.h>
#include <fmt/ranges.h>

#include <system_error>
#include <utility>

#include "base/trusted_file.h"
#include "command.h"
#include "net/percent.h"
#include "override_rule.h"

namespace zeus::zeusd {
namespace {

constexpr std::size_t kShown = 2048;  // Of each output, in a message.

/// The beginning of an output, on one line.
std::string on_one_line(std::string_view output) {
  output = output.substr(0, output.find_last_not_of('\n') + 1);
  std::string line;
  for (const char c : output.substr(0, kShown))
    line += c == '\n' ? std::string("\\n") : std::string(1, c);
  if (output.size() > kShown) line += "...";
  return net::shown(line, 2 * kShown);
}

/// What a command is, for messages.
std::string command_line(const std::vector<std::string>& argv) {
  return net::shown(fmt::format("{}", fmt::join(argv, " ")), 512);
}

Error failed(const std::vector<std::string>& argv, std::string_view why,
             const Command* command = nullptr) {
  std::string text = fmt::format("Override command failed: {}: {}", command_line(argv), why);
  if (command != nullptr) {
    text += fmt::format("; stdout \"{}\"; stderr \"{}\"", on_one_line(command->out().text),
                        on_one_line(command->err().text));
  }
  return {Errc::malformed, command == nullptr ? 0 : command->number(), std::move(text)};
}

/// Why the pattern makes a run that exited with 0 a failure; "" if it does not.
std::string_view judge(const RE2& pattern, const Command& command) {
  for (const Command::Output* output : {&command.out(), &command.err()}) {
    if (RE2::PartialMatch(net::to_utf8(output->text), pattern)) return "matched error_pattern";
  }
  if (command.out().whole() && command.err().whole()) return "";
  return "output could not be collected, so error_pattern could not be checked";
}

/// Why it failed; "" if it did not.
std::string outcome(const OverrideRule& rule, const Command& command, Command::End end) {
  switch (end) {
    case Command::End::not_spawned:
      return "could not be spawned: " + std::generic_category().message(command.number());
    case Command::End::timed_out: return fmt::format("timed out after {}s", rule.timeout.count());
    case Command::End::signalled: return fmt::format("killed by signal {}", command.number());
    case Command::End::stopped: return "ended, since the daemon is to stop";
    case Command::End::exited: break;
  }
  if (command.number() != 0) return fmt::format("exited with code {}", command.number());
  return rule.error_pattern ? std::string(judge(*rule.error_pattern, command)) : "";
}

Status run_command(const OverrideRule& rule, const std::vector<std::string>& argv,
                   const std::atomic<bool>& stop) {
  // Once more: what is trusted at the start may have been opened to others since.
  const auto program = TrustedFile::open(argv.front(), TrustedFile::Use::run);
  if (!program) return failed(argv, "could not be spawned: " + program.error().detail);
  Command command(argv);
  const auto end = command.run(rule.timeout, rule.error_pattern != nullptr, stop);
  const std::string why = outcome(rule, command, end);
  if (why.empty()) return ok();
  // What it left behind must not change the device after we said that it failed.
  command.kill_group();
  Error error = failed(argv, why, &command);
  if (end == Command::End::stopped) error.code = Errc::busy;
  return error;
}

}  // namespace

Status Overrides::run(Operation operation, const OverrideValues& values,
                      const std::atomic<bool>& stop) const {
  const OverrideRule* const rule = this->rule(operation);
  if (rule == nullptr) {
    return Error{Errc::malformed, 0,
                 fmt::format("there is no override of {}", to_string(operation))};
  }
  std::unique_lock<std::mutex> node(rule->node, std::defer_lock);
  if (!rule->names_gpu) node.lock();
  for (const CommandLine& line : rule->commands) {
    const auto argv = fill(line, values);
    if (!argv) return failed({line.program()}, argv.error().detail);
    if (stop) return Error{Errc::busy, 0, "Override command not run: the daemon is to stop"};
    if (auto status = run_command(*rule, *argv, stop); !status) return status;
  }
  return ok();
}

}  // namespace zeus::zeusd
