#include "gpu_check/check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/numbers.h"

namespace zeus::check {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Of the budget, but never so short that nothing can be told.
constexpr double kIdleShare = 0.03, kBusyShare = 0.03, kWobbleShare = 0.06;
constexpr double kLeastLevel_s = 1.2, kLeastWobble_s = 3;
constexpr double kRun_s = 10, kLeastRun_s = 0.8;
constexpr double kBetween_s = 0.4;  // From one run to the next: commands, and the wait for a phase.
constexpr double kAnswer_s = 5;     // A load that is later than that has hung.
constexpr double kReady_s = 90;     // PyTorch takes its time.
// The load while periods are told: short against an update and in step with no usual one, so that
// readings of power change from each publication to the next.
constexpr double kWobble_s = 0.073;
constexpr double kSamePeriod = 0.005;  // Relative.
// Start phases are multiples of the golden ratio: spread evenly, also where rise and fall are taken
// as one, so that no edge is always met at the same place; and neighbours are far apart in time, so
// that what drifts does not look like a phase.
constexpr double kGolden = 0.6180339887498949;

Duration lasting(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}
Instant now() { return Clock::steady().now(); }

bool same_period(const Comb& a, const Comb& b) {
  return a.accepted && b.accepted && std::abs(a.period_s - b.period_s) < kSamePeriod * a.period_s;
}

class Checker {
 public:
  Checker(const Device& device, double budget_s)
      : poller_(device), begin_(now()), budget_s_(budget_s) {}

  Result<Outcome> run(const std::string& load_command) {
    if (poller_.sensors().empty()) {
      return Error{Errc::absent, 0, "the GPU tells neither energy nor power; nothing to check"};
    }
    for (const Sensor* s : poller_.sensors()) {
      out_.sensors.push_back({&s->info, {}, kNan, kNan});
      if (s->info.quantity == Quantity::energy && out_.counter_name.empty()) {
        out_.counter_name = s->info.name;
      }
    }
    auto load = Load::start(load_command, now() + lasting(kReady_s));
    if (!load) return load.error();
    if (const Status s = stages(*load); !s) return s.error();
    out_.length_s = seconds(now() - begin_);
    return std::move(out_);
  }

 private:
  Status stages(Load& load) {
    Clock::steady().sleep_until(now() + lasting(std::min(2.0, 0.02 * budget_s_)));
    const auto idle = poller_.poll(now() + lasting(level_s(kIdleShare)));
    if (const Status s = wobble(load); !s) return s;
    Poller::Record busy;
    if (const Status s = hold(load, busy); !s) return s;
    tell_latency(idle, busy);
    for (std::size_t i = 0; i < out_.sensors.size(); ++i) {
      out_.sensors[i].idle_w = watts(i, idle.samples[i]).watts;
      out_.sensors[i].busy_w = watts(i, busy.samples[i]).watts;
    }
    return all_series(load);
  }

  double level_s(double share) const { return std::max(kLeastLevel_s, share * budget_s_); }

  // Tells the combs: of power sensors, which need a load that changes, and of counters.
  Status wobble(Load& load) {
    const double length_s = std::max(kLeastWobble_s, kWobbleShare * budget_s_);
    const Instant start = now() + lasting(0.1);
    // Twice the time where a busy machine read too seldom.
    Poller::Record record;
    for (int attempt = 0; attempt < 2; ++attempt) {
      const Instant begin = attempt == 0 ? start : now() + lasting(0.1);
      if (const Status s = load.square(kWobble_s, kDuty, begin, length_s); !s) return s;
      poller_.poll(begin + lasting(length_s), record);
      if (const Status s = load.finish(now() + lasting(kAnswer_s)); !s) return s;
      bool all = true;
      for (std::size_t i = 0; i < out_.sensors.size(); ++i) {
        out_.sensors[i].comb = infer_comb(record.samples[i]);
        all = all && out_.sensors[i].comb.accepted;
      }
      if (all) break;
    }
    tell_together(record);
    return ok();
  }

