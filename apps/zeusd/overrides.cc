#include "overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/trusted_file.h"
#include "net/percent.h"
#include "override_rule.h"
#include "sim/toml.h"

namespace zeus::zeusd {
namespace {

constexpr std::size_t kMostFile = std::size_t{1} << 20;
constexpr std::int64_t kMostTimeoutS = 86'400;

Error unknown(std::string_view field, std::string_view expected) {
  return {Errc::invalid, 0,
          fmt::format("unknown field `{}`, expected {}", net::shown(field), expected)};
}

Error wrong(Operation operation, std::string_view why) {
  return {Errc::invalid, 0, fmt::format("{}: {}", to_string(operation), why)};
}

std::optional<Operation> operation_named(std::string_view name) {
  for (std::size_t i = 0; i < kOperations; ++i) {
    if (to_string(static_cast<Operation>(i)) == name) return static_cast<Operation>(i);
  }
  return std::nullopt;
}

std::string all_operations() {
  std::string out = "one of ";
  for (std::size_t i = 0; i < kOperations; ++i) {
    out += fmt::format("{}`{}`", i == 0 ? "" : ", ", to_string(static_cast<Operation>(i)));
  }
  return out;
}

Result<std::vector<CommandLine>> read_commands(Operation operation, const toml::node& node) {
  const toml::array* const array = node.as_array();
  if (array == nullptr || array->empty()) {
    return wrong(operation, "`commands` must be a list of at least one text");
  }
  std::vector<CommandLine> commands;
  for (const toml::node& item : *array) {
    const auto text = item.value_exact<std::string>();
    if (!text) return wrong(operation, "`commands` must be a list of texts");
    auto command = parse_command(operation, *text);
    if (!command) return command.error();
    commands.push_back(std::move(*command));
  }
  return commands;
}

Result<std::unique_ptr<const RE2>> read_pattern(Operation operation, const toml::node& node) {
  const auto text = node.value_exact<std::string>();
  if (!text) return wrong(operation, "`error_pattern` must be a text");
  RE2::Options options;
  options.set_log_errors(false);
  auto pattern = std::make_unique<const RE2>(*text, options);
  if (!pattern->ok()) {
    return wrong(operation, fmt::format("`error_pattern` is no regular expression of RE2: {}",
                                        net::shown(pattern->error(), 200)));
  }
  // Each output is searched alone, and one of them is nearly always empty.
  if (RE2::PartialMatch("", *pattern)) {
    return wrong(operation, "`error_pattern` finds an error in an output that is empty");
  }
  return std::unique_ptr<const RE2>(std::move(pattern));
}

Result<std::chrono::seconds> read_timeout(Operation operation, const toml::node& node) {
  const auto seconds = node.value_exact<std::int64_t>();
  if (seconds && *seconds >= 1 && *seconds <= kMostTimeoutS) return std::chrono::seconds(*seconds);
  return wrong(operation, fmt::format("`timeout_s` must be a whole number of seconds from 1 to {}",
                                      kMostTimeoutS));
}

/// The table of one operation.
Result<std::shared_ptr<const OverrideRule>> read_rule(Operation operation,
                                                      const toml::table& table) {
  auto rule = std::make_shared<OverrideRule>();
  for (const auto& [key, node] : table) {
    if (key == "commands") {
      auto commands = read_commands(operation, node);
      if (!commands) return commands.error();
      rule->commands = std::move(*commands);
    } else if (key == "error_pattern") {
      auto pattern = read_pattern(operation, node);
      if (!pattern) return pattern.error();
      rule->error_pattern = std::move(*pattern);
    } else if (key == "timeout_s") {
      const auto timeout = read_timeout(operation, node);
      if (!timeout) return timeout.error();
      rule->timeout = *timeout;
    } else {
      return wrong(operation,
                   unknown(key.str(), "`commands`, `error_pattern` or `timeout_s`").detail);
    }
  }
  if (rule->commands.empty()) return wrong(operation, "missing field `commands`");
  rule->names_gpu = std::any_of(rule->commands.begin(), rule->commands.end(), names_gpu);
  return std::shared_ptr<const OverrideRule>(std::move(rule));
}

}  // namespace

Result<Overrides> Overrides::parse(std::string_view text, const std::string& name) {
  const auto in_file = [&](const Error& e) {
    return Error{e.code, e.vendor, fmt::format("cannot use the overrides {}: {}", name, e.detail)};
  };
  const toml::parse_result file = toml::parse(text);
  if (!file) {
    return in_file({Errc::invalid, 0,
                    fmt::format("line {}: {}", file.error().source().begin.line,
                                net::shown(file.error().description(), 200))});
  }
  Overrides overrides;
  for (const auto& [key, node] : file.table()) {
    const auto operation = operation_named(key.str());
    if (!operation) return in_file(unknown(key.str(), all_operations()));
    const toml::table* const table = node.as_table();
    if (table == nullptr) return in_file(wrong(*operation, "it must be a table"));
    auto rule = read_rule(*operation, *table);
    if (!rule) return in_file(rule.error());
    overrides.rules_[static_cast<std::size_t>(*operation)] = std::move(*rule);
  }
  return overrides;
}

Result<Overrides> Overrides::load(const std::filesystem::path& path) {
  const auto file = TrustedFile::open(path, TrustedFile::Use::read);
  if (!file) return file.error();
  const auto text = file->read(kMostFile);
  if (!text) return text.error();
  auto overrides = parse(*text, path.string());
  if (!overrides) return overrides;
  std::vector<std::filesystem::path> group = file->group_writable();
  for (const auto& rule : overrides->rules_) {
    for (std::size_t i = 0; rule && i < rule->commands.size(); ++i) {
      const auto program = TrustedFile::open(rule->commands[i].program(), TrustedFile::Use::run);
      if (!program) return program.error();
      const auto& more = program->group_writable();
      group.insert(group.end(), more.begin(), more.end());
    }
  }
  std::sort(group.begin(), group.end());
  group.erase(std::unique(group.begin(), group.end()), group.end());
  for (const auto& p : group) {
    overrides->warnings_.push_back(fmt::format(
        "the overrides {} trust {}, which a group may write; chmod g-w it unless that is meant",
        path.string(), p.string()));
  }
  return overrides;
}

bool Overrides::has(Operation operation) const noexcept { return rule(operation) != nullptr; }

std::vector<Operation> Overrides::operations() const {
  std::vector<Operation> out;
  for (std::size_t i = 0; i < kOperations; ++i) {
    if (rules_[i]) out.push_back(static_cast<Operation>(i));
  }
  return out;
}

bool Overrides::empty() const noexcept {
  return std::none_of(rules_.begin(), rules_.end(), [](const auto& r) { return r != nullptr; });
}

std::chrono::seconds Overrides::timeout(Operation operation) const noexcept {
  return has(operation) ? rule(operation)->timeout : std::chrono::seconds(0);
}

}  // namespace zeus::zeusd
