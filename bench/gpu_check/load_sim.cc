// The load of a simulated GPU whose power is driven: it writes into the session's state when the
// power is high. Usage: gpu_load_sim SESSION GPU, where GPU counts from 0; load.h says the rest.

#include <cstdio>
#include <ctime>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>

#include "sim/session.h"

namespace {

using zeus::sim::Ns;

Ns in_ns(double s) { return static_cast<Ns>(s * 1e9); }

void sleep_until(const zeus::sim::State& state, Ns t) {
  const Ns at = t + state.epoch();
  const timespec when{at / 1'000'000'000, at % 1'000'000'000};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) != 0) {
  }
}

// High from `begin` on for `duty` of each of the periods that begin before `end`. All of it is
// written at once, so that no edge is late.
void square(zeus::sim::Machine& machine, std::size_t gpu, double period_s, double duty, Ns begin,
            Ns end) {
  Ns rise = begin;
  for (int i = 1; rise < end; ++i) {
    machine.set_load(gpu, 1, rise);
    machine.set_load(gpu, 0, std::min(end, rise + in_ns(duty * period_s)));
    rise = begin + in_ns(i * period_s);
  }
  sleep_until(machine.state(), end);
}

bool obey(zeus::sim::Machine& machine, std::size_t gpu, const std::string& line) {
  std::istringstream words(line);
  std::string what;
  double period_s = 1, duty = 1, seconds = 0;
  Ns begin = machine.state().now() + zeus::sim::State::kLead;
  words >> what;
  if (what == "square") {
    words >> period_s >> duty >> begin;
    begin -= machine.state().epoch();
  } else if (what != "busy") {
    return false;
  }
  if (!(words >> seconds)) return false;
  square(machine, gpu, period_s, duty, begin, begin + in_ns(seconds));
  return true;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fputs("usage: gpu_load_sim SESSION GPU\n", stderr);
    return 2;
  }
  const auto session = zeus::sim::Session::join(argv[1]);
  if (!session) {
    std::fprintf(stderr, "gpu_load_sim: %s\n", session.error().detail.c_str());
    return 1;
  }
  const std::size_t gpu = std::stoul(argv[2]);
  const auto& gpus = (*session)->scenario().gpus;
  if (gpu >= gpus.size() || !gpus[gpu].power.driven) {
    std::fprintf(stderr,
                 "gpu_load_sim: the power of GPU %s is not driven; use a scenario that says so\n",
                 argv[2]);
    return 1;
  }
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const bool good = obey((*session)->machine(), gpu, line);
    std::cout << (good ? "ok" : "does not know: " + line) << std::endl;
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "gpu_load_sim: %s\n", e.what());
  return 1;
}
