// The simulated NVML through the loader, as any client meets it.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "backends/nvml/abi.h"
#include "sim/session.h"
#include "support/allocations.h"
#include "support/tree.h"

namespace zeus::sim {
namespace {

namespace abi = nvml::abi;

/// A loaded library.
class Library {
 public:
  explicit Library(const Session& s)
      : handle_(::dlopen((s.libraries() / "libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << ::dlerror();
  }
  template <class F>
  F* find(const char* symbol) const {
    return reinterpret_cast<F*>(::dlsym(handle_, symbol));
  }
  template <class F, class... A>
  abi::Return call(const char* symbol, A... a) const {
    F* const f = find<F>(symbol);
    if (f == nullptr) ADD_FAILURE() << symbol;
    return f == nullptr ? -1 : f(a...);
  }
  abi::Return init() const { return call<abi::Init>("nvmlInit_v2"); }
  abi::Return shutdown() const { return call<abi::Init>("nvmlShutdown"); }
  abi::Device gpu(unsigned i) const {
    abi::Device d = nullptr;
    EXPECT_EQ(call<abi::GetHandle>("nvmlDeviceGetHandleByIndex_v2", i, &d), abi::kSuccess);
    return d;
  }
  std::pair<abi::Return, unsigned long long> energy(abi::Device d) const {
    unsigned long long mj = 0;
    const abi::Return r = call<abi::GetEnergy>("nvmlDeviceGetTotalEnergyConsumption", d, &mj);
    return {r, mj};
  }
  std::pair<abi::Return, unsigned> number(const char* symbol, abi::Device d) const {
    unsigned out = 0;
    const abi::Return r = call<abi::GetUnsigned>(symbol, d, &out);
    return {r, out};
  }
  std::string text(const char* symbol, abi::Device d) const {
    char out[96] = "";
    EXPECT_EQ(call<abi::GetString>(symbol, d, out, 96U), abi::kSuccess);
    return out;
  }

 private:
  void* handle_;
};

class NvmlTest : public testing::Test {
 protected:
  NvmlTest() { ::setenv("TMPDIR", tree_.root().c_str(), 1); }
  ~NvmlTest() override { ::unsetenv("TMPDIR"); }

  std::unique_ptr<Session> start(const std::string& text) {
    tree_.write("mine.toml", text);
    return create((tree_.root() / "mine.toml").string());
  }
  static std::unique_ptr<Session> create(const std::string& what) {
    auto s = Session::create(what);
    if (!s) ADD_FAILURE() << s.error().detail;
    return s ? *std::move(s) : nullptr;
  }

  test::Tree tree_;
};

constexpr const char* kTwo = R"(
[nvml]
control = "everyone"
driver = "570.1"
[[gpu]]
count = 2
power = { kind = "constant", watts = 100 }
limit = { min = 50, max = 300, default = 200 }
energy = { update = "100ms", phase = 0 }
power_instant = { update = "100ms", kind = "instant" }
power_usage = { update = "100ms", kind = "mean", window = "1s" }
memory_power = { gain = 0.25 }
)";

TEST_F(NvmlTest, NeedsInitAndCountsIt) {
  const auto s = start(kTwo);
  const Library n(*s);
  unsigned count = 0;
  EXPECT_EQ(n.call<abi::GetCount>("nvmlDeviceGetCount_v2", &count), abi::kUninitialized);
  ASSERT_EQ(n.init(), abi::kSuccess);
  ASSERT_EQ(n.init(), abi::kSuccess);
  EXPECT_EQ(n.shutdown(), abi::kSuccess);
  EXPECT_EQ(n.call<abi::GetCount>("nvmlDeviceGetCount_v2", &count), abi::kSuccess);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(n.shutdown(), abi::kSuccess);
  EXPECT_EQ(n.shutdown(), abi::kUninitialized);
}

TEST_F(NvmlTest, SaysWhatTheDeviceIs) {
  const auto s = create("h100x8");
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const abi::Device d = n.gpu(3);
  EXPECT_EQ(n.text("nvmlDeviceGetName", d), "NVIDIA H100 80GB HBM3");
  const std::string uuid = n.text("nvmlDeviceGetUUID", d);
  EXPECT_EQ(uuid, s->devices()[3].uuid);
  abi::Device found = nullptr;
  EXPECT_EQ(n.call<abi::GetHandleByText>("nvmlDeviceGetHandleByUUID", uuid.c_str(), &found), 0);
  EXPECT_EQ(found, d);
  abi::PciInfo pci{};
  EXPECT_EQ(n.call<abi::GetPci>("nvmlDeviceGetPciInfo_v3", d, &pci), abi::kSuccess);
  EXPECT_STREQ(pci.bus_id, "00000000:37:00.0");
  EXPECT_STREQ(pci.bus_id_legacy, "0000:37:00.0");
  EXPECT_EQ(
      n.call<abi::GetHandleByText>("nvmlDeviceGetHandleByPciBusId_v2", "0000:37:00.0", &found), 0);
  EXPECT_EQ(found, d);
  EXPECT_EQ(n.number("nvmlDeviceGetArchitecture", d), std::pair(0, 9U));
  EXPECT_EQ(n.number("nvmlDeviceGetIndex", d), std::pair(0, 3U));
  char small[4];
  EXPECT_EQ(n.call<abi::GetString>("nvmlDeviceGetName", d, small, 4U), abi::kInsufficientSize);
  EXPECT_EQ(n.number("nvmlDeviceGetIndex", reinterpret_cast<abi::Device>(small)).first,
            abi::kInvalidArgument);
}

TEST_F(NvmlTest, CountsTheEnergyThatTheTruthSays) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const Machine& m = s->machine();
  const Ns before = m.state().now();
  const auto [r, mj] = n.energy(n.gpu(0));
  const Ns after = m.state().now();
  ASSERT_EQ(r, abi::kSuccess);
  const Counter& c = *s->scenario().gpus[0].energy;
  EXPECT_GE(mj, m.gpu_counter(0, c, before));
  EXPECT_LE(mj, m.gpu_counter(0, c, after));
  EXPECT_EQ(mj % 10'000, 0U);  // 100 W for whole ticks of 100 ms, from 10 kJ.
}

TEST_F(NvmlTest, AnswersEachFieldOnItsOwn) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  abi::FieldValue f[5] = {};
  f[0].field = abi::kFieldPowerInstant;
  f[1].field = abi::kFieldPowerAverage;  // Not in this scenario.
  f[2].field = abi::kFieldPowerAverage;
  f[2].scope = abi::kScopeMemory;
  f[3].field = abi::kFieldTotalEnergy;
  f[4].field = 9999;
  ASSERT_EQ(n.call<abi::GetFields>("nvmlDeviceGetFieldValues", n.gpu(1), 5, &f[0]), abi::kSuccess);
  EXPECT_EQ(f[0].result, abi::kSuccess);
  EXPECT_EQ(f[0].type, abi::kUnsigned);
  EXPECT_EQ(f[0].value.u32, 100'000U);
  EXPECT_GT(f[0].timestamp, 1'600'000'000'000'000);
  EXPECT_EQ(f[1].result, abi::kNotSupported);
  EXPECT_EQ(f[2].result, abi::kSuccess);
  EXPECT_EQ(f[2].value.u32, 25'000U);
  EXPECT_EQ(f[3].type, abi::kUnsignedLongLong);
  EXPECT_GE(f[3].value.u64, 9'990'000U);
  EXPECT_EQ(f[4].result, abi::kNotSupported);
}

TEST_F(NvmlTest, SetsALimitWithinItsRangeForAllToSee) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const auto set = [&](unsigned mw) {
    return n.call<abi::SetUnsigned>("nvmlDeviceSetPowerManagementLimit", n.gpu(1), mw);
  };
  EXPECT_EQ(n.number("nvmlDeviceGetPowerManagementLimit", n.gpu(1)), std::pair(0, 200'000U));
  EXPECT_EQ(set(49'999), abi::kInvalidArgument);
  EXPECT_EQ(set(300'001), abi::kInvalidArgument);
  EXPECT_EQ(set(60'000), abi::kSuccess);
  EXPECT_EQ(n.number("nvmlDeviceGetPowerManagementLimit", n.gpu(1)), std::pair(0, 60'000U));
  EXPECT_EQ(n.number("nvmlDeviceGetPowerManagementLimit", n.gpu(0)), std::pair(0, 200'000U));
  EXPECT_EQ(s->machine().limit_watts(1), 60);
  unsigned long long reasons = 0;
  EXPECT_EQ(
      n.call<abi::GetUnsigned64>("nvmlDeviceGetCurrentClocksEventReasons", n.gpu(1), &reasons), 0);
  EXPECT_EQ(reasons & 4, 4U);
}

TEST_F(NvmlTest, RefusesToSetWhereNobodyMay) {
  std::string text = kTwo;
  text.replace(text.find("everyone"), 8, "nobody");
  const auto s = start(text);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  EXPECT_EQ(n.call<abi::SetUnsigned>("nvmlDeviceSetPowerManagementLimit", n.gpu(0), 60'000U),
            abi::kNoPermission);
  EXPECT_EQ(n.call<abi::SetRange>("nvmlDeviceSetGpuLockedClocks", n.gpu(0), 300U, 600U),
            abi::kNoPermission);
}

TEST_F(NvmlTest, LocksClocksAndForgetsThem) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const abi::Device d = n.gpu(0);
  const auto clock = [&] {
    unsigned mhz = 0;
    EXPECT_EQ(n.call<abi::GetClock>("nvmlDeviceGetClockInfo", d, abi::kClockSm, &mhz), 0);
    return mhz;
  };
  EXPECT_EQ(clock(), 1980U);
  EXPECT_EQ(n.call<abi::SetRange>("nvmlDeviceSetGpuLockedClocks", d, 300U, 600U), 0);
  EXPECT_EQ(clock(), 600U);
  EXPECT_EQ(n.call<abi::Reset>("nvmlDeviceResetGpuLockedClocks", d), 0);
  EXPECT_EQ(clock(), 1980U);
  unsigned count = 0, mhz[200];
  EXPECT_EQ(n.call<abi::GetClocksAt>("nvmlDeviceGetSupportedGraphicsClocks", d, 2619U, &count,
                                     static_cast<unsigned*>(nullptr)),
            abi::kInsufficientSize);
  ASSERT_EQ(count, (1980U - 210U) / 15 + 1);
  EXPECT_EQ(
      n.call<abi::GetClocksAt>("nvmlDeviceGetSupportedGraphicsClocks", d, 2619U, &count, &mhz[0]),
      abi::kSuccess);
  EXPECT_EQ(mhz[0], 1980U);
  EXPECT_EQ(mhz[count - 1], 210U);
}

TEST_F(NvmlTest, ChecksTheVersionsOfStructures) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  abi::Temperature t{};
  EXPECT_EQ(n.call<abi::GetTemperatureV>("nvmlDeviceGetTemperatureV", n.gpu(0), &t),
            abi::kArgumentVersionMismatch);
  t.version = abi::kTemperatureVersion1;
  EXPECT_EQ(n.call<abi::GetTemperatureV>("nvmlDeviceGetTemperatureV", n.gpu(0), &t), 0);
  EXPECT_GE(t.celsius, 35);
  abi::Memory2 memory{};
  EXPECT_EQ(n.call<abi::GetMemory2>("nvmlDeviceGetMemoryInfo_v2", n.gpu(0), &memory),
            abi::kArgumentVersionMismatch);
  memory.version = abi::kMemoryVersion2;
  EXPECT_EQ(n.call<abi::GetMemory2>("nvmlDeviceGetMemoryInfo_v2", n.gpu(0), &memory), 0);
  EXPECT_EQ(memory.total, 80ULL << 30);
  EXPECT_EQ(memory.total, memory.used + memory.free + memory.reserved);
}

TEST_F(NvmlTest, BelongsToTheProcessThatOpenedIt) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const abi::Device d = n.gpu(0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    unsigned long long mj = 0;
    auto* const read = n.find<abi::GetEnergy>("nvmlDeviceGetTotalEnergyConsumption");
    if (read(d, &mj) != abi::kUninitialized) ::_exit(1);
    if (n.find<abi::Init>("nvmlInit_v2")() != abi::kSuccess) ::_exit(2);
    ::_exit(read(d, &mj) == abi::kSuccess && mj > 0 ? 0 : 3);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(n.energy(d).first, abi::kSuccess);
}

TEST_F(NvmlTest, FailsAsTheScenarioSays) {
  const auto s = start(std::string(kTwo) + R"(
[[fault]]
gpu = 1
call = "all"
code = 15
[[fault]]
gpu = 0
call = "power"
every = 3
code = 999
[[fault]]
gpu = 0
call = "nvmlDeviceGetEnforcedPowerLimit"
value = 4294967295
[[fault]]
gpu = 0
call = "name"
after_calls = 1
code = 27
)");
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const abi::Device d = n.gpu(0);
  abi::Device lost = nullptr;
  EXPECT_EQ(n.call<abi::GetHandle>("nvmlDeviceGetHandleByIndex_v2", 1U, &lost), abi::kGpuIsLost);
  std::string seen;
  for (int i = 0; i < 6; ++i) {
    seen += n.number("nvmlDeviceGetPowerUsage", d).first == abi::kUnknown ? 'x' : '.';
  }
  EXPECT_EQ(seen, "..x..x");
  EXPECT_EQ(n.number("nvmlDeviceGetEnforcedPowerLimit", d), std::pair(0, 4294967295U));
  char name[96];
  EXPECT_EQ(n.call<abi::GetString>("nvmlDeviceGetName", d, name, 96U), abi::kSuccess);
  EXPECT_EQ(n.call<abi::GetString>("nvmlDeviceGetName", d, name, 96U), abi::kNotReady);
}

TEST_F(NvmlTest, FaultOfOneGpuStrikesOnlyWhatConcernsIt) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const std::string first = s->devices()[0].uuid, second = s->devices()[1].uuid;
  char text[96];
  unsigned count = 0;
  abi::Device d = nullptr;
  const auto by_uuid = [&](const std::string& uuid) {
    return n.call<abi::GetHandleByText>("nvmlDeviceGetHandleByUUID", uuid.c_str(), &d);
  };
  const auto of_the_system = [&] {
    std::vector<abi::Return> out{
        n.init(), n.call<abi::GetCount>("nvmlDeviceGetCount_v2", &count),
        n.call<abi::GetSystemString>("nvmlSystemGetDriverVersion", text, 96U)};
    if (out[0] == abi::kSuccess) out.push_back(n.shutdown());
    return out;
  };
  Fault f;
  f.device = 1;
  f.calls = calls_named("all");
  f.code = abi::kGpuIsLost;
  f.after_calls = 1;  // What does not concern it is not counted either.
  const auto one = s->fault(f);
  ASSERT_TRUE(one);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(of_the_system(), std::vector<abi::Return>(4, abi::kSuccess));
    EXPECT_EQ(by_uuid(first), abi::kSuccess);
    EXPECT_EQ(by_uuid("GPU-of-nobody"), abi::kNotFound);
    EXPECT_EQ(n.energy(n.gpu(0)).first, abi::kSuccess);
  }
  EXPECT_EQ(by_uuid(second), abi::kSuccess);
  EXPECT_EQ(by_uuid(second), abi::kGpuIsLost);
  EXPECT_EQ(n.call<abi::GetHandle>("nvmlDeviceGetHandleByIndex_v2", 1U, &d), abi::kGpuIsLost);
  s->remove_fault(*one);

  f.device = -1;
  f.after_calls = 0;
  ASSERT_TRUE(s->fault(f));
  EXPECT_EQ(of_the_system(), std::vector<abi::Return>(3, abi::kGpuIsLost));
  EXPECT_EQ(by_uuid(first), abi::kGpuIsLost);
  EXPECT_EQ(by_uuid("GPU-of-nobody"), abi::kGpuIsLost);
}

TEST_F(NvmlTest, FailsAsATestSaysAndRecovers) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const abi::Device d = n.gpu(1);
  Fault f;
  f.device = 1;
  f.calls = calls_named("energy");
  f.code = abi::kGpuIsLost;
  const auto slot = s->fault(f);
  ASSERT_TRUE(slot);
  EXPECT_EQ(n.energy(d).first, abi::kGpuIsLost);
  EXPECT_EQ(n.energy(n.gpu(0)).first, abi::kSuccess);
  abi::FieldValue field{};
  field.field = abi::kFieldTotalEnergy;
  EXPECT_EQ(n.call<abi::GetFields>("nvmlDeviceGetFieldValues", d, 1, &field), abi::kSuccess);
  EXPECT_EQ(field.result, abi::kGpuIsLost);
  s->remove_fault(*slot);
  EXPECT_EQ(n.energy(d).first, abi::kSuccess);
}

TEST_F(NvmlTest, ResetsItsCounterWhenTold) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  ASSERT_GT(n.energy(n.gpu(0)).second, 9'900'000U);
  Fault f;
  f.what = Fault::What::reset;
  f.device = 0;
  f.from = s->machine().state().now();
  ASSERT_TRUE(s->fault(f));
  EXPECT_LT(n.energy(n.gpu(0)).second, 9'900'000U);
  EXPECT_GT(n.energy(n.gpu(1)).second, 9'900'000U);
}

TEST_F(NvmlTest, ShowsTheNumberThatATestSets) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  s->set_counter(0, 123);
  EXPECT_EQ(n.energy(n.gpu(0)).second, 123U);
  s->release_counter(0);
  EXPECT_GT(n.energy(n.gpu(0)).second, 9'900'000U);
}

TEST_F(NvmlTest, CountsItsCalls) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const abi::Device d = n.gpu(0);
  const auto before = s->calls("all");
  n.energy(d);
  n.energy(d);
  EXPECT_EQ(s->calls("nvmlDeviceGetTotalEnergyConsumption"), 2U);
  EXPECT_EQ(s->calls("energy"), 2U);
  EXPECT_EQ(s->calls("all") - before, 2U);
}

TEST_F(NvmlTest, AllocatesNothingWhileReading) {
  const auto s = create("h100x8");
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const abi::Device d = n.gpu(0);
  auto* const energy = n.find<abi::GetEnergy>("nvmlDeviceGetTotalEnergyConsumption");
  auto* const fields = n.find<abi::GetFields>("nvmlDeviceGetFieldValues");
  abi::FieldValue f[2] = {};
  f[0].field = abi::kFieldPowerInstant;
  f[1].field = abi::kFieldPowerAverage;
  unsigned long long mj = 0;
  const std::size_t before = test::allocations();
  for (int i = 0; i < 10; ++i) {
    energy(d, &mj);
    fields(d, 2, f);
  }
  EXPECT_EQ(test::allocations(), before);
  EXPECT_EQ(f[1].result, abi::kSuccess);
}

TEST_F(NvmlTest, AnswersSeveralThreadsAtOnce) {
  const auto s = start(kTwo);
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const abi::Device d = n.gpu(0);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      unsigned long long before = 0;
      for (int i = 0; i < 2000; ++i) {
        if (t == 0) {
          n.call<abi::SetUnsigned>("nvmlDeviceSetPowerManagementLimit", d,
                                   i % 2 == 0 ? 60'000U : 61'000U);
        } else {
          const auto [r, mj] = n.energy(d);
          if (r != abi::kSuccess || mj < before) ++wrong;
          before = mj;
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(NvmlTest, OfAnOldDriverLacksNewerSymbols) {
  const auto s = create("no-counter");
  const Library n(*s);
  EXPECT_EQ(n.find<abi::GetFields>("nvmlDeviceGetFieldValues"), nullptr);
  EXPECT_EQ(n.find<abi::GetTemperatureV>("nvmlDeviceGetTemperatureV"), nullptr);
  EXPECT_EQ(n.find<void>("nvmlDeviceGetCurrentClocksEventReasons"), nullptr);
  ASSERT_EQ(n.init(), abi::kSuccess);
  EXPECT_EQ(n.energy(n.gpu(0)).first, abi::kNotSupported);
  EXPECT_EQ(n.number("nvmlDeviceGetPowerUsage", n.gpu(0)).first, abi::kSuccess);
}

TEST_F(NvmlTest, ShowsMigInstancesThatHaveNoPowerOfTheirOwn) {
  const auto s = start(R"(
[[gpu]]
power = { watts = 100 }
energy = {}
mig = ["MIG-a", "MIG-b"]
)");
  const Library n(*s);
  ASSERT_EQ(n.init(), abi::kSuccess);
  const abi::Device parent = n.gpu(0);
  unsigned now = 0, pending = 0;
  EXPECT_EQ(n.call<abi::GetPair>("nvmlDeviceGetMigMode", parent, &now, &pending), 0);
  EXPECT_EQ(now, 1U);
  abi::Device child = nullptr, back = nullptr;
  EXPECT_EQ(n.call<abi::GetChild>("nvmlDeviceGetMigDeviceHandleByIndex", parent, 1U, &child), 0);
  EXPECT_EQ(n.text("nvmlDeviceGetUUID", child), "MIG-b");
  EXPECT_EQ(n.energy(child).first, abi::kNotSupported);
  EXPECT_EQ(n.call<abi::GetParent>("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", child, &back),
            0);
  EXPECT_EQ(back, parent);
  EXPECT_EQ(n.call<abi::GetChild>("nvmlDeviceGetMigDeviceHandleByIndex", parent, 2U, &child),
            abi::kNotFound);
}

TEST_F(NvmlTest, ServesTwoMachinesInOneProcess) {
  const auto one = create("constant"), eight = create("h100x8");
  const Library a(*one), b(*eight);
  ASSERT_EQ(a.init(), abi::kSuccess);
  unsigned count = 0;
  EXPECT_EQ(b.call<abi::GetCount>("nvmlDeviceGetCount_v2", &count), abi::kUninitialized);
  ASSERT_EQ(b.init(), abi::kSuccess);
  EXPECT_EQ(b.call<abi::GetCount>("nvmlDeviceGetCount_v2", &count), abi::kSuccess);
  EXPECT_EQ(count, 8U);
  EXPECT_EQ(a.call<abi::GetCount>("nvmlDeviceGetCount_v2", &count), abi::kSuccess);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(b.find<const char*()>("zeus_sim_session")(), eight->folder());
}

TEST_F(NvmlTest, HasNoDriverOutsideASession) {
  const auto s = create("constant");
  const std::filesystem::path stray = tree_.root() / "stray.so";
  std::filesystem::copy(s->libraries() / "libnvidia-ml.so.1", stray);
  void* const handle = ::dlopen(stray.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(reinterpret_cast<abi::Init*>(::dlsym(handle, "nvmlInit_v2"))(), abi::kDriverNotLoaded);
}

}  // namespace
}  // namespace zeus::sim
