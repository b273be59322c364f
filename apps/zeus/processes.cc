#include "zeus/processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "child.h"
#include "meter.h"
#include "options.h"
#include "output.h"
#include "report/processes.h"
#include "version.h"

namespace zeus::cli {
namespace {

using std::chrono::microseconds;

/// The longest that a driver takes to sample its processes: a shorter stretch may be told nothing.
constexpr std::chrono::seconds kStretch(1);

struct ProcessesOptions {
  Choice choice;
  Duration duration = std::chrono::seconds(10);
};

microseconds wall_clock() {
  return std::chrono::duration_cast<microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
}

std::string name_of(int pid) {
  std::ifstream in(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(in, name);
  return name;
}

/// The energy of a GPU in a window; of its module where nothing tells that of the GPU alone.
const report::DomainResult* energy_of(const report::WindowResult& window, const DeviceInfo& gpu) {
  const report::DomainResult* module = nullptr;
  for (const report::DomainResult& d : window.domains) {
    if (d.device_id != gpu.id) continue;
    if (d.domain.scope == Scope::gpu) return &d;
    if (d.domain.scope == Scope::module) module = &d;
  }
  return module;
}

/// One GPU whose processes are watched.
class Watched {
 public:
  explicit Watched(const Device& device) : source_(device.processes), mark_(wall_clock()) {
    out_.device = device.info;
    if (source_ == nullptr) {
      out_.why = "nothing here tells which processes use it";
      if (device.info.backend == "zeusd") out_.why += "; run zeus processes on its own node";
    }
  }

  /// A stretch is over, as it is judged.
  void take(const report::WindowResult& stretch) {
    if (!out_.why.empty()) return;
    const auto uses = source_->since(mark_);
    if (!uses) {
      out_.why = uses.error().detail;
      return;
    }
    for (const ProcessUse& u : *uses) {
      mark_ = std::max(mark_, u.at);
      name(u.pid);
    }
    // Those that only wait are told where that can be had.
    if (const auto resident = source_->resident()) {
      for (const int pid : *resident) {
        attribution_.see(pid);
        name(pid);
      }
    }
    const auto* energy = energy_of(stretch, out_.device);
    attribution_.add(energy == nullptr ? report::kNan : energy->energy.value, *uses);
  }

  report::GpuProcesses end(const report::WindowResult& window) {
    if (!out_.why.empty()) return out_;
    const auto* energy = energy_of(window, out_.device);
    if (energy == nullptr || !(energy->energy.value >= 0) || attribution_.stretches() == 0) {
      out_.why = "its energy could not be told";
      if (energy != nullptr && !energy->reason.empty()) out_.why += ": " + energy->reason;
      return out_;
    }
    out_.energy = energy->energy;
    out_.energy_uj = static_cast<std::uint64_t>(std::llround(energy->energy.value * 1e6));
    const auto parts = attribution_.parts(out_.energy_uj);
    for (const Attribution::Part& p : parts.processes) {
      out_.processes.push_back({p.pid, names_[p.pid], p.energy_uj});
    }
    out_.idle_uj = parts.idle_uj;
    out_.left_out = attribution_.left_out();
    return out_;
  }

 private:
  /// While it lives: later there is no name to be had.
  void name(int pid) {
    auto& known = names_[pid];
    if (known.empty()) known = name_of(pid);
  }

  ProcessSource* source_;
  microseconds mark_;
  Attribution attribution_;
  std::map<int, std::string> names_;
  report::GpuProcesses out_;
};

int write(const Globals& globals, std::optional<OutputFile> file, const report::Processes& out) {
  const std::string text =
      globals.json ? report::dump(report::to_json(out), true)
                   : report::to_text(out, file ? report::Style{} : globals.style(STDOUT_FILENO));
  if (!file) return write_all(STDOUT_FILENO, text) == 0 ? 0 : kFailed;
  Status written = file->write(text);
  if (written) written = file->commit();
  if (!written) throw UsageError(written.error().detail);
  return 0;
}

int processes(const Globals& globals, const ProcessesOptions& options) {
  if (options.duration < kStretch) {
    throw UsageError(
        "--duration must be at least 1s: a driver may sample its processes once in a second only");
  }
  std::optional<OutputFile> file;
  if (!globals.output.empty()) {
    auto opened = OutputFile::open(globals.output);
    if (!opened) throw UsageError(opened.error().detail);
    file.emplace(std::move(*opened));
  }
  const Signals signals;
  Machine machine = open_machine(globals);
  report::Processes out{.version = kVersion,
                        .host = host_of(globals, machine),
                        .selections = {},
                        .problems = {},
                        .gpus = {}};
  Choice choice = options.choice;
  choice.no_cpu = true;
  out.selections = choose(machine, choice, globals);
  const std::vector<Device> gpus = machine.devices;
  Meter meter(std::move(machine), {});
  out.problems = meter.problems();
  std::vector<Watched> watched(gpus.begin(), gpus.end());

  meter.begin("zeus.processes");
  Instant last = meter.begun();
  std::size_t stretches = 0;
  const auto stretch = [&] {
    meter.drain();
    const auto lap = meter.lap().since_last;
    for (Watched& w : watched) w.take(lap);
    last = Clock::steady().now();
    ++stretches;
    return true;
  };
  until_told(signals, options.duration, kStretch, stretch);
  // What is left is a stretch of its own if it is as long as one, or the only one.
  if (stretches == 0 || Clock::steady().now() - last >= kStretch * 9 / 10) stretch();
  const auto window = meter.end();
  out.seconds = window.seconds();
  for (Watched& w : watched) out.gpus.push_back(w.end(window));
  if (const int failed = write(globals, std::move(file), out); failed != 0) return failed;
  const bool some = std::any_of(out.gpus.begin(), out.gpus.end(),
                                [](const auto& gpu) { return gpu.why.empty(); });
  if (out.gpus.empty()) complain("there is no GPU, or none is chosen, as zeus env tells");
  if (!out.gpus.empty() && !some) complain("of no GPU here can the processes be told apart");
  return some ? 0 : kFailed;
}

}  // namespace

void add_processes(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb =
      app.add_subcommand("processes", "Divide the energy of GPUs among the processes on them");
  verb->footer(
      "Examples:\n  zeus processes --duration 30s\n"
      "  zeus processes --gpus 0 --json | jq '.gpus[0].processes'");
  const auto options = std::make_shared<ProcessesOptions>();
  verb->add_option("--gpus", options->choice.gpus,
                   "GPUs to watch: \"0,2\", a UUID or its beginning, a PCI address, all (default: "
                   "those that CUDA_VISIBLE_DEVICES or SLURM leave visible)")
      ->type_name("LIST");
  add_duration(verb, "--duration", options->duration,
               "Watch for so long, 1s or longer; Ctrl-C ends it sooner (default: 10s)");
  verbs.emplace_back(verb, [&globals, options] { return processes(globals, *options); });
}

}  // namespace zeus::cli
