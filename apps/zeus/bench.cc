#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cmath>

#include "bench_runs.h"

namespace zeus::cli {
namespace {

int bench(const Globals& globals, const BenchOptions& options) {
  if (options.commands.empty()) {
    throw UsageError(
        "has nothing to compare; name commands in quotes, as in zeus bench 'python a.py'");
  }
  if (options.runs == 0) throw UsageError("--runs must be at least 1");
  if (options.period < std::chrono::milliseconds(1)) {
    throw UsageError("--period must be at least 1ms: no sensor answers faster");
  }
  if (options.names.size() > options.commands.size()) {
    throw UsageError(fmt::format("--name is given {} times for {} commands; give it once a command",
                                 options.names.size(), options.commands.size()));
  }
  if (options.reference < 1 || options.reference > options.commands.size()) {
    throw UsageError(fmt::format("--reference {} is none of {} commands; the first is 1",
                                 options.reference, options.commands.size()));
  }
  if (options.phase && options.no_phase) {
    throw UsageError("--phase and --no-phase contradict each other; keep one of them");
  }
  if (options.shell == "none") {
    std::vector<std::string> all = options.commands;
    if (!options.prepare.empty()) all.push_back(options.prepare);
    for (const std::string& text : all) {
      if (const auto words = split_words(text); !words) throw UsageError(words.error().detail);
    }
  }
  return run_bench(globals, options);
}

solve::Order read_order(const std::string& text) {
  for (const auto order :
       {solve::Order::random, solve::Order::interleaved, solve::Order::sequential}) {
    if (text == to_string(order)) return order;
  }
  throw CLI::ValidationError(
      "--order", fmt::format("\"{}\" is none of random, interleaved, sequential", text));
}

double read_celsius(const std::string& text) {
  double out = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (ec != std::errc{} || end != text.data() + text.size() || !std::isfinite(out)) {
    throw CLI::ValidationError("--cool-to", fmt::format("\"{}\" is no temperature in degC", text));
  }
  return out;
}

/// An option that may be given again and again, one value each time.
CLI::Option* add_many(CLI::App* app, const std::string& name, std::vector<std::string>& target,
                      const std::string& help, const std::string& type) {
  return app->add_option(name, target, help)->type_name(type)->allow_extra_args(false);
}

void add_design(CLI::App* verb, BenchOptions& o) {
  add_number(verb, "-r,--runs", o.runs, "How often to run each command (default: 10)");
  add_number(verb, "-w,--warmup", o.warmup, "Runs of each before those (default: 1)");
  verb->add_option_function<std::string>(
          "--order", [&o](const std::string& text) { o.order = read_order(text); },
          "random (default: blocks that hold every command once), interleaved, sequential")
      ->type_name("NAME");
  verb->add_option_function<std::string>(
          "--seed",
          [&o](const std::string& text) {
            o.seed = static_cast<std::uint64_t>(
                whole_number("--seed", text, std::numeric_limits<std::int64_t>::max()));
            o.seeded = true;
          },
          "Of the random order; by default another each time")
      ->type_name("INT");
  add_number(verb, "--reference", o.reference, "The command to compare with (default: 1)");
  add_duration(verb, "--cooldown", o.cooldown, "Wait so long between runs");
  verb->add_option_function<std::string>(
          "--cool-to", [&o](const std::string& text) { o.cool_to = read_celsius(text); },
          "Wait until no GPU is hotter (default: until none is 2 degC hotter than at first)")
      ->type_name("CELSIUS");
  add_duration(verb, "--cool-limit", o.cool_limit, "The longest such wait (default: 60s)");
  verb->add_flag("--phase", o.phase, "Spread the starts over the sensors' update period (default)");
  verb->add_flag("--no-phase", o.no_phase, "Start each run as soon as it can");
}

}  // namespace

void add_bench(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb = app.add_subcommand("bench", "Compare the energy of commands, run many times");
  const auto options = std::make_shared<BenchOptions>();
  BenchOptions& o = *options;
  verb->add_option("commands", o.commands, "The commands, each in quotes")->type_name("COMMAND");
  add_choice(verb, o.choice);
  add_duration(verb, "--period", o.period, "How often to sample power (default: 100ms)");
  add_design(verb, o);
  add_many(verb, "--name", o.names, "Of the first command, the second ...", "TEXT");
  verb->add_option("--shell", o.shell, "What runs the commands (default: /bin/sh), or none")
      ->type_name("PATH");
  verb->add_option("--prepare", o.prepare, "Run this before each run")->type_name("COMMAND");
  verb->add_flag("--ignore-failure", o.ignore_failure, "Go on although a run failed");
  verb->add_flag("--show-output", o.show_output, "Show what commands print, on standard error");
  add_many(verb, "--fail-if", o.fail_if,
           "End with 3 if the runs show this: \"energy > 1.05x\", \"power > 300\"", "EXPR");
  add_many(verb, "--no-worse-than", o.no_worse_than,
           "End with 3 unless the runs show that it needs less than this: \"1.05x\"", "LIMIT");
  for (const auto& [name, target] :
       {std::pair{"--export-json", &o.export_json}, std::pair{"--export-csv", &o.export_csv},
        std::pair{"--export-markdown", &o.export_markdown}}) {
    verb->add_option(name, *target, "Also write a file")->type_name("FILE");
  }
  verb->footer(
      "Examples:\n"
      "  zeus bench 'python a.py' 'python b.py'\n"
      "  zeus bench -r 20 --fail-if 'energy > 1.05x' './old' './new'\n"
      "  zeus bench --no-worse-than 1.02x --export-json b.json './old' './new'\n"
      "The exit status is 0; 3 if a condition is violated; that of a command that failed; 1 if a\n"
      "condition could not be judged; 2 if zeus was asked for something it cannot do.");
  verbs.emplace_back(verb, [&globals, options] { return bench(globals, *options); });
}

}  // namespace zeus::cli
