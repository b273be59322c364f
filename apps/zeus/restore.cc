#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "options.h"
#include "report/json.h"
#include "report/text.h"
#include "zeus/lease.h"

namespace zeus::cli {
namespace {

namespace fs = std::filesystem;

/// Where leases of this user keep their journals.
fs::path standard_journal() {
  if (geteuid() == 0) return "/run/zeus";
  if (const auto state = environment("XDG_STATE_HOME"); state && !state->empty()) {
    return fs::path(*state) / "zeus/journal";
  }
  return fs::path(environment("HOME").value_or("/")) / ".local/state/zeus/journal";
}

std::size_t leases(const fs::path& journal) {
  std::error_code none;
  std::size_t n = 0;
  for (const auto& entry : fs::directory_iterator(journal, none)) {
    if (entry.path().extension() == ".lease") ++n;
  }
  return n;
}

int restore(const Globals& globals, const std::string& folder) {
  const fs::path journal = folder.empty() ? standard_journal() : fs::path(folder);
  std::error_code error;
  if (!folder.empty() && !fs::is_directory(journal, error)) {
    throw UsageError(
        fmt::format("cannot read the journal {}: it is no folder; name another with "
                    "--journal",
                    folder));
  }
  const std::size_t before = leases(journal);
  const Machine machine = open_machine(globals);
  const std::vector<Problem> left =
      before == 0 ? std::vector<Problem>{} : restore_orphans(machine, journal);
  const std::size_t settled = before - std::min(before, leases(journal));
  const std::size_t living = before - settled - std::min(before - settled, left.size());
  if (globals.json) {
    report::Json out = {{"schema", "zeus.restore/1"},
                        {"journal", journal.string()},
                        {"host", report::to_json(host_of(globals, machine))},
                        {"restored", settled},
                        {"in_use", living},
                        {"problems", report::Json::array()}};
    for (const Problem& p : left) out["problems"].push_back(report::to_json(p));
    fmt::print("{}", report::dump(out, true));
  } else {
    fmt::print("{}", report::simulated(machine.simulation, globals.style(STDOUT_FILENO)));
    fmt::print("{}: {} put back, {} in use by living processes, {} left\n", journal.string(),
               settled, living, left.size());
    fmt::print("{}", report::to_text(left, globals.style(STDOUT_FILENO)));
  }
  return left.empty() ? 0 : kFailed;
}

}  // namespace

void add_restore(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb = app.add_subcommand("restore", "Put back knobs that dead processes left turned");
  const auto journal = std::make_shared<std::string>();
  verb->add_option("--journal", *journal,
                   "Folder of the journals (default: /run/zeus as root, else "
                   "$XDG_STATE_HOME/zeus/journal)")
      ->type_name("DIR");
  verb->footer("Examples:\n  zeus restore\n  zeus restore --journal /run/zeus");
  verbs.emplace_back(verb, [&globals, journal] { return restore(globals, *journal); });
}

}  // namespace zeus::cli
