// Checks how one GPU's energy and power can be read: how long a read takes, how often the sensors
// publish, and whether the energy counter sees all of the time. Reads only; no knob is turned.
//
//     gpu_check [--host ADDRESS] [--gpu GPU] [--load CMD] [--budget SECONDS] [--out FILE]
//
// Exit status: 0 done, 1 failed, 2 wrong usage, 3 no GPU.

#include <fmt/format.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <exception>
#include <fstream>

#include "base/library.h"
#include "gpu_check/outcome.h"

namespace {

using namespace zeus;  // NOLINT(google-build-using-namespace)
constexpr int kFailed = 1, kUsage = 2, kNoGpu = 3;

struct Options {
  std::string host = "local:", gpu = "0", load, out = "gpu-check.json";
  double budget_s = 210;
};

int complain(int status, const std::string& sentence) {
  fmt::print(stderr, "gpu_check: {}\n", sentence);
  return status;
}

const Device* first_gpu(const Machine& machine) {
  const auto gpu = [](const Device& d) { return d.info.kind == DeviceInfo::Kind::gpu; };
  const auto found = std::find_if(machine.devices.begin(), machine.devices.end(), gpu);
  return found == machine.devices.end() ? nullptr : &*found;
}

std::string why_none(const Machine& machine) {
  std::string text;
  for (const Problem& p : machine.problems) text += "; " + p.where + ": " + p.error.detail;
  return text;
}

// A simulated GPU has a load of its own, beside this program. CUDA may number GPUs in another order
// than their driver, but knows the same UUIDs.
std::string load_command(const Options& options, const Machine& machine, const Device& device) {
  if (!options.load.empty()) return options.load + " " + device.info.id;
  if (!machine.simulation) return {};
  return fmt::format("'{}' '{}' {}", (own_folder() / "gpu_load_sim").string(),
                     machine.simulation->session, device.info.index);
}

int run(const Options& options) {
  const auto address = Address::parse(options.host);
  if (!address) return complain(kUsage, address.error().detail);
  auto machine = open(*address);
  if (!machine) return complain(kFailed, machine.error().detail);
  if (first_gpu(*machine) == nullptr) {
    return complain(kNoGpu,
                    fmt::format("{} has no GPU to check{}", options.host, why_none(*machine)));
  }
  const auto chosen = named_devices(*machine, DeviceInfo::Kind::gpu, options.gpu);
  if (!chosen) return complain(kUsage, chosen.error().detail);
  if (chosen->ids.size() != 1) return complain(kUsage, "--gpu names one GPU; see gpu_check --help");
  const Device& device = *machine->find(chosen->ids.front());
  const std::string load = load_command(options, *machine, device);
  if (load.empty()) {
    return complain(kUsage, "a real GPU needs --load CMD; scripts/gpu-check finds one");
  }
  const auto outcome = check::check_gpu(device, load, options.budget_s);
  if (!outcome) return complain(kFailed, outcome.error().detail);

  std::ofstream file(options.out);
  file << check::to_json(*outcome, *machine, device).dump(2) << '\n';
  file.close();
  if (!file)
    return complain(kFailed, "cannot write " + options.out + "; name another file by --out");
  fmt::print("{}\nwritten: {}\n", check::to_text(*outcome, *machine, device), options.out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Checks how the energy and power of one GPU can be read. Turns no knob.",
               "gpu_check");
  app.add_option("--host", options.host, "the machine: local:, sim:NAME")->capture_default_str();
  app.add_option("--gpu", options.gpu, "index, UUID or PCI address")->capture_default_str();
  app.add_option("--load", options.load,
                 "a program that makes a GPU busy as bench/gpu_check/load.h says; the GPU's UUID "
                 "is added");
  app.add_option("--budget", options.budget_s, "seconds that the check may take")
      ->capture_default_str()
      ->check(CLI::Range(15.0, 3600.0));
  app.add_option("--out", options.out, "the JSON file to write")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  return run(options);
} catch (const std::exception& e) {
  return complain(kFailed, e.what());
}
