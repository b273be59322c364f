// libnvidia-ml.so.1 of a simulated machine: the session, and what the devices are. The session is
// the folder that the library lies in. Built twice: with ZEUS_SIM_OLD it lacks the symbols of newer
// drivers. Reading allocates nothing. nvml_processes.cc and
// nvml_sensors.cc have the rest.

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "sim/nvml_call.h"

namespace zeus::sim {

namespace {

constexpr std::size_t kMaxGpus = 256, kMaxMig = 8;
// Only their addresses matter.
char handles[kMaxGpus];
char mig_handles[kMaxGpus * kMaxMig];

char session[PATH_MAX];
// Loaded by the first nvmlInit and kept: a reader may be inside it when the last user leaves.
std::atomic<Machine*> machine{nullptr};
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

Machine* load() {
  const std::filesystem::path folder = session;
  auto scenario = read_scenario(folder / "scenario.toml");
  if (!scenario || !scenario->nvml) return nullptr;
  auto state = State::open(folder / "state", *scenario);
  if (!state) return nullptr;
  return new Machine(*std::move(scenario), *std::move(state));
}

abi::Return init(std::size_t call) {
  pthread_mutex_lock(&init_mutex);
  abi::Return r = abi::kSuccess;
  if (machine.load() == nullptr) machine = load();
  if (machine.load() == nullptr) {
    r = abi::kDriverNotLoaded;
  } else if (r = machine.load()->consult(call, Fault::Target::gpu, -1).code; r == 0) {
    const std::uint64_t u = users.load();
    users.store((u & ~0xffffffffULL) == mine() ? u + 1 : mine() + 1, std::memory_order_release);
  }
  pthread_mutex_unlock(&init_mutex);
  return r;
}

}  // namespace

Machine* current() noexcept {
  const std::uint64_t u = users.load(std::memory_order_acquire);
  return (u & ~0xffffffffULL) == mine() && (u & 0xffffffff) != 0 ? machine.load() : nullptr;
}

void spin(Ns latency) noexcept {
  if (latency <= 0) return;
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  const Ns end = t.tv_sec * 1'000'000'000 + t.tv_nsec + latency;
  do {
    clock_gettime(CLOCK_MONOTONIC, &t);
  } while (t.tv_sec * 1'000'000'000 + t.tv_nsec < end);
}

abi::Device handle(std::size_t gpu, int mig) noexcept {
  char* const place =
      mig < 0 ? &handles[gpu] : &mig_handles[gpu * kMaxMig + static_cast<unsigned>(mig)];
  return reinterpret_cast<abi::Device>(place);
}

std::optional<Target> target(const Machine& machine, abi::Device device) noexcept {
  const auto* const p = reinterpret_cast<const char*>(device);
  const auto& gpus = machine.scenario().gpus;
  if (p >= handles && p < handles + gpus.size()) {
    return Target{static_cast<std::size_t>(p - handles), -1};
  }
  if (p < mig_handles || p >= mig_handles + gpus.size() * kMaxMig) return std::nullopt;
  const auto place = static_cast<std::size_t>(p - mig_handles);
  const Target t{place / kMaxMig, static_cast<int>(place % kMaxMig)};
  if (place % kMaxMig >= gpus[t.gpu].mig.size()) return std::nullopt;
  return t;
}

namespace {

// What a name means. A fault of one GPU strikes who asks for that GPU, and nobody else.
abi::Return find(std::size_t call, const char* text, abi::Device* device, auto&& matches) {
  if (text == nullptr || device == nullptr) return abi::kInvalidArgument;
  const Machine* const m = current();
  if (m == nullptr) return abi::kUninitialized;
  const auto found = [&]() -> std::optional<Target> {
    for (std::size_t i = 0; i < m->scenario().gpus.size(); ++i) {
      const Gpu& gpu = m->scenario().gpus[i];
      if (matches(gpu)) return Target{i, -1};
      for (std::size_t j = 0; j < gpu.mig.size(); ++j) {
        if (gpu.mig[j] == text && call == sim::call("nvmlDeviceGetHandleByUUID")) {
          return Target{i, static_cast<int>(j)};
        }
      }
    }
    return std::nullopt;
  }();
  const Verdict v = m->consult(call, Fault::Target::gpu, found ? static_cast<int>(found->gpu) : -1);
  if (v.code != 0) return v.code;
  return found ? give(device, handle(found->gpu, found->mig)) : abi::kNotFound;
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
  return on_device(call, d, [&](const Ref& r, const Verdict&) -> abi::Return {
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
    nvmlDeviceGetBrand, nvmlDeviceGetMaxMigDeviceCount, nvmlDeviceIsMigDeviceHandle,
    nvmlDeviceGetGpuInstanceId, nvmlDeviceGetComputeInstanceId;
abi::GetPci nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo_v3;
abi::GetSignedPair nvmlDeviceGetCudaComputeCapability;
abi::GetPair nvmlDeviceGetMigMode;
abi::GetChild nvmlDeviceGetMigDeviceHandleByIndex;
abi::GetParent nvmlDeviceGetDeviceHandleFromMigDeviceHandle;
const char* zeus_sim_session(void);

/// The folder of the session. By this symbol a client knows that the machine is simulated.
const char* zeus_sim_session(void) { return session; }

abi::Return nvmlInit() { return init(call("nvmlInit")); }
abi::Return nvmlInit_v2() { return init(call("nvmlInit_v2")); }
abi::Return nvmlInitWithFlags(unsigned) { return init(call("nvmlInitWithFlags")); }

abi::Return nvmlShutdown() {
  pthread_mutex_lock(&init_mutex);
  abi::Return r = abi::kUninitialized;
  if (Machine* const m = current()) {
    r = m->consult(call("nvmlShutdown"), Fault::Target::gpu, -1).code;
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
  return on_system(call("nvmlSystemGetDriverVersion"), [&](Machine& m, const Verdict&) {
    return put(m.scenario().nvml->driver, out, length);
  });
}
abi::Return nvmlSystemGetNVMLVersion(char* out, unsigned length) {
  return on_system(call("nvmlSystemGetNVMLVersion"), [&](Machine& m, const Verdict&) {
    return put(m.scenario().nvml->version, out, length);
  });
}
abi::Return nvmlSystemGetCudaDriverVersion(int* version) {
  return on_system(call("nvmlSystemGetCudaDriverVersion"), [&](Machine& m, const Verdict&) {
    return give(version, m.scenario().nvml->cuda);
  });
}
abi::Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return on_system(call("nvmlSystemGetCudaDriverVersion_v2"), [&](Machine& m, const Verdict&) {
    return give(version, m.scenario().nvml->cuda);
  });
}

abi::Return nvmlDeviceGetCount(unsigned* count) {
  return on_system(call("nvmlDeviceGetCount"), [&](Machine& m, const Verdict& v) {
    return give(count, static_cast<unsigned>(v.value.value_or(m.scenario().gpus.size())));
  });
}
abi::Return nvmlDeviceGetCount_v2(unsigned* count) {
  return on_system(call("nvmlDeviceGetCount_v2"), [&](Machine& m, const Verdict& v) {
    return give(count, static_cast<unsigned>(v.value.value_or(m.scenario().gpus.size())));
  });
}
static abi::Return by_index(std::size_t call, unsigned index, abi::Device* device) {
  Machine* const m = current();
  if (m == nullptr) return abi::kUninitialized;
  const Verdict v = m->consult(call, Fault::Target::gpu, static_cast<int>(index));
  if (v.code != 0) return v.code;
  if (index >= m->scenario().gpus.size()) return abi::kInvalidArgument;
  return give(device, handle(index));
}
abi::Return nvmlDeviceGetHandleByIndex(unsigned index, abi::Device* device) {
  return by_index(call("nvmlDeviceGetHandleByIndex"), index, device);
}
abi::Return nvmlDeviceGetHandleByIndex_v2(unsigned index, abi::Device* device) {
  return by_index(call("nvmlDeviceGetHandleByIndex_v2"), index, device);
}
abi::Return nvmlDeviceGetHandleByUUID(const char* text, abi::Device* device) {
  return find(call("nvmlDeviceGetHandleByUUID"), text, device,
              [&](const Gpu& g) { return g.uuid == text; });
}
abi::Return nvmlDeviceGetHandleBySerial(const char* text, abi::Device* device) {
  return find(call("nvmlDeviceGetHandleBySerial"), text, device,
              [&](const Gpu& g) { return g.serial == text; });
}
abi::Return nvmlDeviceGetHandleByPciBusId(const char* text, abi::Device* device) {
  return find(call("nvmlDeviceGetHandleByPciBusId"), text, device,
              [&](const Gpu& g) { return pci_parts(g.pci.c_str()) == pci_parts(text); });
}
abi::Return nvmlDeviceGetHandleByPciBusId_v2(const char* text, abi::Device* device) {
  return find(call("nvmlDeviceGetHandleByPciBusId_v2"), text, device,
              [&](const Gpu& g) { return pci_parts(g.pci.c_str()) == pci_parts(text); });
}

abi::Return nvmlDeviceGetName(abi::Device d, char* out, unsigned length) {
  return on_device(
      call("nvmlDeviceGetName"), d,
      [&](const Ref& r, const Verdict&) { return put(r.gpu.model, out, length); }, true);
}
abi::Return nvmlDeviceGetUUID(abi::Device d, char* out, unsigned length) {
  return on_device(
      call("nvmlDeviceGetUUID"), d,
      [&](const Ref& r, const Verdict&) {
        return put(r.mig < 0 ? r.gpu.uuid : r.gpu.mig[static_cast<std::size_t>(r.mig)], out,
                   length);
      },
      true);
}
abi::Return nvmlDeviceGetSerial(abi::Device d, char* out, unsigned length) {
  return on_device(call("nvmlDeviceGetSerial"), d,
                   [&](const Ref& r, const Verdict&) { return put(r.gpu.serial, out, length); });
}
abi::Return nvmlDeviceGetIndex(abi::Device d, unsigned* out) {
  return number(call("nvmlDeviceGetIndex"), d, out, [](const Ref& r) { return r.index; });
}
abi::Return nvmlDeviceGetMinorNumber(abi::Device d, unsigned* out) {
  return number(call("nvmlDeviceGetMinorNumber"), d, out, [](const Ref& r) { return r.gpu.minor; });
}
abi::Return nvmlDeviceGetPciInfo(abi::Device d, abi::PciInfo* out) {
  return pci_info(call("nvmlDeviceGetPciInfo"), d, out);
}
abi::Return nvmlDeviceGetPciInfo_v2(abi::Device d, abi::PciInfo* out) {
  return pci_info(call("nvmlDeviceGetPciInfo_v2"), d, out);
}
abi::Return nvmlDeviceGetPciInfo_v3(abi::Device d, abi::PciInfo* out) {
  return pci_info(call("nvmlDeviceGetPciInfo_v3"), d, out);
}
abi::Return nvmlDeviceGetArchitecture(abi::Device d, unsigned* out) {
  return number(call("nvmlDeviceGetArchitecture"), d, out,
                [](const Ref& r) { return r.gpu.architecture; });
}
abi::Return nvmlDeviceGetBrand(abi::Device d, unsigned* out) {
  return number(call("nvmlDeviceGetBrand"), d, out, [](const Ref& r) {
    return r.gpu.model.find("GeForce") != std::string::npos ? 5U : 14U;
  });
}
abi::Return nvmlDeviceGetCudaComputeCapability(abi::Device d, int* major, int* minor) {
  return on_device(call("nvmlDeviceGetCudaComputeCapability"), d,
                   [&](const Ref& r, const Verdict&) {
                     const abi::Return e = give(major, r.gpu.compute[0]);
                     return e != abi::kSuccess ? e : give(minor, r.gpu.compute[1]);
                   });
}

abi::Return nvmlDeviceGetMigMode(abi::Device d, unsigned* now, unsigned* pending) {
  return on_device(call("nvmlDeviceGetMigMode"), d, [&](const Ref& r, const Verdict&) {
    const unsigned mode = r.gpu.mig.empty() ? abi::kDisabled : abi::kEnabled;
    const abi::Return e = give(now, mode);
    return e != abi::kSuccess ? e : give(pending, mode);
  });
}
abi::Return nvmlDeviceGetMaxMigDeviceCount(abi::Device d, unsigned* out) {
  return number(call("nvmlDeviceGetMaxMigDeviceCount"), d, out,
                [](const Ref& r) { return r.gpu.mig.empty() ? 0U : 7U; });
}
abi::Return nvmlDeviceGetMigDeviceHandleByIndex(abi::Device d, unsigned index, abi::Device* child) {
  return on_device(
      call("nvmlDeviceGetMigDeviceHandleByIndex"), d,
      [&](const Ref& r, const Verdict&) -> abi::Return {
        if (index >= r.gpu.mig.size()) return abi::kNotFound;
        return give(child, reinterpret_cast<abi::Device>(&mig_handles[r.index * kMaxMig + index]));
      });
}
abi::Return nvmlDeviceIsMigDeviceHandle(abi::Device d, unsigned* out) {
  return on_device(
      call("nvmlDeviceIsMigDeviceHandle"), d,
      [&](const Ref& r, const Verdict&) { return give(out, r.mig < 0 ? 0U : 1U); }, true);
}
abi::Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(abi::Device d, abi::Device* parent) {
  return on_device(
      call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle"), d,
      [&](const Ref& r, const Verdict&) -> abi::Return {
        return r.mig < 0 ? abi::kInvalidArgument : give(parent, handle(r.index));
      },
      true);
}
static abi::Return instance(std::size_t call, abi::Device d, unsigned* out, bool compute) {
  return on_device(
      call, d,
      [&](const Ref& r, const Verdict&) -> abi::Return {
        return r.mig < 0 ? abi::kNotSupported
                         : give(out, compute ? 0U : static_cast<unsigned>(r.mig) + 1);
      },
      true);
}
abi::Return nvmlDeviceGetGpuInstanceId(abi::Device d, unsigned* out) {
  return instance(call("nvmlDeviceGetGpuInstanceId"), d, out, false);
}
abi::Return nvmlDeviceGetComputeInstanceId(abi::Device d, unsigned* out) {
  return instance(call("nvmlDeviceGetComputeInstanceId"), d, out, true);
}

#ifndef ZEUS_SIM_OLD
abi::Return nvmlDeviceGetC2cModeInfoV(abi::Device, C2cMode*);
abi::Return nvmlDeviceGetC2cModeInfoV(abi::Device d, C2cMode* out) {
  return on_device(call("nvmlDeviceGetC2cModeInfoV"), d,
                   [&](const Ref& r, const Verdict&) { return give(out, {r.gpu.c2c ? 1U : 0U}); });
}
#endif

}  // extern "C"
#pragma GCC visibility pop

}  // namespace zeus::sim
