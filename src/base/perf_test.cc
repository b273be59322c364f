#include "base/perf.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/allocations.h"

namespace zeus {
namespace {

/// The software event that every kernel has: nanoseconds for which the processor was on.
Result<PerfCounter> cpu_clock() {
  return PerfCounter::open(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, 0);
}

/// Whether it went on counting, within what a patient person would wait.
bool advances(const PerfCounter& counter) {
  std::uint64_t before = 0, now = 0;
  if (counter.read(before) != Errc::ok) return false;
  for (int i = 0; i < 3000 && now <= before; ++i) {
    ::usleep(1000);
    if (counter.read(now) != Errc::ok) return false;
  }
  return now > before;
}

#define SKIP_IF_REFUSED(counter)                                                                 \
  if (!(counter) &&                                                                              \
      ((counter).error().code == Errc::denied || (counter).error().code == Errc::unsupported)) { \
    GTEST_SKIP() << (counter).error().detail;                                                    \
  }

TEST(PerfCounter, CountsOnWithoutAllocating) {
  const auto counter = cpu_clock();
  SKIP_IF_REFUSED(counter);
  ASSERT_TRUE(counter) << counter.error().detail;
  EXPECT_TRUE(advances(*counter));
  std::uint64_t value = 0;
  const auto before = test::allocations();
  EXPECT_EQ(counter->read(value), Errc::ok);
  EXPECT_EQ(test::allocations(), before);
}

TEST(PerfCounter, CountsOnInAForkedChild) {
  const auto counter = cpu_clock();
  SKIP_IF_REFUSED(counter);
  ASSERT_TRUE(counter) << counter.error().detail;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(advances(*counter) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(advances(*counter));
}

TEST(PerfCounter, IsClosedInWhatIsExecuted) {
  const int next = ::dup(0);  // The number that the counter gets.
  ::close(next);
  const auto counter = cpu_clock();
  SKIP_IF_REFUSED(counter);
  ASSERT_TRUE(counter) << counter.error().detail;
  EXPECT_NE(::fcntl(next, F_GETFD) & FD_CLOEXEC, 0);
}

TEST(PerfCounter, SaysWhatItCouldNotCount) {
  SKIP_IF_REFUSED(cpu_clock());
  constexpr int kNoSuchCpu = 1 << 20;
  const auto counter = PerfCounter::open(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, kNoSuchCpu);
  ASSERT_FALSE(counter);
  EXPECT_NE(counter.error().vendor, 0);
  EXPECT_EQ(counter.error().detail.find("cannot count event 0 of PMU type 1 on CPU 1048576 with "
                                        "perf_event_open: "),
            0u)
      << counter.error().detail;
  EXPECT_FALSE(PerfCounter::open(~0U, 0, 0));
}

TEST(PerfCounter, OfEverybodyIsDeniedToOrdinaryUsers) {
  SKIP_IF_REFUSED(cpu_clock());
  const auto paranoid = read_line("/proc/sys/kernel/perf_event_paranoid");
  if (::geteuid() != 0 || !paranoid || std::stoi(*paranoid) <= 0) {
    GTEST_SKIP() << "needs root, and perf_event_paranoid above 0";
  }
  ASSERT_EQ(::seteuid(65534), 0);
  const auto counter = cpu_clock();
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_FALSE(counter);
  EXPECT_EQ(counter.error().code, Errc::denied);
}

}  // namespace
}  // namespace zeus
