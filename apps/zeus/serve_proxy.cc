#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "options.h"

// The proxy is part of the Python package; this runs it in the interpreter that has it.

namespace zeus::cli {
namespace {

constexpr const char* kStart =
    "import sys\n"
    "try:\n"
    "    from zeus.serving.proxy.__main__ import main\n"
    "except ImportError as error:\n"
    "    sys.exit(f'zeus: cannot start the proxy: {sys.executable} has no zeus.serving ({error}); "
    "install zeus-cpp there, or name another interpreter with --python')\n"
    "sys.exit(main(sys.argv[1:]))\n";

struct Options {
  std::string python = "python3", upstream;
  std::vector<std::pair<std::string, std::string>> passed;  ///< Options of the proxy itself.
};

int serve_proxy(const Globals& globals, const Options& options) {
  if (!globals.host.empty()) ::setenv("ZEUS_HOST", globals.host.c_str(), 1);
  std::vector<std::string> words = {options.python, "-c", kStart, "--upstream", options.upstream};
  for (const auto& [name, value] : options.passed) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  throw UsageError(fmt::format("cannot run {}: {}; name a Python with zeus-cpp by --python",
                               options.python, std::generic_category().message(errno)));
}

}  // namespace

void add_serve_proxy(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb = app.add_subcommand(
      "serve-proxy", "Pass requests to an OpenAI-style server and add joules to its answers");
  const auto options = std::make_shared<Options>();
  verb->add_option("--upstream", options->upstream, "The server, without /v1")
      ->type_name("URL")
      ->required();
  options->passed = {{"--listen", {}}, {"--gpu-indices", {}}, {"--cpu-indices", {}}};
  const std::vector<std::pair<const char*, const char*>> helps = {
      {"HOST:PORT", "Where to listen (default 127.0.0.1:8080)"},
      {"LIST", "GPUs of the server: 0,1 (default all)"},
      {"LIST", "Processors to count with it: 0,1 (default none)"}};
  for (std::size_t i = 0; i < helps.size(); ++i) {
    verb->add_option(options->passed[i].first, options->passed[i].second, helps[i].second)
        ->type_name(helps[i].first);
  }
  verb->add_option("--python", options->python, "A Python that has zeus-cpp (default python3)")
      ->type_name("PROGRAM");
  verb->footer(
      "Examples:\n  zeus serve-proxy --upstream http://127.0.0.1:8000\n"
      "  curl http://127.0.0.1:8080/metrics");
  verbs.emplace_back(verb, [&globals, options] { return serve_proxy(globals, *options); });
}

}  // namespace zeus::cli
