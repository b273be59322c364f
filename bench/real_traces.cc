// What estimate() makes of real GPU sensors, against an external meter on the same clock: the table
// of the specification of accuracy, section 5.2b. Usage:
//
//   bench_real_traces DIR [--json]
//   bench_real_traces DIR --windows TRACE SECONDS    every window of one row, as CSV
//
// DIR holds the traces of JimZeyuYang/GPU_Power_Benchmark (MIT) as ../shared/data/README.md
// describes them. Windows overlap, so that their errors are not independent.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "measure/view.h"
#include "support/trace.h"
#include "zeus/measurement.h"

namespace {

using zeus::test::instant;
using zeus::test::Line;
using zeus::test::Trace;
namespace fs = std::filesystem;

constexpr double kStep = 0.037;  // From one window to the next, in seconds.

struct Row {
  std::string trace, gain_from;
  double length = 0, update = 0.1, window = 0.1, delay = 0;
  Line line;
  bool marked = false;
};

struct Result {
  std::size_t n = 0, within = 0, refused = 0;
  double sum = 0, squares = 0, absolute = 0, greatest = 0, u = 0;
  double naive_sum = 0, naive_squares = 0, naive_greatest = 0;
  double mean() const { return sum / static_cast<double>(n); }
  double sd() const {
    return std::sqrt(std::max(0.0, squares / static_cast<double>(n) - mean() * mean()));
  }
  double naive_mean() const { return naive_sum / static_cast<double>(n); }
  double naive_sd() const {
    return std::sqrt(
        std::max(0.0, naive_squares / static_cast<double>(n) - naive_mean() * naive_mean()));
  }
};

zeus::SensorInfo sensor(const Trace& trace, const Row& row) {
  zeus::SensorInfo info;
  info.name = "power";
  info.quantity = zeus::Quantity::power;
  info.scale = 1e-3;
  info.domain = {zeus::Scope::gpu, 0};
  auto& p = info.profile;
  p.kind = zeus::SensorKind::boxcar;
  p.update = zeus::Duration(zeus::test::ns(row.update));
  p.window = zeus::Duration(zeus::test::ns(row.window));
  p.delay = zeus::Duration(zeus::test::ns(row.delay));
  p.power_min_w = trace.lowest();
  p.power_max_w = trace.highest();
  p.gain = row.line.gain;
  p.offset_w = row.line.offset;
  p.gain_u = 0.01 / std::sqrt(3.0);
  p.gain_class = zeus::GainClass::unit;
  return info;
}

zeus::Measurement window(const Trace& trace, const Row& row, double a, double b) {
  const zeus::SensorInfo info = sensor(trace, row);
  // As a recording keeps them: all readings of the run.
  const auto& polls = trace.polls();
  const auto raw = [&](double t) {
    return static_cast<std::uint64_t>(std::llround(trace.shown(t) * 1e3));
  };
  auto m =
      zeus::test::record_of(info, polls, {{instant(a), raw(a)}, {}}, {{instant(b), raw(b)}, {}});
  if (row.marked) {
    for (const double t : trace.marks()) m.marks.push_back(instant(t));
  }
  return m;
}

/// The delay of a sensor: that with which windows of a second fit the meter best.
double fit_delay(const Trace& trace, Row row) {
  double best = std::numeric_limits<double>::infinity(), delay = 0;
  for (int ms = -25; ms <= 25; ++ms) {
    row.delay = ms * 1e-3;
    double squares = 0;
    for (double a = trace.marks().front(); a + 1 < trace.marks().back(); a += 5 * kStep) {
      const auto e = zeus::estimate(window(trace, row, a, a + 0.3), {zeus::Scope::gpu, 0});
      const double truth = trace.energy(a, a + 0.3);
      if (e.refusal == zeus::Refusal::none) squares += std::pow(e.value / truth - 1, 2);
    }
    if (squares < best) {
      best = squares;
      delay = row.delay;
    }
  }
  return delay;
}

/// One window: energies in joules.
struct Window {
  double begin, truth, naive, ours, u;
  bool refused;
};

std::vector<Window> windows(const Trace& trace, const Row& row) {
  std::vector<Window> out;
  for (double a = trace.marks().front() + 0.01; a + row.length + 0.3 < trace.marks().back();
       a += kStep) {
    const double b = a + row.length;
    const auto m = window(trace, row, a, b);
    // Before it is graded: a value that estimate() would refuse counts here like any other.
    const auto e = zeus::estimators::from_power(zeus::estimators::View(m, 0));
    const bool refused = zeus::estimate(m, {zeus::Scope::gpu, 0}).refusal != zeus::Refusal::none;
    out.push_back({a, trace.energy(a, b), trace.naive(a, b), e.value, e.u_abs, refused});
  }
  return out;
}

Result summary(const std::vector<Window>& all) {
  Result r;
  for (const Window& w : all) {
    const double error = 100 * (w.ours / w.truth - 1), naive = 100 * (w.naive / w.truth - 1);
    ++r.n;
    if (w.refused) ++r.refused;
    r.sum += error;
    r.squares += error * error;
    r.absolute += std::abs(error);
    r.greatest = std::max(r.greatest, std::abs(error));
    r.u += 100 * w.u / w.truth;
    if (std::abs(w.ours - w.truth) <= 2 * w.u) ++r.within;
    r.naive_sum += naive;
    r.naive_squares += naive * naive;
    r.naive_greatest = std::max(r.naive_greatest, std::abs(naive));
  }
  return r;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const bool json = args.size() == 2 && args[1] == "--json";
  const bool one = args.size() == 4 && args[1] == "--windows";
  if (args.empty() || (args.size() > 1 && !json && !one) || !fs::is_directory(args.front())) {
    std::cerr << "usage: bench_real_traces DIR [--json | --windows TRACE SECONDS], where DIR holds "
                 "square-wave-3090 ...\n";
    return 2;
  }
  const fs::path dir = args.front();
  std::vector<Row> rows;
  const auto add = [&](const char* trace, const char* gain, double update, double length_of_window,
                       bool marked, std::initializer_list<double> lengths) {
    for (const double l : lengths) {
      if (one && (args[2] != trace || std::stod(args[3]) != l)) continue;
      rows.push_back({trace, gain, l, update, length_of_window, 0, {}, marked});
    }
  };
  add("square-wave-3090", "step-3090", 0.1, 0.1, false, {0.2, 1, 4});
  add("step-a5000", "step-a5000", 0.1, 0.105, false, {1});
  add("step-4090", "step-4090", 0.1, 0.105, false, {1});
  add("square-wave-a100", "step-a100", 0.10115, 0.025, true, {0.2, 1, 3.4, 7});

  nlohmann::json out = nlohmann::json::array();
  if (!json && !one) {
    fmt::print("{:<18}{:>6} | {:>7}{:>7}{:>7} | {:>7}{:>7}{:>7}{:>7} | {:>7} {:>8} {:>5}\n",
               "trace", "L s", "naive %", "sd", "max", "ours %", "sd", "|mean|", "max", "u %",
               "coverage", "n");
  }
  std::string known;
  double delay = 0;
  for (Row& row : rows) {
    const Trace trace(dir / row.trace);
    row.line = zeus::test::steady_gain(Trace(dir / row.gain_from), row.window);
    // That of a sensor that looks at a part of the time cannot be told from short windows.
    if (known != row.trace) delay = row.window < row.update / 2 ? 0 : fit_delay(trace, row);
    known = row.trace;
    row.delay = delay;
    const auto all = windows(trace, row);
    if (one) {
      fmt::print("begin_s,truth_j,naive_j,ours_j,u_j\n");
      for (const Window& w : all) {
        fmt::print("{:.3f},{:.4f},{:.4f},{:.4f},{:.4f}\n", w.begin, w.truth, w.naive, w.ours, w.u);
      }
      continue;
    }
    const Result r = summary(all);
    const auto n = static_cast<double>(r.n);
    const double covered = static_cast<double>(r.within) / n;
    if (json) {
      out.push_back({{"trace", row.trace},
                     {"gain_from", row.gain_from},
                     {"length_s", row.length},
                     {"gain", row.line.gain},
                     {"offset_w", row.line.offset},
                     {"delay_s", row.delay},
                     {"n", r.n},
                     {"refused", r.refused},
                     {"naive_mean_pct", r.naive_mean()},
                     {"naive_sd_pct", r.naive_sd()},
                     {"naive_max_pct", r.naive_greatest},
                     {"mean_pct", r.mean()},
                     {"sd_pct", r.sd()},
                     {"mean_abs_pct", r.absolute / n},
                     {"max_pct", r.greatest},
                     {"u_pct", r.u / n},
                     {"coverage", covered}});
      continue;
    }
    fmt::print(
        "{:<18}{:>6} | {:>7.2f}{:>7.2f}{:>7.1f} | {:>7.2f}{:>7.2f}{:>7.2f}{:>7.1f} | {:>7.2f} "
        "{:>8.3f} {:>5} {} refused, gain {:.4f} {:+.2f} W, delay {:.0f} ms\n",
        row.trace, row.length, r.naive_mean(), r.naive_sd(), r.naive_greatest, r.mean(), r.sd(),
        r.absolute / n, r.greatest, r.u / n, covered, r.n, r.refused, row.line.gain,
        row.line.offset, 1e3 * row.delay);
  }
  if (rows.empty()) {
    std::cerr << "bench_real_traces: there is no row for that trace and length\n";
    return 2;
  }
  if (json) std::cout << out.dump(2) << '\n';
  return 0;
}