  // The steady load, once it has settled: a running mean needs a second.
  Status hold(Load& load, Poller::Record& record) {
    const double settle_s = std::min(2.0, level_s(kBusyShare)), length_s = level_s(kBusyShare);
    if (const Status s = load.busy(settle_s + length_s + 0.2); !s) return s;
    Clock::steady().sleep_until(now() + lasting(0.1 + settle_s));
    poller_.poll(now() + lasting(length_s), record);
    return load.finish(now() + lasting(kAnswer_s));
  }

  void tell_latency(const Poller::Record& idle, const Poller::Record& busy) {
    for (std::size_t i = 0; i < poller_.calls().size(); ++i) {
      const Poller::Call& call = poller_.calls()[i];
      Latency all;
      for (const std::size_t s : call.sensors) all.sensors.push_back(out_.sensors[s].info->name);
      all.idle = percentiles(idle.calls_s[i]);
      all.load = percentiles(busy.calls_s[i]);
      all.back_to_back = percentiles(Poller::time(call, call.slots));
      // The first slot alone, where a call yields more: what a reader of energy only pays.
      Latency first;
      for (const std::size_t s : call.sensors) {
        if (poller_.sensors()[s]->slot == 0) first.sensors = {out_.sensors[s].info->name};
      }
      const bool more = call.slots > 1 && !first.sensors.empty();
      if (more) {
        first.idle = first.load = percentiles({});
        first.back_to_back = percentiles(Poller::time(call, 1));
      }
      out_.latency.push_back(std::move(all));
      if (more) out_.latency.push_back(std::move(first));
    }
  }

  void tell_together(const Poller::Record& record) {
    for (std::size_t i = 0; i < out_.sensors.size(); ++i) {
      for (std::size_t j = i + 1; j < out_.sensors.size(); ++j) {
        const auto &a = out_.sensors[i], &b = out_.sensors[j];
        Together t{a.info->name, b.info->name,
                   together(changes(record.samples[i]), changes(record.samples[j])), kNan};
        if (same_period(a.comb, b.comb)) {
          const double lag_s =
              seconds(b.comb.origin - a.comb.origin) + b.comb.phase_s - a.comb.phase_s;
          t.lag_s = std::remainder(lag_s, a.comb.period_s);
        }
        out_.together.push_back(std::move(t));
      }
    }
  }

  Mean watts(std::size_t sensor, std::span<const Sample> polls) const {
    const SensorResult& s = out_.sensors[sensor];
    const auto mean = s.info->quantity == Quantity::energy
                          ? mean_of_counter(polls, s.info->scale, s.comb.period_s)
                          : mean_of_level(polls, s.info->scale);
    return mean.value_or(Mean{kNan, kNan});
  }

  // In step with the counter and, where its period is another, with the first sensor of power:
  // the one that a counter is most likely made of.
  std::vector<std::size_t> locks() {
    std::vector<std::size_t> found;
    bool power = false;
    for (std::size_t i = 0; i < out_.sensors.size(); ++i) {
      const SensorResult& s = out_.sensors[i];
      const bool energy = s.info->quantity == Quantity::energy;
      if (energy ? s.info->name != out_.counter_name : power) continue;
      if (!s.comb.accepted) {
        out_.problems.push_back("the update period of " + s.info->name + " could not be told");
        continue;
      }
      if (!energy) power = true;
      if (found.empty() || !same_period(out_.sensors[found.front()].comb, s.comb)) {
        found.push_back(i);
      }
    }
    return found;
  }

  Status all_series(Load& load) {
    const auto wanted = locks();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double left_s = budget_s_ - seconds(now() - begin_) - 0.5;
      const double run_s = std::min(
          kRun_s, left_s / static_cast<double>(kPhases * (wanted.size() - i)) - kBetween_s);
      if (run_s < kLeastRun_s) {
        out_.problems.push_back("no time was left for the load in step with " +
                                out_.sensors[wanted[i]].info->name + "; give a greater --budget");
        continue;
      }
      if (const Status s = one_series(load, wanted[i], run_s); !s) return s;
    }
    out_.counter = judge(out_.series, out_.counter_name);
    return ok();
  }

