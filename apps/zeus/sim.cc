#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "child.h"
#include "options.h"
#include "output.h"
#include "report/json.h"
#include "report/table.h"
#include "report/truth.h"
#include "sim/session.h"

namespace zeus::cli {
namespace {

using report::Json;
using report::Table;

void deliver(const Globals& globals, const std::string& text) {
  if (globals.output.empty()) {
    (void)write_all(STDOUT_FILENO, text);
    return;
  }
  auto file = OutputFile::open(globals.output);
  if (!file) throw UsageError(file.error().detail);
  Status written = file->write(text);
  if (written) written = file->commit();
  if (!written) throw UsageError(written.error().detail);
}

int list(const Globals& globals) {
  Table table({Table::Align::left, Table::Align::left});
  Json all = Json::array();
  for (const sim::BuiltIn& s : sim::list()) {
    table.row({s.name, s.description});
    all.push_back({{"name", s.name}, {"description", s.description}, {"file", s.file.string()}});
  }
  deliver(globals, globals.json ? report::dump(all, true) : table.text(""));
  return 0;
}

int run(const Globals& globals, const std::string& what) {
  if (globals.command.empty()) {
    throw UsageError(
        "has nothing to run; the command goes behind --, as in zeus sim run h100x8 -- "
        "nvidia-smi");
  }
  const Signals signals;
  auto session = sim::Session::create(what);
  if (!session) throw UsageError(session.error().detail);
  const sim::Session& machine = **session;
  complain(fmt::format("SIMULATED (scenario {}), session {}", machine.scenario().name,
                       machine.folder().string()));
  auto child = Child::prepare(globals.command, signals, [&]() -> std::optional<std::string> {
    const Status entered = sim::enter(machine);
    return entered ? std::nullopt : std::optional(entered.error().detail);
  });
  if (!child) throw UsageError(child.error().detail);
  if (const auto started = child->start(); !started) {
    complain(started.error().detail);
    return started.error().vendor;
  }
  return status_of(child->wait(signals, std::chrono::minutes(1), {}));
}

/// Joins the session of a report or of `--session`.
std::unique_ptr<sim::Session> join(const std::string& folder) {
  auto session = sim::Session::join(folder);
  if (!session) throw UsageError(session.error().detail);
  return std::move(*session);
}

/// What of a GPU a domain stands for; nothing where it is no GPU's.
std::optional<Scope> scope_of_gpu(const report::Claim& claim) {
  for (const Scope s : {Scope::gpu, Scope::module, Scope::memory}) {
    const std::string name = to_string(DomainId{s, 0, 0});
    if (name.substr(0, name.find(':')) == claim.scope) return s;
  }
  return std::nullopt;
}

/// The simulated device behind a domain of a report; nothing where there is none.
std::optional<std::size_t> device_of(const std::vector<sim::DeviceEntry>& all,
                                     const report::Claim& claim) {
  using Kind = sim::DeviceEntry::Kind;
  std::string package;  // The zone that a socket's other zones lie in.
  for (const sim::DeviceEntry& d : all) {
    if (d.kind == Kind::gpu && scope_of_gpu(claim) && d.uuid == claim.device_id) return d.device;
    if (d.kind == Kind::zone && d.name == "package-" + claim.unit) package = d.id;
  }
  for (const sim::DeviceEntry& d : all) {
    if (d.kind != Kind::zone) continue;
    if (claim.scope == "package"
            ? d.id == package && !package.empty()
            : d.name == claim.scope && (claim.scope == "psys" || d.id.starts_with(package + ":"))) {
      return d.device;
    }
  }
  return std::nullopt;
}

int truth_of_report(const Globals& globals, const std::string& path) {
  std::ifstream in(path);
  const Json report = Json::parse(in, nullptr, false);
  auto claims = report::read_claims(report);
  if (!claims) throw UsageError(fmt::format("cannot use {}: {}", path, claims.error().detail));
  const auto session = join(claims->session);
  const auto devices = session->devices();
  for (report::Claim& claim : claims->domains) {
    const auto device = device_of(devices, claim);
    if (!device) continue;
    const auto joules = session->energy_j(*device, scope_of_gpu(claim).value_or(Scope::gpu),
                                          claims->begin_ns, claims->end_ns);
    if (joules) claim.truth_j = *joules;
  }
  const report::Verdict verdict = report::compare(*claims);
  deliver(globals, globals.json ? report::dump(report::to_json(verdict), true)
                                : report::to_text(verdict, globals.style(STDOUT_FILENO)));
  return verdict.holds ? 0 : kFailed;
}

int truth_of_session(const Globals& globals, const std::string& folder, std::int64_t begin,
                     std::int64_t end) {
  const auto session = join(folder);
  Table table({Table::Align::left, Table::Align::right, Table::Align::left});
  Json all = Json::array();
  for (const sim::DeviceEntry& d : session->devices()) {
    const auto joules = session->energy_j(d.device, begin, end);
    if (!joules) throw UsageError(joules.error().detail);
    table.row({d.id, fmt::format("{:.6f} J", *joules), d.name});
    all.push_back({{"id", d.id},
                   {"uuid", d.uuid.empty() ? Json(nullptr) : Json(d.uuid)},
                   {"name", d.name},
                   {"energy_j", *joules}});
  }
  const std::string scenario = session->scenario().name;
  const Json out = {{"schema", "zeus.truth/1"},
                    {"scenario", scenario},
                    {"begin_monotonic_ns", begin},
                    {"end_monotonic_ns", end},
                    {"devices", all}};
  deliver(globals, globals.json ? report::dump(out, true)
                                : report::simulated(Simulation{scenario, folder, ""},
                                                    globals.style(STDOUT_FILENO)) +
                                      table.text());
  return 0;
}

struct TruthOptions {
  std::string report, session;
  std::int64_t begin = -1, end = -1;
};

int truth(const Globals& globals, const TruthOptions& options) {
  if (options.report.empty() == options.session.empty()) {
    throw UsageError("needs a report, or --session DIR with --begin and --end, and not both");
  }
  if (!options.report.empty()) return truth_of_report(globals, options.report);
  if (options.begin < 0 || options.end < options.begin) {
    throw UsageError(
        "--session needs --begin and --end in nanoseconds of the monotonic clock, the "
        "end not before the begin");
  }
  return truth_of_session(globals, options.session, options.begin, options.end);
}

}  // namespace

void add_sim(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb = app.add_subcommand("sim", "Simulated machines: list them, run on them, their truth");
  verb->require_subcommand(1);
  verb->footer(
      "Examples:\n"
      "  zeus sim list\n"
      "  zeus sim run h100x8 -- python train.py     any NVML or powercap client sees the machine\n"
      "  zeus --host sim:square run -- sleep 5      measure on one");
  auto* all = verb->add_subcommand("list", "The machines that come with Zeus");
  all->footer("Examples:\n  zeus sim list\n  zeus sim list --json | jq -r '.[].name'");
  verbs.emplace_back(all, [&globals] { return list(globals); });

  auto* runs = verb->add_subcommand("run", "Run a command that sees a simulated machine");
  const auto what = std::make_shared<std::string>();
  runs->add_option("scenario", *what, "A name, a file, or the folder of a running session")
      ->type_name("")
      ->required();
  runs->footer(
      "Examples:\n  zeus sim run h100x8 -- python train.py\n"
      "  zeus sim run ./mine.toml -- zeus env");
  verbs.emplace_back(runs, [&globals, what] { return run(globals, *what); });

  auto* exact = verb->add_subcommand("truth", "The exact energy beside what was measured");
  const auto options = std::make_shared<TruthOptions>();
  exact->add_option("report", options->report, "What zeus run --json -o FILE wrote")->type_name("");
  exact->add_option("--session", options->session, "Folder of a session")->type_name("DIR");
  add_number(exact, "--begin", options->begin, "Monotonic nanoseconds");
  add_number(exact, "--end", options->end, "Monotonic nanoseconds");
  exact->footer(
      "Examples:\n"
      "  zeus --host sim:square run --json -o run.json -- sleep 5\n"
      "  zeus sim truth run.json       exit status 1 if a value is out of its bound or off by more "
      "than 4 u");
  verbs.emplace_back(exact, [&globals, options] { return truth(globals, *options); });
}

}  // namespace zeus::cli
