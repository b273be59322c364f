#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "net/percent.h"
#include "override_rule.h"
#include "words.h"

namespace zeus::zeusd {
namespace {

constexpr unsigned bit(Operation operation) { return 1U << static_cast<unsigned>(operation); }
constexpr unsigned kAny = (1U << kOperations) - 1;
constexpr unsigned kLimits = bit(Operation::set_power_limit);
constexpr unsigned kClocks =
    bit(Operation::set_gpu_locked_clocks) | bit(Operation::set_mem_locked_clocks);

/// In the order of the enumeration.
constexpr struct {
  std::string_view name;
  unsigned operations;
} kPlaceholders[] = {{"gpu_id", kAny},           {"gpu_uuid", kAny},
                     {"gpu_pci", kAny},          {"power_limit_mw", kLimits},
                     {"power_limit_w", kLimits}, {"min_clock_mhz", kClocks},
                     {"max_clock_mhz", kClocks}, {"enabled", bit(Operation::set_persistence_mode)}};

std::optional<Placeholder> placeholder(std::string_view name, Operation operation) {
  for (std::size_t i = 0; i < std::size(kPlaceholders); ++i) {
    if (kPlaceholders[i].name != name) continue;
    if ((kPlaceholders[i].operations & bit(operation)) == 0) return std::nullopt;
    return static_cast<Placeholder>(i);
  }
  return std::nullopt;
}

std::string known(Operation operation) {
  std::string out;
  for (const auto& p : kPlaceholders) {
    if ((p.operations & bit(operation)) == 0) continue;
    out += (out.empty() ? "{" : ", {") + std::string(p.name) + "}";
  }
  return out;
}

Error wrong(Operation operation, const std::string& why) {
  return {Errc::invalid, 0, fmt::format("{}: {}", to_string(operation), why)};
}

Result<Word> parse_word(Operation operation, std::string_view word) {
  const auto stray = [&] {
    return wrong(operation, fmt::format("a brace stands alone in the word \"{}\"; a placeholder is "
                                        "{{name}}, and there is no other use of braces",
                                        net::shown(word, 200)));
  };
  Word pieces;
  for (std::string_view rest = word; !rest.empty() || pieces.empty();) {
    const std::size_t open = std::min(rest.find_first_of("{}"), rest.size());
    Piece piece{std::string(rest.substr(0, open))};
    rest.remove_prefix(open);
    if (!rest.empty()) {
      const std::size_t close = rest.find_first_of("{}", 1);
      if (rest[0] != '{' || close == std::string_view::npos || rest[close] != '}') return stray();
      const std::string_view name = rest.substr(1, close - 1);
      piece.value = placeholder(name, operation);
      if (!piece.value) {
        return wrong(operation,
                     fmt::format("there is no placeholder {{{}}} for it, in the word \"{}\"; known "
                                 "are {}",
                                 net::shown(name), net::shown(word, 200), known(operation)));
      }
      rest.remove_prefix(close + 1);
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

Result<std::string> value_of(Placeholder which, const OverrideValues& v) {
  const auto of_gpu = [&](const std::string& text, const char* what) -> Result<std::string> {
    if (!text.empty()) return text;
    return Error{Errc::malformed, 0,
                 fmt::format("GPU {} tells no {}; name it by {{gpu_id}}", v.gpu_id, what)};
  };
  switch (which) {
    case Placeholder::gpu_uuid: return of_gpu(v.uuid, "UUID");
    case Placeholder::gpu_pci: return of_gpu(v.pci, "PCI address");
    case Placeholder::power_limit_mw: return fmt::to_string(v.power_limit_mw);
    case Placeholder::power_limit_w: return fmt::to_string(v.power_limit_mw / 1000);
    case Placeholder::min_clock_mhz: return fmt::to_string(v.min_clock_mhz);
    case Placeholder::max_clock_mhz: return fmt::to_string(v.max_clock_mhz);
    case Placeholder::enabled: return std::string(v.enabled ? "1" : "0");
    case Placeholder::gpu_id: break;
  }
  return fmt::to_string(v.gpu_id);
}

}  // namespace

Result<CommandLine> parse_command(Operation operation, std::string_view text) {
  const auto words = split_command(text);
  if (!words) return wrong(operation, words.error().detail);
  CommandLine command;
  for (const std::string& word : *words) {
    auto pieces = parse_word(operation, word);
    if (!pieces) return pieces.error();
    command.words.push_back(std::move(*pieces));
  }
  const Word& first = command.words.front();
  if (first.size() == 1 && !first.front().value && first.front().text.rfind('/', 0) == 0) {
    return command;
  }
  return wrong(operation, fmt::format("the program \"{}\" must be an absolute path without "
                                      "placeholders, since no PATH is searched",
                                      net::shown(words->front(), 200)));
}

bool names_gpu(const CommandLine& command) {
  return std::any_of(command.words.begin(), command.words.end(), [](const Word& word) {
    return std::any_of(word.begin(), word.end(),
                       [](const Piece& p) { return p.value && *p.value <= Placeholder::gpu_pci; });
  });
}

Result<std::vector<std::string>> fill(const CommandLine& command, const OverrideValues& values) {
  std::vector<std::string> arguments;
  for (const Word& word : command.words) {
    std::string& argument = arguments.emplace_back();
    for (const Piece& piece : word) {
      argument += piece.text;
      if (!piece.value) continue;
      const auto value = value_of(*piece.value, values);
      if (!value) return value.error();
      argument += *value;
    }
  }
  return arguments;
}

}  // namespace zeus::zeusd
