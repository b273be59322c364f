// What a measurement window costs beside the bare vendor calls that it cannot do without.
//
//     bench_window [--json] [--rounds N]

#include <time.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/node.h"
#include "support/allocations.h"
#include "zeus/monitor.h"

namespace {

using zeus::bench::median;
using zeus::bench::now_ns;

struct Row {
  std::string latency;
  double ours_ns, judged_ns, bare_ns;
  std::size_t allocations;
};

Row compare(const std::string& latency, int rounds) {
  constexpr int kPairs = 20;
  const zeus::bench::Node node(latency);
  auto monitor = zeus::Monitor::open(node.machine()).value();
  zeus::Measurement out;
  std::vector<double> ours, judged, bare;
  const auto pair = [&] { (void)monitor.end(monitor.begin("window"), out); };
  double joules = 0;
  const auto judge = [&] {
    pair();
    joules += zeus::estimate(out, zeus::kNode).high;
  };
  pair();
  for (int r = 0; r < rounds; ++r) {
    const double t0 = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < kPairs; ++i) pair();
    const double t1 = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < 2 * kPairs; ++i) node.read_bare();
    const double t2 = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < kPairs; ++i) judge();
    const double t3 = now_ns(CLOCK_MONOTONIC);
    if (r == 0) continue;  // Warm-up.
    judged.push_back((t3 - t2) / kPairs);
    ours.push_back((t1 - t0) / kPairs);
    bare.push_back((t2 - t1) / kPairs);
  }
  const auto before = zeus::test::allocations();
  for (int i = 0; i < kPairs; ++i) judge();
  const auto allocations = zeus::test::allocations() - before;
  if (!(joules > 0)) throw std::runtime_error("nothing was measured");
  return {latency, median(ours), median(judged), median(bare), allocations};
}

}  // namespace

int main(int argc, char** argv) try {
  bool json = false;
  int rounds = 200;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
      rounds = std::stoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: bench_window [--json] [--rounds N]\n");
      return 2;
    }
  }
  if (!json) {
    std::printf("begin + end on 8 simulated GPUs, 2 packages, 2 DRAM zones; median of %d rounds\n",
                rounds - 1);
    std::printf("%-14s %12s %12s %8s %12s %12s %14s\n", "vendor call", "ours (us)", "bare (us)",
                "ratio", "added (ns)", "allocations", "judged, ratio");
  }
  std::string separator = "[";
  for (const char* latency : {"10us", "0us"}) {
    const Row r = compare(latency, rounds);
    if (json) {
      std::printf(
          "%s{\"latency\":\"%s\",\"ours_ns\":%.0f,\"bare_ns\":%.0f,\"ratio\":%.4f,"
          "\"judged_ns\":%.0f,\"allocations\":%zu}",
          separator.c_str(), latency, r.ours_ns, r.bare_ns, r.ours_ns / r.bare_ns, r.judged_ns,
          r.allocations);
      separator = ",\n";
    } else {
      std::printf("%-14s %12.2f %12.2f %8.3f %12.0f %12zu %14.3f\n", latency, r.ours_ns / 1e3,
                  r.bare_ns / 1e3, r.ours_ns / r.bare_ns, r.ours_ns - r.bare_ns, r.allocations,
                  r.judged_ns / r.bare_ns);
    }
  }
  if (json) std::printf("]\n");
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_window: %s\n", e.what());
  return 1;
}
