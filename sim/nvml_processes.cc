// libnvidia-ml.so.1 of a simulated machine: the processes on its GPUs. They do what the scenario
// says, as long as the session lives.

#include <time.h>

#include <algorithm>

#include "sim/nvml_call.h"

namespace zeus::sim {
namespace {

constexpr unsigned long long kPeriodUs = 200'000;  // Real ones sample every 1/6 to 1 s.
constexpr unsigned long long kRemembered = 20;     // Periods.

unsigned long long wall_us() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<unsigned long long>(t.tv_sec * 1'000'000LL + t.tv_nsec / 1000);
}

// Asked for its length, or for so many entries as there is room.
template <class T>
abi::Return give_list(unsigned* count, T* out, unsigned n, auto&& entry) {
  if (count == nullptr) return abi::kInvalidArgument;
  const unsigned room = *count;
  *count = n;
  if (n > 0 && (room < n || out == nullptr)) return abi::kInsufficientSize;
  for (unsigned i = 0; i < n; ++i) out[i] = entry(i);
  return abi::kSuccess;
}

// A sample for each process that ran, at the end of each period.
abi::Return utilization(const Ref& r, unsigned* count, abi::ProcessUtilization* out,
                        unsigned long long after) {
  if (!r.gpu.mig.empty()) return abi::kNotSupported;
  const unsigned long long last = wall_us() / kPeriodUs;
  const unsigned long long first = std::max(after / kPeriodUs + 1, last - kRemembered + 1);
  const auto& all = r.gpu.processes;
  const auto runs = [](const GpuProcess& p) { return p.sm > 0; };
  const auto running = static_cast<unsigned>(std::count_if(all.begin(), all.end(), runs));
  if (first > last || running == 0) return abi::kNotFound;
  auto at = all.begin();
  return give_list(count, out, static_cast<unsigned>(last - first + 1) * running, [&](unsigned i) {
    if (i % running == 0) at = all.begin();
    at = std::find_if(at, all.end(), runs);
    const GpuProcess& p = *at++;
    return abi::ProcessUtilization{p.pid, (first + i / running) * kPeriodUs, p.sm, 0, 0, 0};
  });
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

abi::GetProcesses nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3;
abi::GetProcessUtilization nvmlDeviceGetProcessUtilization;

abi::Return nvmlDeviceGetComputeRunningProcesses_v3(abi::Device d, unsigned* count,
                                                    abi::ProcessInfo* out) {
  return on_device(
      call("nvmlDeviceGetComputeRunningProcesses_v3"), d,
      [&](const Ref& r, const Verdict&) {
        constexpr unsigned kNone = ~0U;  // No MIG instance.
        return give_list(
            count, out, static_cast<unsigned>(r.gpu.processes.size()), [&](unsigned i) {
              return abi::ProcessInfo{r.gpu.processes[i].pid, 1ULL << 30, kNone, kNone};
            });
      },
      true);
}
abi::Return nvmlDeviceGetGraphicsRunningProcesses_v3(abi::Device d, unsigned* count,
                                                     abi::ProcessInfo*) {
  return on_device(
      call("nvmlDeviceGetGraphicsRunningProcesses_v3"), d,
      [&](const Ref&, const Verdict&) { return give(count, 0U); }, true);
}
abi::Return nvmlDeviceGetProcessUtilization(abi::Device d, abi::ProcessUtilization* out,
                                            unsigned* count, unsigned long long after_us) {
  return on_device(call("nvmlDeviceGetProcessUtilization"), d, [&](const Ref& r, const Verdict&) {
    return utilization(r, count, out, after_us);
  });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace zeus::sim
