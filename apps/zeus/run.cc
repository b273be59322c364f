#include "options.h"
#include "runner.h"

namespace zeus::cli {
namespace {

int run(const Globals& globals, const RunOptions& options) {
  if (globals.command.empty()) {
    throw UsageError(
        "has nothing to run; the command goes behind --, as in zeus run -- python train.py");
  }
  check(globals, options);
  return Runner(globals, options).run();
}

}  // namespace

void add_run(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb = app.add_subcommand("run", "Measure the energy of a command");
  const auto options = std::make_shared<RunOptions>();
  add_run_options(verb, *options);
  verb->footer(
      "Examples:\n"
      "  zeus run -- python train.py\n"
      "  zeus run --gpus 0,1 --json -o run.json -- ./train\n"
      "  zeus run -r 5 --warmup 1 -- ./bench          mean, deviation, 95 % interval\n"
      "  zeus run -I 1000 --timeline power.csv -- ./train\n"
      "The exit status is the command's, 128+N if signal N killed it, 127 if there is no such\n"
      "command, 126 if it cannot be run, 2 if zeus was asked for something it cannot do.");
  verbs.emplace_back(verb, [&globals, options] { return run(globals, *options); });
}

}  // namespace zeus::cli
