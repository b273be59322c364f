#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/bench.h"
#include "report/table.h"

namespace zeus::report {
namespace {

using enum Table::Align;

std::string named(const Bench& bench, std::size_t command) {
  return shortened(printable(bench.commands[command].name), kLongestName);
}

/// "20.1 J ± 0.3 J*": the mean and half of its 95 % interval.
std::string level(const solve::Level& l, const char* unit, bool starred) {
  if (l.summary.n == 0) return "not measured";
  const double half = l.mean.interval(0.95)[1] - l.mean.value;
  if (std::isnan(half)) return fmt::format("{} {}", rounded(l.mean.value, kNan), unit);
  return fmt::format("{} {} ± {} {}{}", rounded(l.mean.value, half), unit, rounded(half, half),
                     unit, starred ? "*" : "");
}

std::string range(const solve::Level& l, const char* unit) {
  if (l.summary.n < 2) return "";
  return fmt::format("{} … {} {}", rounded(l.summary.min, l.summary.sd),
                     rounded(l.summary.max, l.summary.sd), unit);
}

std::string p_value(double p) {
  return p < 1e-4 ? std::string("p < 0.0001") : fmt::format("p = {:.2g}", p);
}

/// A ratio with as many digits as its interval leaves it.
std::string ratio(double value, const std::array<double, 2>& interval) {
  return rounded(value, (interval[1] - interval[0]) / 2);
}

std::string interval(const std::array<double, 2>& i) {
  return fmt::format("{} to {}", ratio(i[0], i), ratio(i[1], i));
}

/// "1.031 times the energy of A (95 %: 1.012 to 1.050; p = 0.003; detectable: 1.9 %)".
std::string comparison(const solve::Comparison& c, std::string_view of_what) {
  const auto i = c.interval(0.95);
  std::string out = fmt::format("{} times {}", ratio(c.ratio(), i), of_what);
  if (std::isnan(i[0])) return out + fmt::format(" (from {}: no interval)", c.n);
  const double detectable = 100 * c.detectable();
  return out + fmt::format(" (95 %: {}; {}; detectable: {} %){}", interval(i), p_value(c.p()),
                           rounded(detectable, detectable),
                           c.p() < 0.05 ? "" : ": no difference shown");
}

std::string comparisons(const Bench& bench, const Findings& f, Style style) {
  std::string out;
  const std::string reference = named(bench, bench.reference);
  for (std::size_t c = 0; c < bench.commands.size(); ++c) {
    if (c == bench.reference) continue;
    const solve::Comparison& energy = f.energy.comparisons[c];
    const solve::Comparison& time = f.time.comparisons[c];
    if (energy.n == 0) {
      out += fmt::format("{}: no energy to compare with that of {}\n", named(bench, c), reference);
    } else {
      out += fmt::format("{} uses {}\n", bold(named(bench, c), style),
                         comparison(energy, "the energy of " + reference));
    }
    if (time.n > 0) out += fmt::format("  takes {}\n", comparison(time, "the time"));
    if (energy.n == 0) continue;
    if (style.verbose && std::isfinite(f.bootstrap[c][0])) {
      out +=
          fmt::format("  {}; bootstrap of the ratio of means, 95 %: {}\n",
                      energy.paired ? "paired by block" : "Welch's test", interval(f.bootstrap[c]));
    }
  }
  return out;
}

std::string limit_text(const Condition& c, double value, double uncertainty) {
  return fmt::format("{}{}", rounded(value, uncertainty),
                     c.relative ? "x" : fmt::format(" {}", unit_of(c.metric)));
}

std::string ruling(const Bench& bench, const Findings& f, const Ruling& v, Style style) {
  const Condition& c = bench.conditions[v.condition];
  const bool gate = c.kind == Condition::Kind::fails_if;
  std::string out = fmt::format("{} {}: {}: ", gate ? "--fail-if" : "--no-worse-than",
                                printable(c.text), bold(named(bench, v.command), style));
  if (!v.judged) {
    return out + fmt::format("CANNOT BE JUDGED: too few runs have a number of its {}\n",
                             to_string(c.metric));
  }
  const double half = (v.limits[1] - v.limits[0]) / 2;
  const auto number = [&](double value) { return limit_text(c, value, half); };
  if (v.answer == solve::Answer::undecided) {
    out += fmt::format("{}: {} to {} (90 %) holds the limit", gate ? "cannot be told" : "FAILS",
                       number(v.limits[0]), number(v.limits[1]));
  } else {
    const bool low = (v.answer == solve::Answer::shown) == (gate && c.above);
    out += fmt::format("{}: {}, at {} {} (95 %)", v.fails ? "FAILS" : "holds", number(v.value),
                       low ? "least" : "most", number(v.limits[low ? 0 : 1]));
  }
  const bool without_gain = !c.relative && c.metric != Metric::time && !f.gain_included;
  return out +
         (without_gain ? ", without the gain of the sensor, which nobody calibrated\n" : "\n");
}

std::string header(const Bench& bench, Style style) {
  std::string out =
      fmt::format("{} {} of {}", bold("zeus bench", style),
                  bench.runs == 1 ? "one run each" : fmt::format("{} runs each", bench.runs),
                  bench.commands.size() == 1 ? std::string("one command")
                                             : fmt::format("{} commands", bench.commands.size()));
  if (bench.commands.size() > 1) {
    out += bench.order == solve::Order::random
               ? fmt::format(", random blocks (seed {})", bench.seed)
               : fmt::format(", {}", to_string(bench.order));
  }
  if (bench.warmup > 0) out += fmt::format(", {} to warm up", bench.warmup);
  if (bench.period_s > 0) {
    out += fmt::format(", starts at {} phases of {:g} ms", bench.phases, bench.period_s * 1e3);
  }
  return out + '\n';
}

}  // namespace

std::string to_text(const Bench& bench, const Findings& f, Style style) {
  std::string out = header(bench, style) + simulated(bench.host.simulation, style);
  Table table({right, left, left, left, left, left});
  table.row({"", "command", "energy", "time", "power", "min … max"});
  for (std::size_t c = 0; c < bench.commands.size(); ++c) {
    const solve::Level& joules = f.energy.levels[c];
    table.row({std::to_string(c + 1), named(bench, c), level(joules, "J", !f.gain_included),
               level(f.time.levels[c], "s", false), level(f.power.levels[c], "W", !f.gain_included),
               range(joules, "J")});
  }
  out += table.text();
  out += f.gain_included
             ? "  ± is the 95 % interval of the mean, the gain of the sensors included\n"
             : "  ± is the 95 % interval of the mean; * of an uncalibrated sensor, "
               "without its gain\n";
  out += comparisons(bench, f, style);
  for (const Ruling& v : f.rulings) out += ruling(bench, f, v, style);
  for (const std::string& w : f.warnings) {
    out += fmt::format("{} {}\n", bold("warning:", style), printable(w));
  }
  for (const auto& [kind, selection] : bench.selections) {
    out += to_text(kind == "gpu" ? "GPUs" : "CPUs", selection, bench.devices);
  }
  out += to_text(bench.problems, style);
  double measured = 0;
  Duration edges{};
  for (const BenchRun& r : bench.done) {
    measured += r.window.seconds();
    edges += r.window.self_cost;
  }
  return out + to_text(bench.overhead, measured, edges);
}

std::string to_csv(const Bench& bench, const Findings& f) {
  std::string out =
      "run,command,name,block,energy_j,u_cmp_j,duration_s,mean_power_w,start_temperature_c,"
      "exit_status,flags\n";
  const auto cell = [](double v) {
    return std::isfinite(v) ? fmt::format("{}", v) : std::string();
  };
  for (std::size_t i = 0; i < bench.done.size(); ++i) {
    const BenchRun& r = bench.done[i];
    std::string flags;
    for (const auto name : names(r.window.total.flags)) {
      flags += (flags.empty() ? "" : " ") + std::string(name);
    }
    const bool usable = f.energy.outcomes[i].usable();
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", r.place + 1, r.command + 1,
                       csv_field(bench.commands[r.command].name), r.block + 1,
                       cell(f.energy.outcomes[i].value), usable ? cell(r.window.total.u_cmp) : "",
                       cell(r.window.seconds()), cell(f.power.outcomes[i].value),
                       cell(r.start_temperature_c),
                       r.exit.code ? std::to_string(*r.exit.code)
                                   : fmt::format("{}", 128 + r.exit.signal.value_or(0)),
                       flags);
  }
  return out;
}

