#pragma once

#include "report/run.h"

namespace zeus::report::test {

/// A run of fixed numbers: a GPU that was measured, one that was not, a package with its core.
inline Run sample_run() {
  const auto estimate = [](double value, double u, Flag flags, const char* method) {
    Estimate e;
    e.value = value;
    e.u_cmp = u;
    e.u_abs = has(flags, Flag::gain_unknown) ? u : 2 * u;
    e.low = value - 10 * u;
    e.high = value + 10 * u;
    e.flags = flags;
    e.method = method;
    e.quality = Quality::b;
    e.coverage = 1;
    e.budget.edges = u;
    return e;
  };
  Run run;
  run.version = "1.2.3";
  run.command = {"python", "train me.py"};
  run.host = {"sim:demo", "node1", "Linux 6.1", Simulation{"demo", "/tmp/demo", "plain"}};
  run.selections = {{"gpu", {{"GPU-a", "GPU-b"}, {}, "CUDA_VISIBLE_DEVICES=0,2", {}}},
                    {"cpu", {{"package-0"}, {}, "all CPUs", {}}}};
  DeviceInfo a, b, c;
  a.kind = b.kind = DeviceInfo::Kind::gpu;
  a.backend = b.backend = "nvml";
  a.model = b.model = "NVIDIA H200";
  a.id = "GPU-a";
  b.id = "GPU-b";
  b.index = 2;
  a.pci = "0000:41:00.0";
  a.facts = {{"driver", "550.54.15"}};
  c.kind = DeviceInfo::Kind::cpu;
  c.backend = "rapl";
  c.id = "package-0";
  run.devices = {a, b, c};
  run.problems = {{"rapl intel-rapl:1", {Errc::denied, 13, "cannot read it: run zeusd"}}};

  WindowResult w;
  w.name = "python train me.py";
  w.begin = Instant{} + std::chrono::seconds(100);
  w.end = w.begin + std::chrono::milliseconds(2500);
  w.wall = std::chrono::system_clock::time_point(std::chrono::microseconds(1'700'000'000'123'456));
  w.self_cost = std::chrono::microseconds(80);
  DomainResult package, core, gpu, dead;
  package.domain = {Scope::package, 0};
  package.in_total = true;
  package.sensor = "package";
  package.device_id = "package-0";
  package.backend = "rapl";
  package.energy = estimate(150.125, 0.05, Flag::gain_unknown, "counter");
  package.mean_power_w = 60.05;
  core = package;
  core.domain = {Scope::core, 0};
  core.parent = package.domain;
  core.in_total = false;
  core.sensor = "core";
  core.energy = estimate(75.5, 0.05, Flag::gain_unknown, "counter");
  core.mean_power_w = 30.2;
  gpu.domain = {Scope::gpu, 0};
  gpu.in_total = true;
  gpu.sensor = "energy";
  gpu.device_id = "GPU-a";
  gpu.model = "NVIDIA H200";
  gpu.backend = "nvml";
  gpu.energy = estimate(1000.0625, 1.5, Flag::short_window, "counter");
  gpu.mean_power_w = 400.025;
  gpu.peak_power_w = 512.25;
  dead = gpu;
  dead.domain = {Scope::gpu, 2};
  dead.device_id = "GPU-b";
  dead.device_index = 2;
  dead.energy = estimate(kNan, kNan, Flag::missing | Flag::stalled, "counter");
  dead.energy.refusal = Refusal::lost;
  dead.energy.quality = Quality::refused;
  dead.energy.coverage = kNan;
  dead.reason = "its counter did not move in all that time";
  dead.mean_power_w = dead.peak_power_w = kNan;
  w.domains = {package, core, gpu, dead};
  w.total = estimate(1150.1875, 1.5, Flag::missing | Flag::gain_unknown, "sum");
  w.total.high = std::numeric_limits<double>::infinity();
  w.missing = {"gpu:2 (its counter did not move in all that time)"};
  run.runs = {{w, {.code = 3, .signal = std::nullopt}}};
  run.overhead = {.cpu_s = 0.0125,
                  .period = std::chrono::milliseconds(100),
                  .effort = {.ticks = 26, .missed = 1, .busy = std::chrono::milliseconds(4)},
                  .samples_lost = 0};
  return run;
}

}  // namespace zeus::report::test
