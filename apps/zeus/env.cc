#include "report/env.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "options.h"
#include "output.h"
#include "version.h"

namespace zeus::cli {
namespace {

struct Need {
  std::string_view word;
  bool (*met)(const Machine& machine);
};

bool tells(const Machine& machine, DeviceInfo::Kind kind, std::optional<Scope> scope) {
  return std::any_of(machine.devices.begin(), machine.devices.end(), [&](const Device& d) {
    return !d.info.lost && d.info.kind == kind &&
           std::any_of(d.sensors.begin(), d.sensors.end(), [&](const Sensor& s) {
             const bool energetic =
                 s.info.quantity == Quantity::energy || s.info.quantity == Quantity::power;
             return energetic && (!scope || s.info.domain.scope == *scope);
           });
  });
}

constexpr Need kNeeds[] = {
    {"gpu", [](const Machine& m) { return tells(m, DeviceInfo::Kind::gpu, std::nullopt); }},
    {"cpu", [](const Machine& m) { return tells(m, DeviceInfo::Kind::cpu, Scope::package); }},
    {"dram", [](const Machine& m) { return tells(m, DeviceInfo::Kind::cpu, Scope::dram); }},
};

/// All that is known about why something is not there.
std::string reasons(const Machine& machine) {
  std::vector<std::string> out;
  for (const Problem& p : machine.problems) out.push_back(p.where + ": " + p.error.detail);
  return out.empty() ? "no such device was found" : fmt::format("{}", fmt::join(out, "; "));
}

std::vector<std::pair<std::string, std::string>> unmet(const Machine& machine,
                                                       std::string_view required) {
  std::vector<std::pair<std::string, std::string>> out;
  while (!required.empty()) {
    const auto comma = required.find(',');
    const std::string_view word = required.substr(0, comma);
    required.remove_prefix(comma == std::string_view::npos ? required.size() : comma + 1);
    const auto* need = std::find_if(std::begin(kNeeds), std::end(kNeeds),
                                    [word](const Need& n) { return n.word == word; });
    if (need == std::end(kNeeds)) {
      throw UsageError(fmt::format("cannot require \"{}\"; it can be any of gpu, cpu, dram", word));
    }
    if (!need->met(machine)) out.emplace_back(word, reasons(machine));
  }
  return out;
}

int env(const Globals& globals, const std::string& required) {
  std::optional<OutputFile> file;
  if (!globals.output.empty()) {
    auto opened = OutputFile::open(globals.output);
    if (!opened) throw UsageError(opened.error().detail);
    file.emplace(std::move(*opened));
  }
  (void)unmet(Machine{}, required);  // A wrong word is told before anything is opened.
  const Machine machine = open_machine(globals);
  report::Environment out{.version = kVersion,
                          .host = host_of(globals, machine),
                          .euid = geteuid(),
                          .devices = machine.devices,
                          .problems = machine.problems,
                          .selections = {{"gpu", visible_gpus(machine, environment)}},
                          .unmet = unmet(machine, required)};
  const std::string text =
      globals.json ? report::dump(report::to_json(out), true)
                   : report::to_text(out, file ? report::Style{} : globals.style(STDOUT_FILENO));
  if (file) {
    Status written = file->write(text);
    if (written) written = file->commit();
    if (!written) throw UsageError(written.error().detail);
  } else if (write_all(STDOUT_FILENO, text) != 0) {
    return kFailed;
  }
  if (out.unmet.empty()) return 0;
  for (const auto& [word, why] : out.unmet) {
    complain(fmt::format("{} is required and missing: {}", word, why));
  }
  return kFailed;
}

}  // namespace

void add_env(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb = app.add_subcommand("env", "Say what can be measured here, what not, and why");
  const auto required = std::make_shared<std::string>();
  verb->add_option("--require", *required, "Fail if one of these is missing: gpu,cpu,dram")
      ->type_name("WORDS");
  verb->footer(
      "Examples:\n"
      "  zeus env\n"
      "  zeus env --require gpu,cpu     exit status 1 if one of them cannot be measured\n"
      "  zeus env --json | jq '.devices[].model'");
  verbs.emplace_back(verb, [&globals, required] { return env(globals, *required); });
}

}  // namespace zeus::cli
