#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "options.h"
#include "version.h"

namespace zeus::cli {
namespace {

int complain(std::string_view sentence) {
  fmt::print(stderr, "zeus: {}\n", sentence);
  return kUsage;
}

/// The words of the verb that was given: "zeus monitor power".
std::string verb_of(const CLI::App& app) {
  const auto subs = app.get_subcommands();
  return app.get_name() + (subs.empty() ? "" : " " + verb_of(*subs.front()));
}

/// One sentence out of what CLI11 says.
std::string sentence(const CLI::App& app, const CLI::ParseError& e, const Globals& globals) {
  const std::string verb = verb_of(app);
  if (const auto* extras = dynamic_cast<const CLI::ExtrasError*>(&e)) {
    (void)extras;
    const auto rest = app.remaining(true);
    const std::string what = rest.empty() ? e.what() : rest.front();
    if (globals.command.empty() && !what.starts_with("-") && verb.ends_with("run")) {
      return fmt::format(
          "does not know what \"{}\" is; the command to run goes behind --, as in "
          "{} -- {}",
          what, verb, what);
    }
    return fmt::format("does not know \"{}\"; {} --help lists what there is", what, verb);
  }
  return fmt::format("{}; {} --help tells more", e.what(), verb);
}

void add_globals(CLI::App& app, Globals& g) {
  app.add_option("--host", g.host, "Machine to measure: local:, sim:NAME, replay:FILE, zeusd:PATH")
      ->type_name("ADDRESS");
  app.add_flag("--json", g.json, "Print JSON");
  app.add_option("-o,--output", g.output, "Write the report to a file")->type_name("FILE");
  app.add_flag("-v,--verbose", g.verbose, "Say more: bounds, every flag");
  app.add_flag("--no-color", g.no_color, "No colour (also: NO_COLOR, or not a terminal)");
  app.set_version_flag("--version", fmt::format("zeus {}", kVersion));
}

int run_main(int argc, char** argv) {
  Globals globals;
  CLI::App app("Measures the energy of programs: GPUs, CPUs, DRAM.", "zeus");
  app.footer(
      "Examples:\n"
      "  zeus env                              what can be measured here, and what not, and why\n"
      "  zeus run -- python train.py           energy of a command\n"
      "  zeus --host sim:h100x8 run -- true    the same on a simulated machine\n"
      "Options may also stand in ZEUS_OPTION (ZEUS_HOST, ZEUS_GPUS, ...) or in zeus.toml in this\n"
      "folder, ~/.config/zeus or /etc/zeus.");
  app.require_subcommand(1);
  app.fallthrough();
  add_globals(app, globals);
  Verbs verbs;
  add_env(app, globals, verbs);
  add_run(app, globals, verbs);
  add_monitor(app, globals, verbs);
  add_sim(app, globals, verbs);
  add_restore(app, globals, verbs);

  std::vector<std::string> words(argv + 1, argv + argc);
  if (const auto dashes = std::find(words.begin(), words.end(), "--"); dashes != words.end()) {
    globals.command.assign(dashes + 1, words.end());
    words.erase(dashes, words.end());
  }
  std::reverse(words.begin(), words.end());  // As CLI11 wants them.
  try {
    app.parse(std::move(words));
    apply_settings(app, globals);
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help, --version
  } catch (const CLI::RequiredError&) {
    return complain(fmt::format("needs a verb; {} --help lists them", verb_of(app)));
  } catch (const CLI::ParseError& e) {
    return complain(sentence(app, e, globals));
  }
  for (const auto& [verb, act] : verbs) {
    if (verb->parsed()) return act();
  }
  return complain("needs a verb; zeus --help lists them");
}

}  // namespace
}  // namespace zeus::cli

int main(int argc, char** argv) {
  try {
    return zeus::cli::run_main(argc, argv);
  } catch (const zeus::cli::UsageError& e) {
    return zeus::cli::complain(e.what());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "zeus: %s\n", e.what());
    return zeus::cli::kFailed;
  }
}
