#include <dirent.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "support/allocations.h"
#include "zeus/measurement.h"
#include "zeus/zeus.h"

namespace {

// The bits of the C API are those of the C++ one.
static_assert(ZEUS_FLAG_MISSING == static_cast<unsigned>(zeus::Flag::missing));
static_assert(ZEUS_FLAG_SHORT_WINDOW == static_cast<unsigned>(zeus::Flag::short_window));
static_assert(ZEUS_FLAG_GAP == static_cast<unsigned>(zeus::Flag::gap));
static_assert(ZEUS_FLAG_RESET == static_cast<unsigned>(zeus::Flag::reset));
static_assert(ZEUS_FLAG_GAIN_UNKNOWN == static_cast<unsigned>(zeus::Flag::gain_unknown));
static_assert(ZEUS_FLAG_RANGE_UNKNOWN == static_cast<unsigned>(zeus::Flag::range_unknown));
static_assert(ZEUS_FLAG_INTEGRATED == static_cast<unsigned>(zeus::Flag::integrated));
static_assert(ZEUS_FLAG_BELOW_RESOLUTION == static_cast<unsigned>(zeus::Flag::below_resolution));
static_assert(ZEUS_FLAG_STALLED == static_cast<unsigned>(zeus::Flag::stalled));
static_assert(ZEUS_FLAG_SHARED == static_cast<unsigned>(zeus::Flag::shared));
static_assert(ZEUS_FLAG_DISAGREE == static_cast<unsigned>(zeus::Flag::disagree));
static_assert(ZEUS_MALFORMED == static_cast<int>(zeus::Errc::malformed));

struct Close {
  void operator()(zeus_monitor* m) const { zeus_close(m); }
  void operator()(zeus_record* r) const { zeus_record_free(r); }
};
using MonitorPtr = std::unique_ptr<zeus_monitor, Close>;
using RecordPtr = std::unique_ptr<zeus_record, Close>;

MonitorPtr open(const char* address, zeus_options options = {}) {
  options.size = sizeof options;
  zeus_monitor* monitor = nullptr;
  EXPECT_EQ(zeus_open(address, &options, &monitor), ZEUS_OK) << zeus_error();
  return MonitorPtr(monitor);
}
zeus_estimate energy(const zeus_record* record, size_t domain) {
  zeus_estimate e{};
  e.size = sizeof e;
  EXPECT_EQ(zeus_energy(record, domain, &e), ZEUS_OK);
  return e;
}
zeus_domain_info domain(const zeus_monitor* monitor, size_t i) {
  zeus_domain_info d{};
  d.size = sizeof d;
  EXPECT_EQ(zeus_domain(monitor, i, &d), ZEUS_OK);
  return d;
}

TEST(CApi, MeasuresAWindowAndSaysWhatItIsOf) {
  const MonitorPtr monitor = open("sim:constant");
  EXPECT_STREQ(zeus_simulation(monitor.get()), "constant");
  ASSERT_EQ(zeus_domain_count(monitor.get()), 1u);
  const zeus_domain_info d = domain(monitor.get(), 0);
  EXPECT_STREQ(d.domain, "gpu:0");
  EXPECT_EQ(std::string(d.device).rfind("GPU-", 0), 0u);
  EXPECT_EQ(d.in_total, 1);

  const RecordPtr record(zeus_record_new());
  zeus_window* window = zeus_begin(monitor.get(), "step");
  ASSERT_NE(window, nullptr);
  struct timespec nap = {1, 0};
  ::nanosleep(&nap, nullptr);
  ASSERT_EQ(zeus_end(monitor.get(), window, record.get()), ZEUS_OK);
  const zeus_estimate e = energy(record.get(), 0);
  EXPECT_GE(zeus_seconds(record.get()), 1.0);
  // Exactly 100 W. Both edges may miss up to 100 ms each: that is the bound, sqrt(6) u.
  const double truth = 100 * zeus_seconds(record.get());
  EXPECT_NEAR(e.energy_j, truth, 2.5 * e.u_cmp_j);
  EXPECT_LE(e.low_j, truth);
  EXPECT_GE(e.high_j, truth);
  EXPECT_DOUBLE_EQ(energy(record.get(), ZEUS_TOTAL).energy_j, e.energy_j);

  EXPECT_EQ(e.refusal, 0);
  EXPECT_EQ(e.quality, 'C');  // Nobody knows what NVIDIA's counter covers.
  EXPECT_TRUE(std::isnan(e.coverage));
  EXPECT_NE(e.flags & ZEUS_FLAG_COVERAGE_UNVERIFIED, 0u);
  EXPECT_LE(e.interval_low_j, truth);
  EXPECT_GE(e.interval_high_j, truth);
  EXPECT_NEAR(e.u_cmp_j, std::hypot(e.u_edges_j, e.u_quantum_j, e.u_timing_j), 1e-9 * truth);
  EXPECT_GT(e.u_gain_j, 0);
}

TEST(CApi, AlignsWindowsToTicksWhereAsked) {
  zeus_options options{};
  options.align_to_ticks = 1;
  const MonitorPtr monitor = open("sim:constant", options);
  const RecordPtr record(zeus_record_new());
  zeus_window* window = zeus_begin(monitor.get(), "short");
  struct timespec nap = {0, 250'000'000};
  ::nanosleep(&nap, nullptr);
  zeus_mark(monitor.get());
  ASSERT_EQ(zeus_end(monitor.get(), window, record.get()), ZEUS_OK);
  const zeus_estimate e = energy(record.get(), 0);
  const double truth = 100 * zeus_seconds(record.get());
  EXPECT_LE(e.u_cmp_j, 0.02 * truth);  // 4 J of 25 without.
  EXPECT_NEAR(e.energy_j, truth, 3 * e.u_cmp_j);
}

TEST(CApi, MarksWhatIsInsideAnotherDomain) {
  const MonitorPtr monitor = open("sim:laptop");
  bool psys = false, package = false;
  for (size_t i = 0; i < zeus_domain_count(monitor.get()); ++i) {
    const zeus_domain_info d = domain(monitor.get(), i);
    if (std::strcmp(d.domain, "psys:0") == 0) psys = d.in_total == 1;
    if (std::strcmp(d.domain, "package:0") == 0) package = d.in_total == 0;
  }
  EXPECT_TRUE(psys);
  EXPECT_TRUE(package);
}

TEST(CApi, ChoosesDevicesByListAndByEnvironment) {
  zeus_options options{};
  options.gpus = "0,3";
  options.cpus = "none";
  EXPECT_EQ(zeus_domain_count(open("sim:h100x8", options).get()), 2u);
  options.gpus = nullptr;
  options.environment = [](const char* name) -> char* {
    static char two[] = "5";
    return std::strcmp(name, "CUDA_VISIBLE_DEVICES") == 0 ? two : nullptr;
  };
  const MonitorPtr monitor = open("sim:h100x8", options);
  ASSERT_EQ(zeus_domain_count(monitor.get()), 1u);
  EXPECT_STREQ(domain(monitor.get(), 0).domain, "gpu:5");
}

TEST(CApi, RefusesWithOneSentence) {
  zeus_monitor* monitor = nullptr;
  EXPECT_EQ(zeus_open("sim:no-such-scenario", nullptr, &monitor), ZEUS_ABSENT) << zeus_error();
  EXPECT_EQ(monitor, nullptr);
  EXPECT_NE(std::string(zeus_error()).find("no-such-scenario"), std::string::npos);
  zeus_options options{};
  options.size = sizeof options;
  options.gpus = "9";
  EXPECT_EQ(zeus_open("sim:a100x4", &options, &monitor), ZEUS_INVALID);
  EXPECT_NE(std::string(zeus_error()).find("0 to 3"), std::string::npos) << zeus_error();
  EXPECT_EQ(zeus_open("sim:constant", nullptr, nullptr), ZEUS_INVALID);

  const MonitorPtr good = open("sim:constant");
  const RecordPtr record(zeus_record_new());
  EXPECT_EQ(zeus_end(good.get(), nullptr, record.get()), ZEUS_INVALID);
  zeus_estimate e{};
  e.size = sizeof e;
  EXPECT_EQ(zeus_energy(record.get(), 0, &e), ZEUS_INVALID);  // Nothing was recorded yet.
  zeus_domain_info d{};
  d.size = sizeof d;
  EXPECT_EQ(zeus_domain(good.get(), 1, &d), ZEUS_INVALID);
  d.size = 0;
  EXPECT_EQ(zeus_domain(good.get(), 0, &d), ZEUS_INVALID);
  zeus_abandon(zeus_begin(good.get(), nullptr));
  zeus_abandon(nullptr);
  zeus_close(nullptr);
}

TEST(CApi, TakesAnyPeriodThatIsANumber) {
  for (const double period : {1e300, 1e-3, 0.0, -1.0, std::nan(""), HUGE_VAL}) {
    zeus_options options{};
    options.period_s = period;
    EXPECT_NE(open("sim:xeon-2s", options), nullptr) << period;
  }
}

// A caller compiled with an older header has a shorter structure: no byte beyond it is touched.
TEST(CApi, WritesNoFurtherThanTheCallersStructure) {
  const MonitorPtr monitor = open("sim:constant");
  struct {
    zeus_domain_info info;
    char fence[8];
  } old{};
  std::memset(&old, 0x5a, sizeof old);
  old.info.size = offsetof(zeus_domain_info, model);
  ASSERT_EQ(zeus_domain(monitor.get(), 0, &old.info), ZEUS_OK);
  EXPECT_STREQ(old.info.domain, "gpu:0");
  const auto* bytes = reinterpret_cast<const unsigned char*>(&old);
  for (size_t i = offsetof(zeus_domain_info, model); i < sizeof old; ++i) {
    EXPECT_EQ(bytes[i], 0x5a) << i;
  }
}

TEST(CApi, AllocatesNothingForAWindowOnceWarm) {
  const MonitorPtr monitor = open("sim:constant");
  const RecordPtr record(zeus_record_new());
  ASSERT_EQ(zeus_end(monitor.get(), zeus_begin(monitor.get(), "step"), record.get()), ZEUS_OK);
  const auto before = zeus::test::allocations();
  ASSERT_EQ(zeus_end(monitor.get(), zeus_begin(monitor.get(), "step"), record.get()), ZEUS_OK);
  zeus_estimate e{};
  e.size = sizeof e;
  (void)zeus_energy(record.get(), 0, &e);
  EXPECT_EQ(zeus::test::allocations(), before);
}

// field failure 46, 47: nothing is spawned, and nothing is left when a monitor is gone.
TEST(CApi, LeavesNoThreadBehind) {
  const auto threads = [] {
    int n = 0;
    DIR* folder = ::opendir("/proc/self/task");
    while (const auto* entry = ::readdir(folder)) n += entry->d_name[0] != '.' ? 1 : 0;
    ::closedir(folder);
    return n;
  };
  const int before = threads();
  for (int i = 0; i < 10; ++i) (void)open("sim:constant");
  EXPECT_EQ(threads(), before);
}

}  // namespace
