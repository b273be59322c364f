#include "sim/follow.h"

#include <dirent.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/files.h"

namespace zeus::sim {

namespace {

struct Process {
  pid_t pid, parent;
  Ns reaped;  // CPU time of children that it has waited for.
};

// Nothing if the process is gone.
bool read_process(int proc, pid_t pid, Process& out) {
  char path[32], text[1024];
  std::snprintf(path, sizeof path, "%d/stat", pid);
  const Fd fd(::openat(proc, path, O_RDONLY | O_CLOEXEC));
  const ssize_t n = fd.get() < 0 ? -1 : ::read(fd.get(), text, sizeof text - 1);
  if (n <= 0) return false;
  text[n] = '\0';
  const char* const after_name = std::strrchr(text, ')');  // A name may hold spaces and brackets.
  unsigned long long user = 0, system = 0;
  // Field 4 is the parent; 16 and 17 are the times of reaped children.
  if (after_name == nullptr ||
      std::sscanf(after_name + 1, " %*c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu",
                  &out.parent, &user, &system) != 3) {
    return false;
  }
  static const long kTicks = ::sysconf(_SC_CLK_TCK);
  out.pid = pid;
  out.reaped = static_cast<Ns>(user + system) * 1'000'000'000 / kTicks;
  return true;
}

// Of all its threads, to the nanosecond, where /proc would count in ticks.
Ns own_time(pid_t pid) {
  clockid_t clock{};
  timespec t{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &t) != 0) return 0;
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

Ns tree_cpu_time(pid_t root) {
  std::vector<Process> all;
  DIR* const proc = ::opendir("/proc");
  if (proc == nullptr) return own_time(root);
  // This thread alone reads this stream. NOLINTNEXTLINE(concurrency-mt-unsafe)
  while (const dirent* e = ::readdir(proc)) {
    const auto pid = static_cast<pid_t>(std::strtol(e->d_name, nullptr, 10));
    if (Process p{}; pid > 0 && read_process(::dirfd(proc), pid, p)) all.push_back(p);
  }
  ::closedir(proc);

  Ns sum = 0;
  std::vector<pid_t> tree{root};
  for (std::size_t i = 0; i < tree.size(); ++i) {
    sum += own_time(tree[i]);
    for (const Process& p : all) {
      if (p.pid == tree[i]) sum += p.reaped;
      if (p.parent == tree[i]) tree.push_back(p.pid);
    }
  }
  return sum;
}

Follower::Follower(Machine& machine)
    : machine_(machine),
      root_(::getpid()),
      before_(machine.state().now()),
      cpu_before_(tree_cpu_time(root_)),
      worker_(std::chrono::milliseconds(50), [this] { tick(); }) {}

void Follower::tick() {
  constexpr Ns kShortest = 20'000'000;  // Over less, the load would be noise.
  const Ns now = machine_.state().now();
  if (now - before_ < kShortest) return;
  const Ns cpu = tree_cpu_time(root_);
  const double busy = std::max(0.0, seconds(cpu - cpu_before_) / seconds(now - before_));
  before_ = now;
  cpu_before_ = cpu;
  const Scenario& s = machine_.scenario();
  const auto update = [&](std::size_t device, const Power& power) {
    if (!power.follow || power.driven) return;
    const double load = std::min(1.0, busy / power.cores);
    if (std::abs(load - machine_.state().last(device).load) > 0.01) machine_.set_load(device, load);
  };
  for (std::size_t i = 0; i < s.gpus.size(); ++i) update(i, s.gpus[i].power);
  for (std::size_t i = 0; i < s.zones.size(); ++i)
    update(machine_.zone_device(i), s.zones[i].power);
}

}  // namespace zeus::sim
