#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "zeus/profile.h"

namespace zeus::cli {
namespace {

using Kind = DeviceInfo::Kind;

std::string source_of(const Globals& globals, const std::string& option, const std::string& value) {
  const auto it = globals.sources.find(option);
  return it == globals.sources.end() ? fmt::format("--{} {}", option, value)
                                     : fmt::format("{}={}", it->second, value);
}

Selection named(const Machine& machine, Kind kind, const std::string& list, std::string source) {
  auto selection = named_devices(machine, kind, list);
  if (!selection) {
    throw UsageError(fmt::format("cannot use {}: {}", source, selection.error().detail));
  }
  selection->source = std::move(source);
  return std::move(*selection);
}

/// The visible GPUs at these places, as frameworks count them.
Selection at_positions(const Machine& machine, const std::vector<std::size_t>& positions) {
  Selection visible = visible_gpus(machine, environment);
  Selection out = visible;
  out.ids.clear();
  for (const std::size_t i : positions) {
    if (i >= visible.ids.size()) {
      throw UsageError(
          fmt::format("cannot use --gpu-indices {}: {} GPUs are visible (by {}); the "
                      "first is 0",
                      i, visible.ids.size(), visible.source));
    }
    if (std::find(out.ids.begin(), out.ids.end(), visible.ids[i]) == out.ids.end()) {
      out.ids.push_back(visible.ids[i]);
    }
  }
  out.source = fmt::format("--gpu-indices {} of {}", fmt::join(positions, " "), visible.source);
  return out;
}

Result<Machine> open_at(const std::string& host) {
  auto address = Address::parse(host);
  if (!address) throw UsageError(address.error().detail + "; see zeus --help");
  address->token = environment("ZEUSD_TOKEN").value_or("");
  return open(*address);
}

Selection choose_gpus(const Machine& machine, const Choice& choice, const Globals& globals) {
  const int ways = int{choice.no_gpu} + int{!choice.gpus.empty()} + int{!choice.positions.empty()};
  if (ways > 1) {
    throw UsageError("--gpus, --gpu-indices and --no-gpu contradict each other; keep one of them");
  }
  if (choice.no_gpu) return named(machine, Kind::gpu, "none", "--no-gpu");
  if (!choice.positions.empty()) return at_positions(machine, choice.positions);
  if (choice.gpus.empty()) return visible_gpus(machine, environment);
  return named(machine, Kind::gpu, choice.gpus, source_of(globals, "gpus", choice.gpus));
}

Selection choose_cpus(const Machine& machine, const Choice& choice, const Globals& globals) {
  if (choice.no_cpu && !choice.cpus.empty()) {
    throw UsageError("--cpus and --no-cpu contradict each other; keep one of them");
  }
  if (choice.no_cpu) return named(machine, Kind::cpu, "none", "--no-cpu");
  if (choice.cpus.empty()) return named(machine, Kind::cpu, "all", "all CPUs");
  return named(machine, Kind::cpu, choice.cpus, source_of(globals, "cpus", choice.cpus));
}

}  // namespace

report::Style Globals::style(int fd) const {
  const auto set = [](const char* name) {
    const auto value = environment(name);
    return value && !value->empty();
  };
  const bool dumb = environment("TERM").value_or("dumb") == "dumb";
  return {.color = !no_color && !set("NO_COLOR") && !dumb && isatty(fd) == 1, .verbose = verbose};
}

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::string long_name(const std::string& names) { return names.substr(names.find("--")); }

std::int64_t whole_number(const std::string& option, const std::string& text, std::int64_t most) {
  std::int64_t number = -1;
  const char* const last = text.data() + text.size();
  const auto [end, ec] = std::from_chars(text.data(), last, number);
  if (ec == std::errc::result_out_of_range || (ec == std::errc{} && number > most)) {
    throw CLI::ValidationError(option, fmt::format("{} is too large", text));
  }
  if (ec != std::errc{} || end != last || number < 0) {
    throw CLI::ValidationError(option, fmt::format("\"{}\" is no whole number of 0 or more", text));
  }
  return number;
}

Result<Duration> parse_duration(std::string_view text, double plain_unit) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ns", 1},  {"us", 1e3}, {"µs", 1e3},   {"ms", 1e6},
      {"s", 1e9}, {"m", 60e9}, {"min", 60e9}, {"h", 3600e9}};
  double number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  double unit = suffix.empty() ? plain_unit * 1e9 : 0;
  for (const auto& [name, nanoseconds] : kUnits) {
    if (suffix == name) unit = nanoseconds;
  }
  const double ns = number * unit;
  if (ec != std::errc{} || unit == 0 || !(number >= 0) || !(ns < 9e18)) {
    return Error{Errc::invalid, 0,
                 fmt::format("\"{}\" is no duration; write one like 100ms, 1.5s or 2m", text)};
  }
  return Duration(std::llround(ns));
}

