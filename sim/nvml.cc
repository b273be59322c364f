// libnvidia-ml.so.1 of a simulated machine. Its session is the folder that it lies in. Built twice:
// with ZEUS_SIM_OLD it lacks the symbols of newer drivers. Reading allocates nothing.

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "backends/nvml/abi.h"
#include "sim/machine.h"

namespace abi = zeus::nvml::abi;
namespace sim = zeus::sim;

namespace {

constexpr std::size_t kMaxGpus = 256, kMaxMig = 8;
// Only their addresses matter.
char handles[kMaxGpus];
char mig_handles[kMaxGpus * kMaxMig];

char session[PATH_MAX];
// Loaded by the first nvmlInit and kept: a reader may be inside it when the last user leaves.
std::atomic<sim::Machine*> machine{nullptr};
// Whose session it is: pid << 32 | references. A forked child finds another's.
std::atomic<std::uint64_t> users{0};

// The folder above the one that this library lies in.
void find_session() {
  Dl_info info{};
  char path[PATH_MAX];
  if (dladdr(&session, &info) == 0 || realpath(info.dli_fname, path) == nullptr) return;
  for (int level = 0; level < 2; ++level) {
    char* const slash = std::strrchr(path, '/');
    if (slash == nullptr) return;
    *slash = '\0';
  }
  std::strcpy(session, path);
}

pthread_mutex_t init_mutex = PTHREAD_MUTEX_INITIALIZER;

// Runs when the library is loaded.
const bool prepared = [] {
  find_session();
  pthread_atfork([] { pthread_mutex_lock(&init_mutex); }, [] { pthread_mutex_unlock(&init_mutex); },
                 [] { pthread_mutex_unlock(&init_mutex); });
  return true;
}();

std::uint64_t mine() { return static_cast<std::uint64_t>(getpid()) << 32; }

sim::Machine* current() {
  const std::uint64_t u = users.load(std::memory_order_acquire);
  return (u & ~0xffffffffULL) == mine() && (u & 0xffffffff) != 0 ? machine.load() : nullptr;
}

sim::Machine* load() {
  const std::filesystem::path folder = session;
  auto scenario = sim::read_scenario(folder / "scenario.toml");
  if (!scenario || !scenario->nvml) return nullptr;
  auto state = sim::State::open(folder / "state", *scenario);
  if (!state) return nullptr;
  return new sim::Machine(*std::move(scenario), *std::move(state));
}

void spin(sim::Ns latency) {
  if (latency <= 0) return;
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  const sim::Ns end = t.tv_sec * 1'000'000'000 + t.tv_nsec + latency;
  do {
    clock_gettime(CLOCK_MONOTONIC, &t);
  } while (t.tv_sec * 1'000'000'000 + t.tv_nsec < end);
}

abi::Return init(std::size_t call) {
  pthread_mutex_lock(&init_mutex);
  abi::Return r = abi::kSuccess;
  if (machine.load() == nullptr) machine = load();
  if (machine.load() == nullptr) {
    r = abi::kDriverNotLoaded;
  } else if (r = machine.load()->consult(call, sim::Fault::Target::gpu, -1).code; r == 0) {
    const std::uint64_t u = users.load();
    users.store((u & ~0xffffffffULL) == mine() ? u + 1 : mine() + 1, std::memory_order_release);
  }
  pthread_mutex_unlock(&init_mutex);
  return r;
}

// One GPU or MIG instance of a live session.
struct Ref {
  sim::Machine& m;
  std::size_t index;
  int mig;  // -1: the GPU itself
  const sim::Gpu& gpu;
  sim::Ns now;
};

template <class F>
abi::Return on_system(std::size_t call, F&& f) {
  sim::Machine* const m = current();
  if (m == nullptr) return abi::kUninitialized;
  const sim::Verdict v = m->consult(call, sim::Fault::Target::gpu, -1);
  return v.code != 0 ? v.code : f(*m, v);
}

// `f` sees the GPU that the handle means; MIG instances only where the function knows them.
template <class F>
abi::Return on_device(std::size_t call, abi::Device device, F&& f, bool mig_too = false) {
  sim::Machine* const m = current();
  if (m == nullptr) return abi::kUninitialized;
  const auto* const p = reinterpret_cast<const char*>(device);
  const std::size_t gpus = m->scenario().gpus.size();
  std::size_t index = gpus;
  int mig = -1;
  if (p >= handles && p < handles + gpus) {
    index = static_cast<std::size_t>(p - handles);
  } else if (p >= mig_handles && p < mig_handles + gpus * kMaxMig) {
    index = static_cast<std::size_t>(p - mig_handles) / kMaxMig;
    mig = static_cast<int>(static_cast<std::size_t>(p - mig_handles) % kMaxMig);
  }
  if (index == gpus) return abi::kInvalidArgument;
  const sim::Gpu& gpu = m->scenario().gpus[index];
  if (mig >= 0 && static_cast<std::size_t>(mig) >= gpu.mig.size()) return abi::kInvalidArgument;
  spin(m->scenario().nvml->latency);
  const sim::Verdict v = m->consult(call, sim::Fault::Target::gpu, static_cast<int>(index));
  if (v.code != 0) return v.code;
  if (mig >= 0 && !mig_too) return abi::kNotSupported;
  return f(Ref{*m, index, mig, gpu, m->state().now()}, v);
}

abi::Return put(const std::string& text, char* out, unsigned length) {
  if (out == nullptr) return abi::kInvalidArgument;
  if (text.size() >= length) return abi::kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return abi::kSuccess;
}

template <class T>
abi::Return give(T* out, T value) {
  if (out == nullptr) return abi::kInvalidArgument;
  *out = value;
  return abi::kSuccess;
}

abi::Device handle(std::size_t index) { return reinterpret_cast<abi::Device>(&handles[index]); }

unsigned milliwatts(double watts) { return static_cast<unsigned>(std::lround(watts * 1e3)); }

// Sensor values in mW or mJ; a fault may put another number in their place.
abi::Return power(const Ref& r, const sim::Verdict& v, const std::optional<sim::PowerSensor>& s,
                  unsigned& out) {
  if (!s) return abi::kNotSupported;
  out = v.value ? static_cast<unsigned>(*v.value)
                : milliwatts(std::max(0.0, s->read(r.m.truth(r.index), r.now)));
  return abi::kSuccess;
}

abi::Return energy(const Ref& r, const sim::Verdict& v, const std::optional<sim::Counter>& c,
                   unsigned long long& out) {
  if (!c) return abi::kNotSupported;
  out = v.value ? *v.value : r.m.gpu_counter(r.index, *c, r.now);
  return abi::kSuccess;
}

[[maybe_unused]] void serve(const Ref& r, abi::FieldValue& f) {
  const auto index = static_cast<int>(r.index);
  const bool is_energy = f.field == abi::kFieldTotalEnergy || f.field == abi::kFieldEnergy;
  const bool is_power = f.field == abi::kFieldPowerAverage || f.field == abi::kFieldPowerInstant;
  const unsigned scope = r.m.scenario().nvml->scopes ? f.scope : abi::kScopeGpu;
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  f.timestamp = wall.tv_sec * 1'000'000LL + wall.tv_nsec / 1000;
  f.latency = 0;
  f.value = {};
  f.type = abi::kUnsigned;
  f.result = abi::kNotSupported;
  if (is_energy) {
    const sim::Verdict v = r.m.consult(sim::call("field:energy"), sim::Fault::Target::gpu, index);
    f.type = abi::kUnsignedLongLong;
    const bool module = f.field == abi::kFieldEnergy && scope == abi::kScopeModule;
    if (!module && scope != abi::kScopeGpu) return;
    f.result = v.code != 0 ? v.code
                           : energy(r, v, module ? r.gpu.module_energy : r.gpu.energy, f.value.u64);
  } else if (is_power) {
    const sim::Verdict v = r.m.consult(sim::call("field:power"), sim::Fault::Target::gpu, index);
    const bool average = f.field == abi::kFieldPowerAverage;
    if (v.code != 0) {
      f.result = v.code;
    } else if (scope == abi::kScopeGpu) {
      f.result = power(r, v, average ? r.gpu.power_average : r.gpu.power_instant, f.value.u32);
    } else if (scope == abi::kScopeModule) {
      f.result = power(r, v, r.gpu.module_power, f.value.u32);
    } else if (scope == abi::kScopeMemory && average) {
      f.result = power(r, v, r.gpu.memory_power, f.value.u32);
    }
  } else if (f.field >= 187 && f.field <= 192 && scope == abi::kScopeGpu && r.gpu.limit) {
    const double set = r.m.limit_watts(r.index);  // 187 min, 188 max, 189 default, 190 and 192 set.
    f.value.u32 = milliwatts(f.field == 187   ? r.gpu.limit->min
                             : f.field == 188 ? r.gpu.limit->max
                             : f.field == 189 ? r.gpu.limit->standard
                                              : set);
    f.result = abi::kSuccess;
  }
}

// A list that is asked for its length first.
abi::Return list(unsigned* count, unsigned* out, unsigned n, auto&& entry) {
  if (count == nullptr) return abi::kInvalidArgument;
  const unsigned room = *count;
  *count = n;
  if (room < n || out == nullptr) return abi::kInsufficientSize;
  for (unsigned i = 0; i < n; ++i) out[i] = entry(i);
  return abi::kSuccess;
}

abi::Return control(const sim::Machine& m) {
  switch (m.scenario().nvml->control) {
    case sim::Nvml::Control::everyone: return abi::kSuccess;
    case sim::Nvml::Control::nobody: return abi::kNoPermission;
    case sim::Nvml::Control::root: break;
  }
  return geteuid() == 0 ? abi::kSuccess : abi::kNoPermission;
}

unsigned clock_of(const Ref& r, abi::ClockType type) {
  const sim::DeviceState& d = r.m.state().device(r.index);
  const bool memory = type == abi::kClockMemory;
  const std::uint64_t lock = (memory ? d.memory_lock : d.sm_lock).load();
  const auto low = static_cast<unsigned>(lock >> 32), high = static_cast<unsigned>(lock);
  if (memory) return lock != 0 ? high : r.gpu.memory_clocks.front();
  const double wanted = r.m.wanted_watts(r.index, r.now);
  double mhz = r.m.load(r.index, r.now) > 0 ? r.gpu.sm_clocks.high : r.gpu.sm_clocks.low;
  if (wanted > r.m.limit_watts(r.index)) mhz *= r.m.limit_watts(r.index) / wanted;
  const auto running = std::max(r.gpu.sm_clocks.low, static_cast<unsigned>(mhz));
  return lock != 0 ? std::clamp(running, low, high) : running;
}

abi::Return lock_clocks(const Ref& r, std::atomic<std::uint64_t> sim::DeviceState::*lock,
                        unsigned low, unsigned high) {
  if (const abi::Return e = control(r.m); e != abi::kSuccess) return e;
  if (low > high) return abi::kInvalidArgument;
  (r.m.state().device(r.index).*lock).store(std::uint64_t{low} << 32 | high);
  return abi::kSuccess;
}

abi::Return throttle_reasons(const Ref& r, const sim::Verdict& v, unsigned long long* out) {
  constexpr unsigned long long kIdle = 1, kPowerCap = 4;
  const bool capped = r.m.wanted_watts(r.index, r.now) > r.m.limit_watts(r.index);
  const bool idle = r.m.load(r.index, r.now) <= 0;
  return give(out, v.value.value_or(capped ? kPowerCap : idle ? kIdle : 0));
}

abi::Return temperature(const Ref& r, const sim::Verdict& v, int sensor, unsigned& out) {
  if (sensor != abi::kTemperatureGpu) return abi::kInvalidArgument;
  out = v.value ? static_cast<unsigned>(*v.value)
                : r.gpu.temperature + static_cast<unsigned>(40 * r.m.load(r.index, r.now));
  return abi::kSuccess;
}

abi::Return find(std::size_t call, const char* text, abi::Device* device, auto&& matches) {
  if (text == nullptr || device == nullptr) return abi::kInvalidArgument;
  return on_system(call, [&](sim::Machine& m, const sim::Verdict&) -> abi::Return {
    for (std::size_t i = 0; i < m.scenario().gpus.size(); ++i) {
      const sim::Gpu& gpu = m.scenario().gpus[i];
      if (matches(gpu)) return give(device, handle(i));
      for (std::size_t j = 0; j < gpu.mig.size(); ++j) {
        if (gpu.mig[j] == text && call == sim::call("nvmlDeviceGetHandleByUUID")) {
          return give(device, reinterpret_cast<abi::Device>(&mig_handles[i * kMaxMig + j]));
        }
      }
    }
    return abi::kNotFound;
  });
}

struct PciParts {
  unsigned domain = 0, bus = 0, device = 0;
  bool operator==(const PciParts&) const = default;
};

PciParts pci_parts(const char* text) {
  PciParts p;
  if (std::sscanf(text, "%x:%x:%x", &p.domain, &p.bus, &p.device) != 3) {
    p.domain = 0;
    if (std::sscanf(text, "%x:%x", &p.bus, &p.device) != 2) p.bus = UINT_MAX;
  }
  return p;
}

abi::Return pci_info(std::size_t call, abi::Device d, abi::PciInfo* out) {
  return on_device(call, d, [&](const Ref& r, const sim::Verdict&) -> abi::Return {
    if (out == nullptr) return abi::kInvalidArgument;
    const PciParts p = pci_parts(r.gpu.pci.c_str());
    *out = {};
    std::snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%04X:%02X:%02X.0",
                  p.domain & 0xffff, p.bus & 0xff, p.device & 0xff);
    std::snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", p.domain, p.bus, p.device);
    out->domain = p.domain;
    out->bus = p.bus;
    out->device = p.device;
    out->device_id = 0x233010de;
    return abi::kSuccess;
  });
}

// A getter of one number that the scenario gives.
template <class T>
abi::Return constant(std::size_t call, abi::Device d, T* out, auto&& get) {
  return on_device(call, d, [&](const Ref& r, const sim::Verdict& v) {
    return give(out, v.value ? static_cast<T>(*v.value) : static_cast<T>(get(r)));
  });
}

abi::Return limit_in(std::size_t call, abi::Device d, unsigned* out, auto&& get) {
  return on_device(call, d, [&](const Ref& r, const sim::Verdict& v) -> abi::Return {
    if (!r.gpu.limit) return abi::kNotSupported;
    return give(out, v.value ? static_cast<unsigned>(*v.value) : milliwatts(get(r)));
  });
}

abi::Return no_processes(std::size_t call, abi::Device d, unsigned* count) {
  return on_device(
      call, d, [&](const Ref&, const sim::Verdict&) { return give(count, 0U); }, true);
}

// nvmlC2cModeInfo_v1_t and what else abi.h does not need.
struct [[maybe_unused]] C2cMode {
  unsigned enabled;
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Each function is first declared through the type by which the backend calls it.
abi::Init nvmlInit, nvmlInit_v2, nvmlShutdown;
abi::InitWithFlags nvmlInitWithFlags;
abi::ErrorString nvmlErrorString;
abi::GetSystemString nvmlSystemGetDriverVersion, nvmlSystemGetNVMLVersion;
abi::GetCudaVersion nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2;
abi::GetCount nvmlDeviceGetCount, nvmlDeviceGetCount_v2;
abi::GetHandle nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2;
abi::GetHandleByText nvmlDeviceGetHandleByUUID, nvmlDeviceGetHandleBySerial,
    nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2;
abi::GetString nvmlDeviceGetName, nvmlDeviceGetUUID, nvmlDeviceGetSerial;
abi::GetUnsigned nvmlDeviceGetIndex, nvmlDeviceGetMinorNumber, nvmlDeviceGetArchitecture,
    nvmlDeviceGetPowerUsage, nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementLimit,
    nvmlDeviceGetPowerManagementDefaultLimit, nvmlDeviceGetPowerManagementMode,
    nvmlDeviceGetPersistenceMode, nvmlDeviceGetBrand, nvmlDeviceGetMaxMigDeviceCount,
    nvmlDeviceIsMigDeviceHandle, nvmlDeviceGetGpuInstanceId, nvmlDeviceGetComputeInstanceId,
    nvmlDeviceGetPowerState, nvmlDeviceGetPerformanceState;
abi::GetPci nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo_v3;
abi::GetSignedPair nvmlDeviceGetCudaComputeCapability;
abi::GetEnergy nvmlDeviceGetTotalEnergyConsumption;
abi::GetPair nvmlDeviceGetPowerManagementLimitConstraints, nvmlDeviceGetMigMode;
abi::SetUnsigned nvmlDeviceSetPowerManagementLimit, nvmlDeviceSetPersistenceMode;
abi::SetRange nvmlDeviceSetGpuLockedClocks, nvmlDeviceSetMemoryLockedClocks;
abi::Reset nvmlDeviceResetGpuLockedClocks, nvmlDeviceResetMemoryLockedClocks;
abi::GetTemperature nvmlDeviceGetTemperature;
abi::GetClock nvmlDeviceGetClockInfo, nvmlDeviceGetMaxClockInfo;
abi::GetClocks nvmlDeviceGetSupportedMemoryClocks;
abi::GetClocksAt nvmlDeviceGetSupportedGraphicsClocks;
abi::GetUnsigned64 nvmlDeviceGetCurrentClocksThrottleReasons;
abi::GetUtilization nvmlDeviceGetUtilizationRates;
abi::GetMemory nvmlDeviceGetMemoryInfo;
abi::GetMemory2 nvmlDeviceGetMemoryInfo_v2;
abi::GetChild nvmlDeviceGetMigDeviceHandleByIndex;
abi::GetParent nvmlDeviceGetDeviceHandleFromMigDeviceHandle;
const char* zeus_sim_session(void);
abi::Return nvmlDeviceGetComputeRunningProcesses_v3(abi::Device, unsigned*, void*);
abi::Return nvmlDeviceGetGraphicsRunningProcesses_v3(abi::Device, unsigned*, void*);

/// The folder of the session. By this symbol a client knows that the machine is simulated.
const char* zeus_sim_session(void) { return session; }

abi::Return nvmlInit() { return init(sim::call("nvmlInit")); }
abi::Return nvmlInit_v2() { return init(sim::call("nvmlInit_v2")); }
abi::Return nvmlInitWithFlags(unsigned) { return init(sim::call("nvmlInitWithFlags")); }

abi::Return nvmlShutdown() {
  pthread_mutex_lock(&init_mutex);
  abi::Return r = abi::kUninitialized;
  if (sim::Machine* const m = current()) {
    r = m->consult(sim::call("nvmlShutdown"), sim::Fault::Target::gpu, -1).code;
    if (r == abi::kSuccess) users.fetch_sub(1);
  }
  pthread_mutex_unlock(&init_mutex);
  return r;
}

const char* nvmlErrorString(abi::Return code) {
  switch (code) {
    case abi::kSuccess: return "Success";
    case abi::kUninitialized: return "Uninitialized";
    case abi::kInvalidArgument: return "Invalid Argument";
    case abi::kNotSupported: return "Not Supported";
    case abi::kNoPermission: return "Insufficient Permissions";
    case abi::kNotFound: return "Not Found";
    case abi::kInsufficientSize: return "Insufficient Size";
    case abi::kDriverNotLoaded: return "Driver Not Loaded";
    case abi::kTimeout: return "Timeout";
    case abi::kGpuIsLost: return "GPU is lost";
    case abi::kResetRequired: return "GPU requires reset";
    case abi::kLibRmVersionMismatch: return "Driver/library version mismatch";
    case abi::kArgumentVersionMismatch: return "Argument version mismatch";
    case abi::kNotReady: return "Not Ready";
    default: return "Unknown Error";
  }
}

abi::Return nvmlSystemGetDriverVersion(char* out, unsigned length) {
  return on_system(sim::call("nvmlSystemGetDriverVersion"),
                   [&](sim::Machine& m, const sim::Verdict&) {
                     return put(m.scenario().nvml->driver, out, length);
                   });
}
abi::Return nvmlSystemGetNVMLVersion(char* out, unsigned length) {
  return on_system(sim::call("nvmlSystemGetNVMLVersion"),
                   [&](sim::Machine& m, const sim::Verdict&) {
                     return put(m.scenario().nvml->version, out, length);
                   });
}
abi::Return nvmlSystemGetCudaDriverVersion(int* version) {
  return on_system(
      sim::call("nvmlSystemGetCudaDriverVersion"),
      [&](sim::Machine& m, const sim::Verdict&) { return give(version, m.scenario().nvml->cuda); });
}
abi::Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return on_system(
      sim::call("nvmlSystemGetCudaDriverVersion_v2"),
      [&](sim::Machine& m, const sim::Verdict&) { return give(version, m.scenario().nvml->cuda); });
}

abi::Return nvmlDeviceGetCount(unsigned* count) {
  return on_system(sim::call("nvmlDeviceGetCount"), [&](sim::Machine& m, const sim::Verdict& v) {
    return give(count, static_cast<unsigned>(v.value.value_or(m.scenario().gpus.size())));
  });
}
abi::Return nvmlDeviceGetCount_v2(unsigned* count) {
  return on_system(sim::call("nvmlDeviceGetCount_v2"), [&](sim::Machine& m, const sim::Verdict& v) {
    return give(count, static_cast<unsigned>(v.value.value_or(m.scenario().gpus.size())));
  });
}
static abi::Return by_index(std::size_t call, unsigned index, abi::Device* device) {
  sim::Machine* const m = current();
  if (m == nullptr) return abi::kUninitialized;
  const sim::Verdict v = m->consult(call, sim::Fault::Target::gpu, static_cast<int>(index));
  if (v.code != 0) return v.code;
  if (index >= m->scenario().gpus.size()) return abi::kInvalidArgument;
  return give(device, handle(index));
}
abi::Return nvmlDeviceGetHandleByIndex(unsigned index, abi::Device* device) {
  return by_index(sim::call("nvmlDeviceGetHandleByIndex"), index, device);
}
abi::Return nvmlDeviceGetHandleByIndex_v2(unsigned index, abi::Device* device) {
  return by_index(sim::call("nvmlDeviceGetHandleByIndex_v2"), index, device);
}
abi::Return nvmlDeviceGetHandleByUUID(const char* text, abi::Device* device) {
  return find(sim::call("nvmlDeviceGetHandleByUUID"), text, device,
              [&](const sim::Gpu& g) { return g.uuid == text; });
}
abi::Return nvmlDeviceGetHandleBySerial(const char* text, abi::Device* device) {
  return find(sim::call("nvmlDeviceGetHandleBySerial"), text, device,
              [&](const sim::Gpu& g) { return g.serial == text; });
}
abi::Return nvmlDeviceGetHandleByPciBusId(const char* text, abi::Device* device) {
  return find(sim::call("nvmlDeviceGetHandleByPciBusId"), text, device,
              [&](const sim::Gpu& g) { return pci_parts(g.pci.c_str()) == pci_parts(text); });
}
abi::Return nvmlDeviceGetHandleByPciBusId_v2(const char* text, abi::Device* device) {
  return find(sim::call("nvmlDeviceGetHandleByPciBusId_v2"), text, device,
              [&](const sim::Gpu& g) { return pci_parts(g.pci.c_str()) == pci_parts(text); });
}

abi::Return nvmlDeviceGetName(abi::Device d, char* out, unsigned length) {
  return on_device(
      sim::call("nvmlDeviceGetName"), d,
      [&](const Ref& r, const sim::Verdict&) { return put(r.gpu.model, out, length); }, true);
}
abi::Return nvmlDeviceGetUUID(abi::Device d, char* out, unsigned length) {
  return on_device(
      sim::call("nvmlDeviceGetUUID"), d,
      [&](const Ref& r, const sim::Verdict&) {
        return put(r.mig < 0 ? r.gpu.uuid : r.gpu.mig[static_cast<std::size_t>(r.mig)], out,
                   length);
      },
      true);
}
abi::Return nvmlDeviceGetSerial(abi::Device d, char* out, unsigned length) {
  return on_device(sim::call("nvmlDeviceGetSerial"), d, [&](const Ref& r, const sim::Verdict&) {
    return put(r.gpu.serial, out, length);
  });
}
abi::Return nvmlDeviceGetIndex(abi::Device d, unsigned* out) {
  return constant(sim::call("nvmlDeviceGetIndex"), d, out, [](const Ref& r) { return r.index; });
}
abi::Return nvmlDeviceGetMinorNumber(abi::Device d, unsigned* out) {
  return constant(sim::call("nvmlDeviceGetMinorNumber"), d, out,
                  [](const Ref& r) { return r.gpu.minor; });
}
abi::Return nvmlDeviceGetPciInfo(abi::Device d, abi::PciInfo* out) {
  return pci_info(sim::call("nvmlDeviceGetPciInfo"), d, out);
}
abi::Return nvmlDeviceGetPciInfo_v2(abi::Device d, abi::PciInfo* out) {
  return pci_info(sim::call("nvmlDeviceGetPciInfo_v2"), d, out);
}
abi::Return nvmlDeviceGetPciInfo_v3(abi::Device d, abi::PciInfo* out) {
  return pci_info(sim::call("nvmlDeviceGetPciInfo_v3"), d, out);
}
abi::Return nvmlDeviceGetArchitecture(abi::Device d, unsigned* out) {
  return constant(sim::call("nvmlDeviceGetArchitecture"), d, out,
                  [](const Ref& r) { return r.gpu.architecture; });
}
abi::Return nvmlDeviceGetBrand(abi::Device d, unsigned* out) {
  return constant(sim::call("nvmlDeviceGetBrand"), d, out, [](const Ref& r) {
    return r.gpu.model.find("GeForce") != std::string::npos ? 5U : 14U;
  });
}
abi::Return nvmlDeviceGetCudaComputeCapability(abi::Device d, int* major, int* minor) {
  return on_device(sim::call("nvmlDeviceGetCudaComputeCapability"), d,
                   [&](const Ref& r, const sim::Verdict&) {
                     const abi::Return e = give(major, r.gpu.compute[0]);
                     return e != abi::kSuccess ? e : give(minor, r.gpu.compute[1]);
                   });
}

abi::Return nvmlDeviceGetTotalEnergyConsumption(abi::Device d, unsigned long long* out) {
  return on_device(sim::call("nvmlDeviceGetTotalEnergyConsumption"), d,
                   [&](const Ref& r, const sim::Verdict& v) -> abi::Return {
                     if (out == nullptr) return abi::kInvalidArgument;
                     return energy(r, v, r.gpu.energy, *out);
                   });
}
abi::Return nvmlDeviceGetPowerUsage(abi::Device d, unsigned* out) {
  return on_device(sim::call("nvmlDeviceGetPowerUsage"), d,
                   [&](const Ref& r, const sim::Verdict& v) -> abi::Return {
                     if (out == nullptr) return abi::kInvalidArgument;
                     return power(r, v, r.gpu.power_usage, *out);
                   });
}
abi::Return nvmlDeviceGetPowerManagementMode(abi::Device d, unsigned* out) {
  return constant(sim::call("nvmlDeviceGetPowerManagementMode"), d, out,
                  [](const Ref& r) { return r.gpu.limit ? abi::kEnabled : abi::kDisabled; });
}
abi::Return nvmlDeviceGetEnforcedPowerLimit(abi::Device d, unsigned* out) {
  return limit_in(sim::call("nvmlDeviceGetEnforcedPowerLimit"), d, out,
                  [](const Ref& r) { return r.m.limit_watts(r.index); });
}
abi::Return nvmlDeviceGetPowerManagementLimit(abi::Device d, unsigned* out) {
  return limit_in(sim::call("nvmlDeviceGetPowerManagementLimit"), d, out,
                  [](const Ref& r) { return r.m.limit_watts(r.index); });
}
abi::Return nvmlDeviceGetPowerManagementDefaultLimit(abi::Device d, unsigned* out) {
  return limit_in(sim::call("nvmlDeviceGetPowerManagementDefaultLimit"), d, out,
                  [](const Ref& r) { return r.gpu.limit->standard; });
}
abi::Return nvmlDeviceGetPowerManagementLimitConstraints(abi::Device d, unsigned* low,
                                                         unsigned* high) {
  return on_device(sim::call("nvmlDeviceGetPowerManagementLimitConstraints"), d,
                   [&](const Ref& r, const sim::Verdict&) -> abi::Return {
                     if (!r.gpu.limit) return abi::kNotSupported;
                     const abi::Return e = give(low, milliwatts(r.gpu.limit->min));
                     return e != abi::kSuccess ? e : give(high, milliwatts(r.gpu.limit->max));
                   });
}
abi::Return nvmlDeviceSetPowerManagementLimit(abi::Device d, unsigned milliwatt) {
  return on_device(
      sim::call("nvmlDeviceSetPowerManagementLimit"), d,
      [&](const Ref& r, const sim::Verdict&) -> abi::Return {
        if (!r.gpu.limit) return abi::kNotSupported;
        if (const abi::Return e = control(r.m); e != abi::kSuccess) return e;
        if (milliwatt < milliwatts(r.gpu.limit->min) || milliwatt > milliwatts(r.gpu.limit->max)) {
          return abi::kInvalidArgument;
        }
        r.m.set_limit(r.index, milliwatt * 1e-3);
        return abi::kSuccess;
      });
}

abi::Return nvmlDeviceGetTemperature(abi::Device d, int sensor, unsigned* out) {
  return on_device(sim::call("nvmlDeviceGetTemperature"), d,
                   [&](const Ref& r, const sim::Verdict& v) -> abi::Return {
                     if (out == nullptr) return abi::kInvalidArgument;
                     return temperature(r, v, sensor, *out);
                   });
}
abi::Return nvmlDeviceGetClockInfo(abi::Device d, abi::ClockType type, unsigned* out) {
  return constant(sim::call("nvmlDeviceGetClockInfo"), d, out,
                  [&](const Ref& r) { return clock_of(r, type); });
}
abi::Return nvmlDeviceGetMaxClockInfo(abi::Device d, abi::ClockType type, unsigned* out) {
  return constant(sim::call("nvmlDeviceGetMaxClockInfo"), d, out, [&](const Ref& r) {
    return type == abi::kClockMemory ? r.gpu.memory_clocks.front() : r.gpu.sm_clocks.high;
  });
}
abi::Return nvmlDeviceGetSupportedMemoryClocks(abi::Device d, unsigned* count, unsigned* out) {
  return on_device(sim::call("nvmlDeviceGetSupportedMemoryClocks"), d,
                   [&](const Ref& r, const sim::Verdict&) {
                     return list(count, out, static_cast<unsigned>(r.gpu.memory_clocks.size()),
                                 [&](unsigned i) { return r.gpu.memory_clocks[i]; });
                   });
}
abi::Return nvmlDeviceGetSupportedGraphicsClocks(abi::Device d, unsigned memory, unsigned* count,
                                                 unsigned* out) {
  return on_device(sim::call("nvmlDeviceGetSupportedGraphicsClocks"), d,
                   [&](const Ref& r, const sim::Verdict&) -> abi::Return {
                     const auto& known = r.gpu.memory_clocks;
                     if (std::find(known.begin(), known.end(), memory) == known.end()) {
                       return abi::kNotFound;
                     }
                     constexpr unsigned kStep = 15;  // MHz, falling
                     const auto [low, high] = r.gpu.sm_clocks;
                     return list(count, out, (high - low) / kStep + 1,
                                 [&](unsigned i) { return high - i * kStep; });
                   });
}
abi::Return nvmlDeviceGetCurrentClocksThrottleReasons(abi::Device d, unsigned long long* out) {
  return on_device(
      sim::call("nvmlDeviceGetCurrentClocksThrottleReasons"), d,
      [&](const Ref& r, const sim::Verdict& v) { return throttle_reasons(r, v, out); });
}
abi::Return nvmlDeviceSetGpuLockedClocks(abi::Device d, unsigned low, unsigned high) {
  return on_device(sim::call("nvmlDeviceSetGpuLockedClocks"), d,
                   [&](const Ref& r, const sim::Verdict&) {
                     return lock_clocks(r, &sim::DeviceState::sm_lock, low, high);
                   });
}
abi::Return nvmlDeviceResetGpuLockedClocks(abi::Device d) {
  return on_device(sim::call("nvmlDeviceResetGpuLockedClocks"), d,
                   [&](const Ref& r, const sim::Verdict&) {
                     return lock_clocks(r, &sim::DeviceState::sm_lock, 0, 0);
                   });
}
abi::Return nvmlDeviceSetMemoryLockedClocks(abi::Device d, unsigned low, unsigned high) {
  return on_device(sim::call("nvmlDeviceSetMemoryLockedClocks"), d,
                   [&](const Ref& r, const sim::Verdict&) {
                     return lock_clocks(r, &sim::DeviceState::memory_lock, low, high);
                   });
}
abi::Return nvmlDeviceResetMemoryLockedClocks(abi::Device d) {
  return on_device(sim::call("nvmlDeviceResetMemoryLockedClocks"), d,
                   [&](const Ref& r, const sim::Verdict&) {
                     return lock_clocks(r, &sim::DeviceState::memory_lock, 0, 0);
                   });
}
abi::Return nvmlDeviceGetPersistenceMode(abi::Device d, unsigned* out) {
  return constant(sim::call("nvmlDeviceGetPersistenceMode"), d, out, [](const Ref& r) {
    return r.m.state().device(r.index).persistence ? abi::kEnabled : abi::kDisabled;
  });
}
abi::Return nvmlDeviceSetPersistenceMode(abi::Device d, unsigned mode) {
  return on_device(sim::call("nvmlDeviceSetPersistenceMode"), d,
                   [&](const Ref& r, const sim::Verdict&) -> abi::Return {
                     if (const abi::Return e = control(r.m); e != abi::kSuccess) return e;
                     if (mode > 1) return abi::kInvalidArgument;
                     r.m.state().device(r.index).persistence = mode != 0;
                     return abi::kSuccess;
                   });
}
abi::Return nvmlDeviceGetUtilizationRates(abi::Device d, abi::Utilization* out) {
  return on_device(sim::call("nvmlDeviceGetUtilizationRates"), d,
                   [&](const Ref& r, const sim::Verdict&) {
                     const double load = r.m.load(r.index, r.now);
                     return give(out, {static_cast<unsigned>(std::lround(100 * load)),
                                       static_cast<unsigned>(std::lround(50 * load))});
                   });
}
abi::Return nvmlDeviceGetMemoryInfo(abi::Device d, abi::Memory* out) {
  return on_device(sim::call("nvmlDeviceGetMemoryInfo"), d, [&](const Ref& r, const sim::Verdict&) {
    const unsigned long long used = r.gpu.memory / 64;
    return give(out, {r.gpu.memory, r.gpu.memory - used, used});
  });
}
abi::Return nvmlDeviceGetMemoryInfo_v2(abi::Device d, abi::Memory2* out) {
  return on_device(sim::call("nvmlDeviceGetMemoryInfo_v2"), d,
                   [&](const Ref& r, const sim::Verdict&) -> abi::Return {
                     if (out == nullptr) return abi::kInvalidArgument;
                     if (out->version != abi::kMemoryVersion2) return abi::kArgumentVersionMismatch;
                     const unsigned long long part = r.gpu.memory / 128;
                     *out = {out->version, r.gpu.memory, part, r.gpu.memory - 2 * part, part};
                     return abi::kSuccess;
                   });
}
abi::Return nvmlDeviceGetPowerState(abi::Device d, unsigned* out) {
  return constant(sim::call("nvmlDeviceGetPowerState"), d, out,
                  [](const Ref& r) { return r.m.load(r.index, r.now) > 0 ? 0U : 8U; });
}
abi::Return nvmlDeviceGetPerformanceState(abi::Device d, unsigned* out) {
  return constant(sim::call("nvmlDeviceGetPerformanceState"), d, out,
                  [](const Ref& r) { return r.m.load(r.index, r.now) > 0 ? 0U : 8U; });
}
abi::Return nvmlDeviceGetComputeRunningProcesses_v3(abi::Device d, unsigned* count, void*) {
  return no_processes(sim::call("nvmlDeviceGetComputeRunningProcesses_v3"), d, count);
}
abi::Return nvmlDeviceGetGraphicsRunningProcesses_v3(abi::Device d, unsigned* count, void*) {
  return no_processes(sim::call("nvmlDeviceGetGraphicsRunningProcesses_v3"), d, count);
}

abi::Return nvmlDeviceGetMigMode(abi::Device d, unsigned* now, unsigned* pending) {
  return on_device(sim::call("nvmlDeviceGetMigMode"), d, [&](const Ref& r, const sim::Verdict&) {
    const unsigned mode = r.gpu.mig.empty() ? abi::kDisabled : abi::kEnabled;
    const abi::Return e = give(now, mode);
    return e != abi::kSuccess ? e : give(pending, mode);
  });
}
abi::Return nvmlDeviceGetMaxMigDeviceCount(abi::Device d, unsigned* out) {
  return constant(sim::call("nvmlDeviceGetMaxMigDeviceCount"), d, out,
                  [](const Ref& r) { return r.gpu.mig.empty() ? 0U : 7U; });
}
abi::Return nvmlDeviceGetMigDeviceHandleByIndex(abi::Device d, unsigned index, abi::Device* child) {
  return on_device(
      sim::call("nvmlDeviceGetMigDeviceHandleByIndex"), d,
      [&](const Ref& r, const sim::Verdict&) -> abi::Return {
        if (index >= r.gpu.mig.size()) return abi::kNotFound;
        return give(child, reinterpret_cast<abi::Device>(&mig_handles[r.index * kMaxMig + index]));
      });
}
abi::Return nvmlDeviceIsMigDeviceHandle(abi::Device d, unsigned* out) {
  return on_device(
      sim::call("nvmlDeviceIsMigDeviceHandle"), d,
      [&](const Ref& r, const sim::Verdict&) { return give(out, r.mig < 0 ? 0U : 1U); }, true);
}
abi::Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(abi::Device d, abi::Device* parent) {
  return on_device(
      sim::call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle"), d,
      [&](const Ref& r, const sim::Verdict&) -> abi::Return {
        return r.mig < 0 ? abi::kInvalidArgument : give(parent, handle(r.index));
      },
      true);
}
static abi::Return instance(std::size_t call, abi::Device d, unsigned* out, bool compute) {
  return on_device(
      call, d,
      [&](const Ref& r, const sim::Verdict&) -> abi::Return {
        return r.mig < 0 ? abi::kNotSupported
                         : give(out, compute ? 0U : static_cast<unsigned>(r.mig) + 1);
      },
      true);
}
abi::Return nvmlDeviceGetGpuInstanceId(abi::Device d, unsigned* out) {
  return instance(sim::call("nvmlDeviceGetGpuInstanceId"), d, out, false);
}
abi::Return nvmlDeviceGetComputeInstanceId(abi::Device d, unsigned* out) {
  return instance(sim::call("nvmlDeviceGetComputeInstanceId"), d, out, true);
}

#ifndef ZEUS_SIM_OLD
abi::GetFields nvmlDeviceGetFieldValues;
abi::GetTemperatureV nvmlDeviceGetTemperatureV;
abi::GetUnsigned64 nvmlDeviceGetCurrentClocksEventReasons;
abi::Return nvmlDeviceGetC2cModeInfoV(abi::Device, C2cMode*);

abi::Return nvmlDeviceGetFieldValues(abi::Device d, int count, abi::FieldValue* values) {
  return on_device(sim::call("nvmlDeviceGetFieldValues"), d,
                   [&](const Ref& r, const sim::Verdict&) -> abi::Return {
                     if (count < 1 || values == nullptr) return abi::kInvalidArgument;
                     for (int i = 0; i < count; ++i) serve(r, values[i]);
                     return abi::kSuccess;
                   });
}
abi::Return nvmlDeviceGetTemperatureV(abi::Device d, abi::Temperature* out) {
  return on_device(sim::call("nvmlDeviceGetTemperatureV"), d,
                   [&](const Ref& r, const sim::Verdict& v) -> abi::Return {
                     if (out == nullptr) return abi::kInvalidArgument;
                     if (out->version != abi::kTemperatureVersion1) {
                       return abi::kArgumentVersionMismatch;
                     }
                     unsigned celsius = 0;
                     const abi::Return e = temperature(r, v, out->sensor, celsius);
                     out->celsius = static_cast<int>(celsius);
                     return e;
                   });
}
abi::Return nvmlDeviceGetCurrentClocksEventReasons(abi::Device d, unsigned long long* out) {
  return on_device(
      sim::call("nvmlDeviceGetCurrentClocksEventReasons"), d,
      [&](const Ref& r, const sim::Verdict& v) { return throttle_reasons(r, v, out); });
}
abi::Return nvmlDeviceGetC2cModeInfoV(abi::Device d, C2cMode* out) {
  return on_device(
      sim::call("nvmlDeviceGetC2cModeInfoV"), d,
      [&](const Ref& r, const sim::Verdict&) { return give(out, {r.gpu.c2c ? 1U : 0U}); });
}
#endif

}  // extern "C"
#pragma GCC visibility pop
