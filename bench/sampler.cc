// What sampling at 1 kHz costs beside a bare loop that does the same reads at the same instants.
//
//     bench_sampler [--json] [--seconds S] [--rate HZ]

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <thread>

#include "bench/node.h"
#include "zeus/monitor.h"
#include "zeus/timeline.h"

namespace {

using zeus::bench::now_ns;

struct Side {
  double cpu_s = 0;
  double missed = 0;
  double ticks = 0;
};

double rss_mib() {
  std::ifstream in("/proc/self/statm");
  long total = 0, resident = 0;
  in >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1048576;
}

/// The same reads on absolute deadlines, and nothing kept.
Side bare(const zeus::bench::Node& node, double seconds, double rate) {
  Side side;
  std::thread loop([&] {
    const auto period = static_cast<long>(1e9 / rate);
    timespec next{};
    ::clock_gettime(CLOCK_MONOTONIC, &next);
    const double end = now_ns(CLOCK_MONOTONIC) + seconds * 1e9;
    while (now_ns(CLOCK_MONOTONIC) < end) {
      node.read_bare_levels();
      ++side.ticks;
      const double now = now_ns(CLOCK_MONOTONIC);
      do {
        next.tv_nsec += period;
        if (next.tv_nsec >= 1'000'000'000) {
          next.tv_nsec -= 1'000'000'000;
          ++next.tv_sec;
        }
        const double deadline =
            static_cast<double>(next.tv_sec) * 1e9 + static_cast<double>(next.tv_nsec);
        if (deadline > now) break;
        ++side.missed;
      } while (true);
      ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, nullptr);
    }
    side.cpu_s = now_ns(CLOCK_THREAD_CPUTIME_ID) / 1e9;
  });
  loop.join();
  return side;
}

/// The sampler's own thread; its CPU time is that of the process less that of this thread's wait.
Side ours(const zeus::bench::Node& node, double seconds, double rate, double& grown_mib,
          std::size_t& sensors) {
  const auto period = std::chrono::nanoseconds(static_cast<long>(1e9 / rate));
  zeus::Monitor::Options options;
  options.period = period;
  options.follow = zeus::Monitor::Follow::power;
  const double cpu0 = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  auto monitor = zeus::Monitor::open(node.machine(), options).value();
  sensors = monitor.subject().sensors.size();
  ::usleep(200'000);
  const double rss = rss_mib();
  ::usleep(static_cast<useconds_t>((seconds - 0.2) * 1e6));
  const double cpu1 = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  grown_mib = rss_mib() - rss;
  const auto effort = monitor.sampler()->effort();
  return {(cpu1 - cpu0) / 1e9, static_cast<double>(effort.missed),
          static_cast<double>(effort.ticks)};
}

/// What the process burns beside the sampler: the thread that refreshes the simulated files.
double idle_cpu(double seconds) {
  const double cpu0 = now_ns(CLOCK_PROCESS_CPUTIME_ID);
  ::usleep(static_cast<useconds_t>(seconds * 1e6));
  return (now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu0) / 1e9;
}

}  // namespace

int main(int argc, char** argv) try {
  bool json = false;
  double seconds = 60, rate = 1000;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
      seconds = std::stod(argv[++i]);
    } else if (std::strcmp(argv[i], "--rate") == 0 && i + 1 < argc) {
      rate = std::stod(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: bench_sampler [--json] [--seconds S] [--rate HZ]\n");
      return 2;
    }
  }
  const zeus::bench::Node node("0us");
  const double background = idle_cpu(5) / 5 * seconds;
  // Alternating slices, so that a slow minute of the machine falls on both.
  constexpr int kSlices = 6;
  Side sum_ours, sum_bare;
  double grown = 0;
  std::size_t sensors = 0;
  for (int i = 0; i < kSlices; ++i) {
    double slice_grown = 0;
    const Side a = ours(node, seconds / kSlices, rate, slice_grown, sensors);
    const Side b = bare(node, seconds / kSlices, rate);
    for (const auto& [sum, side] : {std::pair{&sum_ours, a}, {&sum_bare, b}}) {
      sum->cpu_s += side.cpu_s;
      sum->missed += side.missed;
      sum->ticks += side.ticks;
    }
    grown += slice_grown;
  }
  const double cpu = sum_ours.cpu_s - background;
  if (json) {
    std::printf(
        "{\"seconds\":%g,\"rate_hz\":%g,\"sensors\":%zu,\"ours_cpu_s\":%.4f,"
        "\"bare_cpu_s\":%.4f,\"ratio\":%.4f,\"ours_ticks\":%.0f,\"bare_ticks\":%.0f,"
        "\"ours_missed\":%.0f,\"bare_missed\":%.0f,\"grown_mib\":%.3f,"
        "\"bytes_per_sample\":%zu}\n",
        seconds, rate, sensors, cpu, sum_bare.cpu_s, cpu / sum_bare.cpu_s, sum_ours.ticks,
        sum_bare.ticks, sum_ours.missed, sum_bare.missed, grown, sizeof(zeus::Sample));
    return 0;
  }
  std::printf("sampling %zu sensors (8 GPUs x 3, 4 zones) at %g Hz for %g s a side\n", sensors,
              rate, seconds);
  std::printf("%-24s %12s %12s %8s\n", "", "ours", "bare loop", "ratio");
  std::printf("%-24s %12.3f %12.3f %8.3f\n", "CPU time (s)", cpu, sum_bare.cpu_s,
              cpu / sum_bare.cpu_s);
  std::printf("%-24s %12.0f %12.0f\n", "ticks", sum_ours.ticks, sum_bare.ticks);
  std::printf("%-24s %12.0f %12.0f\n", "missed ticks", sum_ours.missed, sum_bare.missed);
  std::printf("%-24s %12.3f\n", "memory grown (MiB)", grown);
  std::printf("%-24s %12zu\n", "bytes a sample", sizeof(zeus::Sample));
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_sampler: %s\n", e.what());
  return 1;
}
