// Joules per iteration in a Google Benchmark: the loop says metered(state, monitor), no more.
//
//     metered_benchmark [--host=ADDRESS] [benchmark's own flags]

#include <zeus/benchmark.h>

#include <cstdio>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

void dot(benchmark::State& state, zeus::Monitor& monitor) {
  const std::vector<float> a(static_cast<std::size_t>(state.range(0)), 1.5F), b(a.size(), 2.0F);
  for (auto _ : zeus::metered(state, monitor)) {
    benchmark::DoNotOptimize(std::inner_product(a.begin(), a.end(), b.begin(), 0.0F));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string host = "local:";
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    constexpr std::string_view kHost = "--host=";
    const std::string_view arg = argv[i];
    if (arg.starts_with(kHost)) {
      host = arg.substr(kHost.size());
    } else {
      rest.push_back(argv[i]);
    }
  }
  const auto fail = [](const zeus::Error& e) {
    std::fprintf(stderr, "%s\n", e.detail.c_str());
    return 1;
  };
  const auto address = zeus::Address::parse(host);
  if (!address) return fail(address.error());
  auto machine = zeus::open(*address);
  if (!machine) return fail(machine.error());
  auto monitor = zeus::Monitor::open(std::move(*machine));
  if (!monitor) return fail(monitor.error());

  benchmark::RegisterBenchmark("dot", [&](benchmark::State& s) {
    dot(s, *monitor);
  })->Range(1 << 10, 1 << 20);
  int n = static_cast<int>(rest.size());
  benchmark::Initialize(&n, rest.data());
  if (benchmark::ReportUnrecognizedArguments(n, rest.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
