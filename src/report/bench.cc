#include "report/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace zeus::report {
namespace {

using solve::Outcome;

/// How many parts every run misses: a device that tells nothing at all.
std::size_t always_missing(const Bench& bench) {
  std::size_t least = bench.done.empty() ? 0 : bench.done.front().window.missing.size();
  for (const BenchRun& r : bench.done) least = std::min(least, r.window.missing.size());
  return least;
}

bool counts(const BenchRun& run, std::size_t may_miss) {
  const Estimate& e = run.window.total;
  return e.value > 0 && std::isfinite(e.value) && !has(e.flags, Flag::reset) &&
         run.window.missing.size() <= may_miss;
}

std::vector<Outcome> outcomes(const Bench& bench, Metric metric, bool with_gain) {
  const std::size_t may_miss = always_missing(bench);
  const std::size_t spread = bench.period_s > 0 ? bench.phases : 0;
  std::vector<Outcome> out;
  for (const BenchRun& r : bench.done) {
    Outcome o{.command = r.command,
              .block = r.block,
              .place = static_cast<double>(r.place),
              .temperature = r.start_temperature_c};
    const double seconds = r.window.seconds();
    if (metric == Metric::time) {
      o.value = seconds;
    } else if (counts(r, may_miss)) {
      const Estimate& e = r.window.total;
      const double per = metric == Metric::power ? seconds : 1;
      const double gain = std::sqrt(std::max(0.0, e.u_abs * e.u_abs - e.u_cmp * e.u_cmp));
      o.value = e.value / per;
      o.u = e.u_cmp / per;
      o.u_common = std::hypot(common_u(e, spread), with_gain ? gain : 0) / per;
    }
    out.push_back(o);
  }
  return out;
}

Findings::PerMetric judge_metric(const Bench& bench, Metric metric, bool with_gain) {
  Findings::PerMetric out{outcomes(bench, metric, false), {}, {}};
  const auto levels = outcomes(bench, metric, with_gain);
  for (std::size_t c = 0; c < bench.commands.size(); ++c) {
    out.levels.push_back(solve::level_of(levels, c));
    out.comparisons.push_back(solve::compare(out.outcomes, c, bench.reference, bench.order));
  }
  return out;
}

Ruling judge_condition(const Condition& c, const Findings::PerMetric& all, std::size_t command) {
  Ruling v{.condition = 0, .command = command};
  const solve::Comparison& comparison = all.comparisons[command];
  const solve::Uncertain& mean = all.levels[command].mean;
  v.value = c.relative ? comparison.ratio() : mean.value;
  v.limits = c.relative ? comparison.interval(0.90) : mean.interval(0.90);
  v.judged = std::isfinite(v.limits[0]) && std::isfinite(v.limits[1]);
  v.answer = c.kind == Condition::Kind::fails_if && c.above ? solve::above(v.limits, c.limit)
                                                            : solve::below(v.limits, c.limit);
  v.fails = v.judged && (c.kind == Condition::Kind::fails_if ? v.answer == solve::Answer::shown
                                                             : v.answer != solve::Answer::shown);
  return v;
}

std::vector<Ruling> judge_conditions(const Bench& bench, const Findings& f) {
  std::vector<Ruling> out;
  for (std::size_t i = 0; i < bench.conditions.size(); ++i) {
    const Condition& c = bench.conditions[i];
    for (std::size_t k = 0; k < bench.commands.size(); ++k) {
      if (c.relative && k == bench.reference) continue;
      out.push_back(judge_condition(c, f.of(c.metric), k));
      out.back().condition = i;
    }
  }
  return out;
}

/// Collects what a reader must know before believing the numbers.
class Warnings {
 public:
  Warnings(const Bench& bench, const Findings& findings) : bench_(bench), f_(findings) {
    how_it_ended();
    design();
    failures();
    energies();
    temperatures();
    drift();
    flags();
    for (const std::size_t i : f_.outliers) {
      const BenchRun& r = bench_.done[i];
      add("run {} ({}): {} J lies far from the others of its command; it is kept", r.place + 1,
          name(r.command), rounded(r.window.total.value, kNan));
    }
  }
  std::vector<std::string> take() { return std::move(out_); }

 private:
  template <class... T>
  void add(fmt::format_string<T...> format, T&&... args) {
    out_.push_back(fmt::format(format, std::forward<T>(args)...));
  }
  std::string name(std::size_t command) const {
    return shortened(printable(bench_.commands[command].name), kLongestName);
  }
  static std::string without(const WindowResult& w) {
    return fmt::format(
        "without {}{}", w.missing.front(),
        w.missing.size() > 1 ? fmt::format(" and {} more", w.missing.size() - 1) : "");
  }
  std::size_t made(std::size_t command) const {
    return static_cast<std::size_t>(
        std::count_if(bench_.done.begin(), bench_.done.end(),
                      [command](const BenchRun& r) { return r.command == command; }));
  }

  void how_it_ended() {
    if (bench_.ended_early.empty()) return;
    add("{}: {} of {} runs were made", bench_.ended_early, bench_.done.size(),
        bench_.runs * bench_.commands.size());
  }

  void design() {
    if (bench_.runs < solve::kLeast) {
      add("{} give no interval; 3 do, 5 or more are advised",
          bench_.runs == 1 ? std::string("single runs") : fmt::format("{} runs", bench_.runs));
    } else if (bench_.runs < solve::kAdvised) {
      add("{} runs give wide intervals; 5 or more are advised", bench_.runs);
    }
    if (bench_.phases > 0 && bench_.period_s <= 0 && f_.energy.levels[0].summary.n > 0) {
      add("nobody knows how often the sensors look: starts are not spread over their period");
    }
    if (bench_.order == solve::Order::sequential && bench_.commands.size() > 1) {
      add("one command after the other: what drifts looks like a difference between them; "
          "--order random tells them apart");
    }
  }

