#include <cstdlib>
#include <filesystem>

#include "fuzz/fuzz.h"
#include "options.h"
#include "support/tree.h"

// The configuration file of the command line, zeus.toml.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeus::fuzz::require;
  static zeus::test::Tree tree;
  static const bool here = [] {  // No file but ours.
    std::filesystem::current_path(tree.root());
    return ::setenv("XDG_CONFIG_HOME", tree.root().c_str(), 1) == 0;
  }();
  require(here);
  tree.write("zeus/zeus.toml", zeus::fuzz::text_of(data, size));

  CLI::App app;
  zeus::cli::Globals globals;
  zeus::Duration period{-1};
  int number = -1;
  app.add_option("--output", globals.output)->type_name("FILE");
  app.add_flag("--json", globals.json);
  auto* verb = app.add_subcommand("run");
  zeus::cli::Choice choice;
  zeus::cli::add_choice(verb, choice);
  zeus::cli::add_duration(verb, "--period", period, "");
  verb->add_option("--repeat", number)->type_name("INT")->check(CLI::Range(0, 100));
  app.parse("run");
  try {
    zeus::cli::apply_settings(app, globals);
  } catch (const zeus::cli::UsageError& e) {
    require(std::string_view(e.what()).find("zeus.toml") != std::string_view::npos);
    return 0;
  }
  const auto set = [&](const char* option) { return globals.sources.count(option) != 0; };
  require((period.count() >= 0) == set("period"));
  require((number >= 0) == set("repeat") && number <= 100);
  require(!globals.json || set("json"));
  require(globals.output.empty() || set("output"));
  return 0;
}
