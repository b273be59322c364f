#include "report/processes.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/origin.h"
#include "report/table.h"

namespace zeus::report {
namespace {

double share(std::uint64_t part, const GpuProcesses& gpu) {
  return gpu.energy_uj == 0 ? 0 : static_cast<double>(part) / static_cast<double>(gpu.energy_uj);
}

/// The greatest part first, as people look for it.
std::vector<GpuProcesses::Process> sorted(std::vector<GpuProcesses::Process> processes) {
  std::stable_sort(processes.begin(), processes.end(),
                   [](const auto& a, const auto& b) { return a.energy_uj > b.energy_uj; });
  return processes;
}

std::string gpu_text(const GpuProcesses& gpu, double seconds, Style style) {
  const std::string title = fmt::format("GPU {} {}", gpu.device.index, printable(gpu.device.model));
  if (!gpu.why.empty()) return fmt::format("{}: unavailable: {}\n", bold(title, style), gpu.why);
  DomainResult whole;
  whole.energy = gpu.energy;
  std::string out =
      fmt::format("{}: {} in {:.1f} s\n", bold(title, style), energy_text(whole), seconds);
  Table table({Table::Align::right, Table::Align::left, Table::Align::right, Table::Align::right});
  const auto row = [&](std::string pid, std::string name, std::uint64_t energy_uj) {
    table.row({std::move(pid), std::move(name),
               fmt::format("{:.3f} J", static_cast<double>(energy_uj) * 1e-6),
               fmt::format("{:.1f} %", 100 * share(energy_uj, gpu))});
  };
  for (const auto& p : sorted(gpu.processes)) {
    row(std::to_string(p.pid), p.name.empty() ? "?" : printable(p.name), p.energy_uj);
  }
  row("", "idle", gpu.idle_uj);
  out += table.text();
  if (gpu.left_out > 0) {
    out += fmt::format(
        "  {} stretches are divided as the others were: their own energy could not "
        "be told\n",
        gpu.left_out);
  }
  return out;
}

Json gpu_json(const GpuProcesses& gpu) {
  Json out = {{"device_id", gpu.device.id},
              {"device_index", gpu.device.index},
              {"model", gpu.device.model}};
  if (!gpu.why.empty()) {
    out["unavailable"] = gpu.why;
    return out;
  }
  out["energy"] = to_json(gpu.energy);
  out["attribution"] = kAttribution;
  out["energy_uj"] = gpu.energy_uj;
  out["idle_uj"] = gpu.idle_uj;
  out["stretches_left_out"] = gpu.left_out;
  out["processes"] = Json::array();
  for (const auto& p : sorted(gpu.processes)) {
    out["processes"].push_back({{"pid", p.pid},
                                {"name", p.name.empty() ? Json(nullptr) : Json(p.name)},
                                {"energy_uj", p.energy_uj},
                                {"share", share(p.energy_uj, gpu)}});
  }
  return out;
}

}  // namespace

std::string to_text(const Processes& p, Style style) {
  std::string out = origin(p.host, style);
  std::vector<DeviceInfo> devices;
  for (const auto& gpu : p.gpus) devices.push_back(gpu.device);
  for (const auto& [kind, s] : p.selections) {
    if (kind == "gpu") out += to_text("GPUs", s, devices);
  }
  out += fmt::format("joules of processes are a {}\n", kAttribution);
  for (const auto& gpu : p.gpus) out += gpu_text(gpu, p.seconds, style);
  return out + to_text(p.problems, style);
}

Json to_json(const Processes& p) {
  Json out = {{"schema", "zeus.processes/1"}, {"zeus", p.version}, {"host", to_json(p.host)}};
  out["selection"] = Json::object();
  for (const auto& [kind, s] : p.selections) out["selection"][kind] = to_json(s);
  out["problems"] = Json::array();
  for (const Problem& problem : p.problems) out["problems"].push_back(to_json(problem));
  out["attribution"] = kAttribution;
  out["duration_s"] = p.seconds;
  out["gpus"] = Json::array();
  for (const auto& gpu : p.gpus) out["gpus"].push_back(gpu_json(gpu));
  return out;
}

}  // namespace zeus::report
