#include "base/perf.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace zeus {
namespace {

Errc refusal(int e) noexcept {
  switch (e) {
    case ENOSYS: return Errc::unsupported;
    case EINVAL: return Errc::invalid;
    default: return from_errno(e);
  }
}

}  // namespace

Result<PerfCounter> PerfCounter::open(std::uint32_t type, std::uint64_t config, int cpu) {
  const auto failed = [&](Errc code, int e, const std::string& why) {
    return Error{code, e,
                 "cannot count event " + std::to_string(config) + " of PMU type " +
                     std::to_string(type) + " on CPU " + std::to_string(cpu) +
                     " with perf_event_open: " + why};
  };
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = type;
  attr.config = config;
  attr.pinned = 1;  // All of the time or not at all, never a share that would have to be scaled up.
  constexpr pid_t kEverybody = -1;
  constexpr int kNoGroup = -1;
  const long fd =
      ::syscall(SYS_perf_event_open, &attr, kEverybody, cpu, kNoGroup, PERF_FLAG_FD_CLOEXEC);
  if (fd < 0) {
    const int e = errno;
    return failed(refusal(e), e, std::generic_category().message(e));
  }
  PerfCounter counter{Fd(static_cast<int>(fd))};
  std::uint64_t value = 0;
  errno = 0;
  if (const Errc e = counter.read(value); e != Errc::ok) {
    return failed(e, errno, "it does not count");
  }
  return counter;
}

Errc PerfCounter::read(std::uint64_t& value) const noexcept {
  std::uint64_t counted = 0;
  const ssize_t n = ::read(fd_.get(), &counted, sizeof counted);
  if (n < 0) return from_errno(errno);
  if (n != static_cast<ssize_t>(sizeof counted)) return Errc::lost;
  value = counted;
  return Errc::ok;
}

}  // namespace zeus