  Status one_series(Load& load, std::size_t lock, double run_s) {
    const Comb& comb = out_.sensors[lock].comb;
    Series series;
    series.locked_to = out_.sensors[lock].info->name;
    series.period_s = comb.period_s;
    series.run_s = run_s;
    for (std::size_t i = 0; i < out_.sensors.size(); ++i) {
      series.watts[out_.sensors[i].info->name].resize(kPhases, kNan);
      if (out_.sensors[i].info->name == out_.counter_name ||
          same_period(out_.sensors[i].comb, comb)) {
        series.sensors.push_back({out_.sensors[i].info->name, {}, {}});
      }
    }
    for (std::size_t phase_index = 0; phase_index < kPhases; ++phase_index) {
      const double turn = kGolden * static_cast<double>(phase_index);
      const double start = turn - std::floor(turn);
      series.start[phase_index] = start;
      const double wait_s = seconds(now() - comb.origin) + 0.15 - comb.phase_s;
      const double periods = std::ceil(wait_s / comb.period_s) + start;
      const Instant begin = comb.origin + lasting(comb.phase_s + periods * comb.period_s);
      if (const Status s = load.square(comb.period_s, kDuty, begin, run_s); !s) return s;
      // What a sensor showed before it saw the load alone is left out.
      Clock::steady().sleep_until(begin + lasting(std::min(1.2, run_s / 4)));
      const auto record = poller_.poll(begin + lasting(run_s));
      if (const Status s = load.finish(now() + lasting(kAnswer_s)); !s) return s;
      add_run(record, begin, lock, phase_index, series);
    }
    for (auto& s : series.sensors) {
      const SensorResult& r = result(s.name);
      s.coverage = tell_coverage(s.runs, {r.busy_w, r.idle_w}, kDuty);
    }
    out_.series.push_back(std::move(series));
    return ok();
  }

  void add_run(const Poller::Record& record, Instant begin, std::size_t lock,
               std::size_t phase_index, Series& series) const {
    for (std::size_t i = 0; i < out_.sensors.size(); ++i) {
      const SensorInfo& info = *out_.sensors[i].info;
      const Mean mean = watts(i, record.samples[i]);
      series.watts[info.name][phase_index] = mean.watts;
      if (!std::isfinite(mean.watts)) continue;
      for (auto& s : series.sensors) {
        if (s.name != info.name) continue;
        // A counter of another period may look in step with the sensor that the load is locked to.
        const bool own = same_period(out_.sensors[i].comb, out_.sensors[lock].comb);
        const std::size_t by = own ? i : lock;
        s.runs.push_back({phase_of(by, record.samples[by], begin, series.period_s), mean.watts,
                          mean.u_w, seconds(begin - begin_)});
      }
    }
  }

  // By what it shows in the run, and by its comb where a locked load leaves its readings alike.
  double phase_of(std::size_t sensor, std::span<const Sample> polls, Instant begin,
                  double period_s) const {
    constexpr std::size_t kFewest = 5;
    const auto ticks = sharp(changes(polls), period_s);
    if (ticks.size() >= kFewest) {
      if (const auto p = phase(ticks, begin, period_s)) return *p;
    }
    const Comb& comb = out_.sensors[sensor].comb;
    const double p = (seconds(comb.origin - begin) + comb.phase_s) / period_s;
    return p - std::floor(p);
  }

  const SensorResult& result(const std::string& name) const {
    return *std::find_if(out_.sensors.begin(), out_.sensors.end(),
                         [&](const SensorResult& s) { return s.info->name == name; });
  }

  Poller poller_;
  Instant begin_;
  double budget_s_;
  Outcome out_;
};

}  // namespace

Result<Outcome> check_gpu(const Device& device, const std::string& load, double budget_s) {
  return Checker(device, budget_s).run(load);
}

Judgement judge(const std::vector<Series>& series, const std::string& counter) {
  const auto doubt = [](Verdict v) {
    return v == Verdict::full ? 0 : v == Verdict::unknown ? 1 : 2;
  };
  Judgement out;
  out.coverage.why = "no load ran in step with a sensor";
  bool first = true;
  for (const Series& s : series) {
    for (const auto& sensor : s.sensors) {
      if (sensor.name != counter) continue;
      if (first || doubt(sensor.coverage.verdict) > doubt(out.coverage.verdict)) {
        out = {sensor.coverage, s.period_s};
      }
      first = false;
    }
  }
  return out;
}

}  // namespace zeus::check