std::string to_markdown(const Bench& bench, const Findings& f) {
  const auto code = [](std::string_view text) {
    std::string out = "`";
    for (const char c : printable(text)) out += c == '|' ? std::string("\\|") : std::string(1, c);
    return out + '`';
  };
  std::string out =
      "| Command | Energy | Time | Power | Energy, relative |\n|:---|---:|---:|---:|---:|\n";
  for (std::size_t c = 0; c < bench.commands.size(); ++c) {
    const solve::Comparison& energy = f.energy.comparisons[c];
    std::string relative = c == bench.reference ? "1" : "";
    if (c != bench.reference && energy.n > 0) {
      const auto i = energy.interval(0.95);
      relative = ratio(energy.ratio(), i);
      if (std::isfinite(i[0])) relative += fmt::format(" ({})", interval(i));
    }
    out += fmt::format("| {} | {} | {} | {} | {} |\n", code(bench.commands[c].name),
                       level(f.energy.levels[c], "J", !f.gain_included),
                       level(f.time.levels[c], "s", false),
                       level(f.power.levels[c], "W", !f.gain_included), relative);
  }
  out += "\n± and the ranges are 95 % intervals";
  if (!f.gain_included) out += "; \\* without the gain of the sensor, which nobody calibrated";
  if (bench.host.simulation) {
    out += fmt::format(". SIMULATED (scenario {})", printable(bench.host.simulation->scenario));
  }
  return out + ".\n";
}

}  // namespace zeus::report
