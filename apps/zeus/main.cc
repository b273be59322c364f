#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "options.h"
#include "output.h"
#include "report/table.h"
#include "version.h"

namespace zeus::cli {
namespace {

int refuse(std::string_view sentence) {
  complain(sentence);
  return kUsage;
}

/// The verb that was given: of `zeus monitor power` that of power.
const CLI::App& last_of(const CLI::App& app) {
  const auto subs = app.get_subcommands();
  return subs.empty() ? app : last_of(*subs.front());
}

/// Its words: "zeus monitor power".
std::string words_of(const CLI::App& verb) {
  return (verb.get_parent() == nullptr ? "" : words_of(*verb.get_parent()) + " ") + verb.get_name();
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
  return names;
}

/// What is wrong where a verb or a word that must be there is not.
std::string missing(const CLI::App& app, const CLI::ParseError& e) {
  const CLI::App& verb = last_of(app);
  const std::string name = words_of(verb);
  const auto verbs = verbs_of(verb);
  if (verbs.empty()) return fmt::format("{}; {} --help shows how", e.what(), name);
  const auto rest = app.remaining(true);
  const std::string known = fmt::format("{}", fmt::join(verbs, ", "));
  if (rest.empty())
    return fmt::format("needs a verb, one of {}; {} --help tells more", known, name);
  return fmt::format("does not know \"{}\"; verbs are {}, and {} --help tells more", rest.front(),
                     known, name);
}

/// One sentence out of what CLI11 says.
std::string sentence(const CLI::App& app, const CLI::ParseError& e, const Globals& globals) {
  const std::string verb = words_of(last_of(app));
  const std::string what = e.what(), help = verb + " --help tells more";
  const std::string option = what.substr(0, what.find(':'));
  if (dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr) {
    const auto rest = app.remaining(true);
    const std::string word = rest.empty() ? what : rest.front();
    if (globals.command.empty() && !word.starts_with("-") &&
        (verb.ends_with("run") || verb.ends_with("record"))) {
      return fmt::format(
          "does not know what \"{}\" is; the command to run goes behind --, as in "
          "{} -- {}",
          word, verb, word);
    }
    return fmt::format("does not know \"{}\"; {} --help lists what there is", word, verb);
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&e) != nullptr) {
    if (what.ends_with("missing")) return fmt::format("{} needs a value; {}", option, help);
    if (what.find("At Most") != std::string::npos) {
      return fmt::format("{} is given more than once; keep one of them", option);
    }
    if (what.find("flag override") != std::string::npos) {
      return fmt::format("--{} takes no value; {}", what.substr(0, what.find(' ')), help);
    }
  }
  return fmt::format("{}; {}", what, help);
}

/// Help that fits 100 columns.
class Help final : public CLI::Formatter {
  std::string make_option_desc(const CLI::Option* option) const override {
    const auto lines = report::wrapped(option->get_description(), 100 - get_column_width());
    return fmt::format("{}", fmt::join(lines, "\n"));
  }
  std::string make_footer(const CLI::App* app) const override {
    const bool top = app->get_parent() == nullptr;
    return CLI::Formatter::make_footer(app) +
           (top ? "" : "Every verb takes --host, --json, -o, -v and --no-color: zeus --help.\n");
  }
};

/// What holds for the options of every verb.
void strict(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) {
      option->disable_flag_override();
    } else {
      option->check([](const std::string& value) -> std::string {
        return value.empty() ? "an empty value says nothing; leave the option out" : "";
      });
    }
  }
  for (CLI::App* sub : app.get_subcommands({})) strict(*sub);
}

void add_globals(CLI::App& app, Globals& g) {
  app.add_option(
         "--host", g.host,
         "Machine to measure: local:, sim:NAME, replay:FILE, zeusd:PATH, zeusd:HOST:PORT (default: "
         "this one, with the daemon that ZEUSD_SOCK_PATH or ZEUSD_HOST_PORT names)")
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
      "  zeus bench 'python a.py' './b'        which of two needs less energy\n"
      "  zeus record -o a.zeus -- ./train      keep every sample; zeus verify judges it again\n"
      "Options may also stand in ZEUS_OPTION (ZEUS_HOST, ZEUS_GPUS, ...) or in zeus.toml in this\n"
      "folder, ~/.config/zeus or /etc/zeus.");
  app.require_subcommand(1);
  app.fallthrough();
  add_globals(app, globals);
  app.formatter(std::make_shared<Help>());
  Verbs verbs;
  add_env(app, globals, verbs);
  add_run(app, globals, verbs);
  add_bench(app, globals, verbs);
  add_monitor(app, globals, verbs);
  add_processes(app, globals, verbs);
  add_record(app, globals, verbs);
  add_verify(app, globals, verbs);
  add_sim(app, globals, verbs);
  add_calibrate(app, globals, verbs);
  add_fleet(app, globals, verbs);
  add_restore(app, globals, verbs);
  add_serve_proxy(app, globals, verbs);
  strict(app);
  if (argc < 2) {
    (void)write_all(STDERR_FILENO, app.help());
    return kUsage;
  }

  std::vector<std::string> words(argv + 1, argv + argc);
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const bool has_command = dashes != words.end();
  if (has_command) globals.command.assign(dashes + 1, words.end());
  words.erase(dashes, words.end());
  std::reverse(words.begin(), words.end());  // As CLI11 wants them.
  try {
    app.parse(std::move(words));
    apply_settings(app, globals);
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help, --version
  } catch (const CLI::RequiredError& e) {
    return refuse(missing(app, e));
  } catch (const CLI::ParseError& e) {
    return refuse(sentence(app, e, globals));
  }
  const CLI::App& given = last_of(app);
  if (has_command && given.get_name() != "run" && given.get_name() != "record") {
    return refuse(fmt::format("{} takes nothing behind --", words_of(given)));
  }
  for (const auto& [verb, act] : verbs) {
    if (verb->parsed()) return act();
  }
  return kUsage;  // Not reached: one verb is required.
}

}  // namespace
}  // namespace zeus::cli

int main(int argc, char** argv) {
  try {
    return zeus::cli::run_main(argc, argv);
  } catch (const zeus::cli::UsageError& e) {
    return zeus::cli::refuse(e.what());
  } catch (const std::exception& e) {
    zeus::cli::complain(e.what());
    return zeus::cli::kFailed;
  }
}