  void failures() {
    for (std::size_t c = 0; c < bench_.commands.size(); ++c) {
      std::size_t failed = 0;
      Exit last;
      for (const BenchRun& r : bench_.done) {
        if (r.command != c || r.exit.code == 0) continue;
        ++failed;
        last = r.exit;
      }
      if (failed > 0) {
        add("{}: {} of {} runs failed ({}), and count", name(c), failed, made(c), to_text(last));
      }
    }
  }

  void energies() {
    for (std::size_t c = 0; c < bench_.commands.size(); ++c) {
      const std::size_t with = f_.energy.levels[c].summary.n, all = made(c);
      if (with == all) continue;
      std::string why = "nothing chosen here tells energy";
      for (std::size_t i = 0; i < bench_.done.size(); ++i) {
        const WindowResult& w = bench_.done[i].window;
        if (bench_.done[i].command != c || f_.energy.outcomes[i].usable()) continue;
        if (has(w.total.flags, Flag::reset)) why = explain(Flag::reset);
        if (!w.missing.empty()) why = without(w);
      }
      add("{}: {} of {} runs have no energy that can be compared ({})", name(c), all - with, all,
          why);
    }
    if (always_missing(bench_) > 0) {
      add("every energy is incomplete: {}", without(bench_.done.front().window));
    }
  }

  void temperatures() {
    constexpr double kTolerance = 2;  // degC, as where runs wait for each other's temperature.
    std::size_t hot = 0;
    double least = kNan, most = kNan;
    for (std::size_t c = 0; c < bench_.commands.size(); ++c) {
      std::vector<double> values;
      for (const BenchRun& r : bench_.done) {
        if (r.command == c) values.push_back(r.start_temperature_c);
      }
      const double mean = solve::summarize(values).mean;
      least = std::fmin(least, mean);
      most = std::fmax(most, mean);
    }
    for (const BenchRun& r : bench_.done) hot += r.cooled ? 0 : 1;
    if (hot > 0)
      add("{} of {} runs began hotter than asked: the limit of the wait was hit", hot,
          bench_.done.size());
    if (most - least > kTolerance) {
      add("the commands did not start equally warm: {:.1f} to {:.1f} degC on average", least, most);
    }
  }

  void drift() {
    const auto percent = [](double per) { return 100 * per; };
    if (f_.per_run.drifts()) {
      add("drift: the energy changes by {:+.2g} % a run (t = {:.1f}){}",
          percent(f_.per_run.per_unit), f_.per_run.t,
          bench_.order == solve::Order::random ? "; random blocks keep it out of the ratios" : "");
    }
    if (f_.per_degree.drifts()) {
      add("drift: the energy changes by {:+.2g} % for each degC at the start (t = {:.1f})",
          percent(f_.per_degree.per_unit), f_.per_degree.t);
    }
  }

  void flags() {
    for (unsigned bit = 0; bit < 32; ++bit) {
      const auto flag = static_cast<Flag>(1u << bit);
      const auto n = std::count_if(bench_.done.begin(), bench_.done.end(), [&](const BenchRun& r) {
        return has(r.window.total.flags, flag);
      });
      if (n == 0 || !worth_a_word(flag)) continue;
      add("{} of {} runs: {}", n, bench_.done.size(), explain(flag));
    }
  }

  const Bench& bench_;
  const Findings& f_;
  std::vector<std::string> out_;
};

}  // namespace

double common_u(const Estimate& e, std::size_t phases) {
  if (phases == 0) return e.u_cmp;
  const auto square = [](double x) { return x * x; };
  const double by_phase = square(e.budget.edges) + square(e.budget.coverage);
  const double rest = square(e.u_cmp) - by_phase - square(e.budget.quantum);
  return std::sqrt(std::max(0.0, rest) + by_phase / square(static_cast<double>(phases)));
}

const Findings::PerMetric& Findings::of(Metric metric) const noexcept {
  return metric == Metric::energy ? energy : metric == Metric::time ? time : power;
}

bool Findings::fails() const noexcept {
  return std::any_of(rulings.begin(), rulings.end(), [](const Ruling& v) { return v.fails; });
}

bool Findings::judged() const noexcept {
  return std::all_of(rulings.begin(), rulings.end(), [](const Ruling& v) { return v.judged; });
}

Findings analyze(const Bench& bench) {
  Findings out;
  out.gain_included = std::none_of(bench.done.begin(), bench.done.end(), [](const BenchRun& r) {
    return has(r.window.total.flags, Flag::gain_unknown);
  });
  out.energy = judge_metric(bench, Metric::energy, out.gain_included);
  out.time = judge_metric(bench, Metric::time, false);
  out.power = judge_metric(bench, Metric::power, out.gain_included);
  for (std::size_t c = 0; c < bench.commands.size(); ++c) {
    out.bootstrap.push_back(
        solve::bootstrap_ratio(out.energy.outcomes, c, bench.reference, bench.order));
  }
  out.per_run = solve::slope_of(out.energy.outcomes, &Outcome::place);
  out.per_degree = solve::slope_of(out.energy.outcomes, &Outcome::temperature);
  out.outliers = solve::outliers(out.energy.outcomes);
  out.rulings = judge_conditions(bench, out);
  out.warnings = Warnings(bench, out).take();
  return out;
}

}  // namespace zeus::report