CLI::Option* add_duration(CLI::App* app, const std::string& names, Duration& target,
                          const std::string& help, double plain_unit) {
  const auto read = [&target, plain_unit, name = long_name(names)](const std::string& text) {
    const auto duration = parse_duration(text, plain_unit);
    if (!duration) throw CLI::ValidationError(name, duration.error().detail);
    target = *duration;
  };
  return app->add_option_function<std::string>(names, read, help)->type_name("DURATION");
}

Result<std::vector<std::string>> split_words(std::string_view text) {
  std::vector<std::string> words;
  bool within = false;  // Of a word.
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      within = false;
      continue;
    }
    if (!std::exchange(within, true)) words.emplace_back();
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    const bool escapes = quote == 0 || (quote == '"' && (next == '"' || next == '\\'));
    if (c == '\\' && escapes && i + 1 < text.size()) {
      words.back() += text[++i];
    } else if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else {
      words.back() += c;
    }
  }
  if (quote == 0 && !words.empty() && !words.front().empty()) return words;
  return Error{Errc::invalid, 0,
               fmt::format("cannot take \"{}\" apart without a shell: {}", text,
                           quote != 0 ? "a quote is not closed" : "it names no command")};
}

Machine open_machine(const Globals& globals) {
  auto machine = globals.host.empty() ? open(environment) : open_at(globals.host);
  if (!machine) throw UsageError(machine.error().detail);
  const auto book = ProfileBook::load(environment);
  if (!book) throw UsageError(book.error().detail);
  apply(*book, *machine);
  return std::move(*machine);
}

report::Host host_of(const Globals& globals, const Machine& machine) {
  utsname name{};
  (void)uname(&name);
  return {.address = globals.host.empty() ? "local:" : globals.host,
          .hostname = name.nodename,
          .kernel = fmt::format("{} {}", name.sysname, name.release),
          .simulation = machine.simulation,
          .replay = machine.replay};
}

void add_choice(CLI::App* app, Choice& choice) {
  app->add_option("--gpus", choice.gpus,
                  "GPUs to measure: \"0,2\", a UUID or its beginning, a PCI address, all, none "
                  "(default: those that CUDA_VISIBLE_DEVICES or SLURM leave visible)")
      ->type_name("LIST");
  app->add_option("--cpus", choice.cpus, "CPUs to measure: \"0,1\", all, none (default: all)")
      ->type_name("LIST");
  app->add_flag("--no-gpu", choice.no_gpu, "Measure no GPU");
  app->add_flag("--no-cpu", choice.no_cpu, "Measure no CPU and no DRAM");
}

std::vector<std::pair<std::string, Selection>> choose(Machine& machine, const Choice& choice,
                                                      const Globals& globals) {
  Selection gpus = choose_gpus(machine, choice, globals);
  Selection cpus = choose_cpus(machine, choice, globals);
  keep_only(machine, Kind::gpu, gpus);
  keep_only(machine, Kind::cpu, cpus);
  return {{"gpu", std::move(gpus)}, {"cpu", std::move(cpus)}};
}

}  // namespace zeus::cli
