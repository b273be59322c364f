#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "options.h"
#include "report/json.h"
#include "report/origin.h"
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

std::set<std::string> leases(const fs::path& journal) {
  std::error_code none;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(journal, none)) {
    if (entry.path().extension() == ".lease") names.insert(entry.path().stem());
  }
  return names;
}

/// "power_limit of GPU-5a69e30b" of the file GPU-5a69e30b+power_limit.lease.
std::string knob_of(const std::string& lease) {
  const auto plus = lease.rfind('+');
  if (plus == std::string::npos) return lease;
  return lease.substr(plus + 1) + " of " + lease.substr(0, plus);
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
  const auto before = leases(journal);
  const Machine machine = open_machine(globals);
  const std::vector<Problem> left =
      before.empty() ? std::vector<Problem>{} : restore_orphans(machine, journal);
  const auto after = leases(journal);
  std::vector<std::string> restored;
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(),
                      std::back_inserter(restored));
  const std::size_t kept = before.size() - restored.size();
  const std::size_t living = kept - std::min(kept, left.size());
  if (globals.json) {
    report::Json out = {{"schema", "zeus.restore/1"},
                        {"journal", journal.string()},
                        {"host", report::to_json(host_of(globals, machine))},
                        {"restored", restored.size()},
                        {"in_use", living},
                        {"problems", report::Json::array()}};
    for (const Problem& p : left) out["problems"].push_back(report::to_json(p));
    fmt::print("{}", report::dump(out, true));
  } else {
    fmt::print("{}", report::origin(host_of(globals, machine), globals.style(STDOUT_FILENO)));
    for (const std::string& lease : restored) {
      fmt::print("put back {}\n", report::printable(knob_of(lease)));
    }
    if (before.empty()) {
      fmt::print("nothing to put back: no lease in {}\n", report::printable(journal.string()));
    } else {
      fmt::print("{}: {} put back, {} in use by living processes, {} left\n",
                 report::printable(journal.string()), restored.size(), living, left.size());
    }
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
