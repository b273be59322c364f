#include "bench_runs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <random>

#include "child.h"
#include "meter.h"
#include "output.h"
#include "report/bench.h"
#include "report/json.h"
#include "version.h"

namespace zeus::cli {
namespace {

using report::Condition;
using report::Metric;

/// What a condition that the data violate makes of the exit status.
constexpr int kViolated = 3;
/// How much hotter than the first a run may begin, in degC.
constexpr double kTolerance = 2;

/// Somebody asked for the end while nothing ran.
struct Asked {
  int signal;
};

/// The hottest GPU of the machine, in degC; NaN where none tells.
double hottest(const Machine& machine) {
  double out = report::kNan;
  for (const Device& d : machine.devices) {
    if (d.info.kind != DeviceInfo::Kind::gpu || d.info.lost) continue;
    for (const Sensor& s : d.sensors) {
      if (s.info.quantity != Quantity::temperature) continue;
      std::vector<Reading> slots(s.slot + 1);
      const bool read = s.source->read(slots) == Errc::ok && slots.back().error == Errc::ok;
      if (read) out = std::fmax(out, static_cast<double>(slots.back().raw) * s.info.scale);
    }
  }
  return out;
}

class Bencher {
 public:
  Bencher(const Globals& globals, const BenchOptions& options)
      : globals_(globals), options_(options) {
    describe();
    claim(globals.output);
    claim(options.export_json);
    claim(options.export_csv);
    claim(options.export_markdown);
  }

  int run() {
    Machine machine = open_machine(globals_);
    bench_.host = host_of(globals_, machine);
    bench_.selections = choose(machine, options_.choice, globals_);
    for (const Device& d : machine.devices) bench_.devices.push_back(d.info);
    meter_.emplace(std::move(machine), Meter::Options{options_.period, Monitor::Follow::power});
    bench_.problems = meter_->problems();
    if (!meter_->measures()) refuse_conditions();
    const Meter::Memory memory = meter_->memory();
    rest_ = memory.longest;
    if (!options_.no_phase) {
      bench_.period_s = std::chrono::duration<double>(memory.update).count();
      bench_.phases = solve::phases(options_.runs);
      update_ = memory.update;
    }
    int status = 0;
    try {
      status = all_runs();
    } catch (const Asked& asked) {
      status = stopped(asked.signal);
    }
    progress("");
    bench_.overhead = meter_->overhead();
    return deliver(status);
  }

 private:
  void describe() {
    bench_.version = kVersion;
    for (std::size_t i = 0; i < options_.commands.size(); ++i) {
      const std::string& text = options_.commands[i];
      bench_.commands.push_back({i < options_.names.size() ? options_.names[i] : text, text});
    }
    bench_.reference = options_.reference - 1;
    bench_.runs = options_.runs;
    bench_.warmup = options_.warmup;
    bench_.order = options_.order;
    bench_.seed = options_.seeded ? options_.seed : std::random_device{}();
    const auto add = [this](const Result<Condition>& c, const char* option) {
      if (!c) throw UsageError(fmt::format("{}: {}", option, c.error().detail));
      bench_.conditions.push_back(*c);
    };
    for (const auto& text : options_.fail_if) add(report::parse_fail_if(text), "--fail-if");
    for (const auto& text : options_.no_worse_than) {
      add(report::parse_no_worse_than(text), "--no-worse-than");
    }
    for (const Condition& c : bench_.conditions) check(c);
  }

  /// What no run could ever decide is refused before the first.
  void check(const Condition& c) const {
    if (options_.runs < solve::kLeast) {
      throw UsageError(
          fmt::format("cannot judge \"{}\" from {} runs a command; it needs at least {}", c.text,
                      options_.runs, solve::kLeast));
    }
    if (c.relative && options_.commands.size() < 2) {
      throw UsageError(
          fmt::format("cannot judge \"{}\" of one command; name a second to compare "
                      "it with, or a limit with a unit",
                      c.text));
    }
  }

  void refuse_conditions() const {
    for (const Condition& c : bench_.conditions) {
      if (c.metric == Metric::time) continue;
      throw UsageError(
          fmt::format("cannot judge \"{}\": nothing that was chosen tells energy; zeus "
                      "env says why",
                      c.text));
    }
  }

  void claim(const std::string& path) {
    auto& file = files_[claimed_++];
    if (path.empty()) return;
    auto opened = OutputFile::open(path);
    if (!opened) throw UsageError(opened.error().detail);
    file.emplace(std::move(*opened));
  }

  int all_runs() {
    for (std::size_t w = 0; w < options_.warmup; ++w) {
      for (std::size_t c = 0; c < bench_.commands.size(); ++c) {
        progress(fmt::format("warming up: {}", bench_.commands[c].name));
        if (const int status = once({c, w}, false); status != 0) return status;
      }
    }
    const auto turns =
        solve::schedule(bench_.commands.size(), bench_.runs, bench_.order, bench_.seed);
    for (const solve::Turn& turn : turns) {
      progress(fmt::format("run {} of {}: {}", bench_.done.size() + 1, turns.size(),
                           bench_.commands[turn.command].name));
      if (const int status = once(turn, true); status != 0) return status;
    }
    return 0;
  }

  /// One run; its status where that ends the whole.
  int once(const solve::Turn& turn, bool counted) {
    if (const int status = prepare(); status != 0) return status;
    report::BenchRun run{.command = turn.command, .block = turn.block, .place = bench_.done.size()};
    run.cooled = cool(counted);
    const std::string& text = bench_.commands[turn.command].text;
    auto child = start_later(text);
    run.start_temperature_c = hottest(meter_->machine());
    wait_until(next_start(turn.block));
    meter_->begin(bench_.commands[turn.command].name);
    if (const Status started = child.start(); !started) return not_started(started.error());
    const auto ended = child.wait(signals_, meter_->patience(), [&] { meter_->drain(); });
    run.window = meter_->end();
    run.exit = ended.exit;
    last_end_ = Clock::steady().now();
    if (ended.asked != 0) return stopped(ended.asked);
    if (const int status = status_of(ended); status != 0 && !options_.ignore_failure) {
      return failed(text, ended.exit, status);
    }
    if (counted) bench_.done.push_back(std::move(run));
    return 0;
  }

  int prepare() {
    if (options_.prepare.empty()) return 0;
    auto child = start_later(options_.prepare);
    if (const Status started = child.start(); !started) return not_started(started.error());
    const auto ended = child.wait(signals_, std::chrono::seconds(60), {});
    if (ended.asked != 0) return stopped(ended.asked);
    const int status = status_of(ended);
    return status == 0 ? 0 : failed(options_.prepare, ended.exit, status);
  }

  /// Waits for equal temperatures; false where the limit of the wait was hit.
  bool cool(bool counted) {
    using namespace std::chrono_literals;
    const Instant now = Clock::steady().now();
    if (last_end_ != Instant{}) wait_until(now + options_.cooldown);
    const double at = hottest(meter_->machine());
    if (!std::isfinite(at)) return true;
    if (counted && !std::isfinite(first_c_)) first_c_ = at;
    if (!counted && !options_.cool_to) return true;
    const double most = options_.cool_to.value_or(first_c_ + kTolerance);
    const Instant limit = Clock::steady().now() + options_.cool_limit;
    while (hottest(meter_->machine()) > most) {
      if (Clock::steady().now() >= limit) return false;
      wait_until(std::min(limit, Clock::steady().now() + 200ms));
    }
    return true;
  }

  /// The instant of a run's phase, after a rest in which the sensors forget the run before.
  Instant next_start(std::size_t block) const {
    const Instant ready = std::max(Clock::steady().now(), last_end_ + rest_);
    return Instant(Duration(solve::next_start(ready.time_since_epoch().count(), update_.count(),
                                              block, bench_.phases)));
  }

  Child start_later(const std::string& text) {
    std::vector<std::string> words;
    if (options_.shell == "none") {
      const auto split = split_words(text);
      if (!split) throw UsageError(split.error().detail);
      words = *split;
    } else {
      words = {options_.shell, "-c", text};
    }
    const bool show = options_.show_output;
    auto child = Child::prepare(words, signals_, [show] { return redirect(show); });
    if (!child) throw std::runtime_error(child.error().detail);
    return std::move(*child);
  }

  /// In the child: nothing to read, and nothing to be seen unless it is wanted.
  static std::optional<std::string> redirect(bool show) {
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    const int out = show ? STDERR_FILENO : null;
    if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(out, STDOUT_FILENO) < 0 ||
        ::dup2(out, STDERR_FILENO) < 0) {
      return "cannot redirect the streams of a command to /dev/null; make it writable";
    }
    return std::nullopt;
  }

  void wait_until(Instant then) const {
    for (;;) {
      const Duration left = then - Clock::steady().now();
      if (left.count() <= 0) return;
      const auto signal = signals_.wait(left);
      if (signal && asks_to_end(signal->number)) throw Asked{signal->number};
    }
  }

  int stopped(int signal) {
    bench_.ended_early = fmt::format("stopped by signal {}", signal);
    return 128 + signal;
  }

  int not_started(const Error& error) {
    bench_.ended_early = error.detail;
    progress("");
    complain(error.detail);
    return error.vendor;
  }

  int failed(const std::string& text, const report::Exit& exit, int status) {
    bench_.ended_early = fmt::format("\"{}\" failed", text);
    progress("");
    complain(fmt::format("\"{}\" failed: {}; --show-output shows why, --ignore-failure goes on",
                         text, report::to_text(exit)));
    return status;
  }

  /// A line that a person sees while it lasts.
  static void progress(const std::string& line) {
    if (::isatty(STDERR_FILENO) != 1) return;
    (void)write_all(STDERR_FILENO,
                    fmt::format("\r\x1b[K{}", report::printable(line).substr(0, 79)));
  }

  int deliver(int status) {
    if (bench_.done.empty()) return status;
    const report::Findings findings = report::analyze(bench_);
    const auto json = [&] { return report::dump(report::to_json(bench_, findings), true); };
    const std::string text =
        globals_.json ? json()
                      : report::to_text(bench_, findings,
                                        files_[0] ? report::Style{false, globals_.verbose}
                                                  : globals_.style(STDOUT_FILENO));
    bool written = true;
    if (files_[0]) {
      written = put(0, text);
    } else {
      written = write_all(STDOUT_FILENO, text) == 0;
    }
    if (files_[1]) written = put(1, json()) && written;
    if (files_[2]) written = put(2, report::to_csv(bench_, findings)) && written;
    if (files_[3]) written = put(3, report::to_markdown(bench_, findings)) && written;
    if (status != 0) return status;
    if (findings.fails()) return kViolated;
    if (!findings.judged()) {
      complain("a condition could not be judged: too few runs have a number of it");
    }
    return written && findings.judged() ? 0 : kFailed;
  }

  bool put(std::size_t file, const std::string& text) {
    Status written = files_[file]->write(text);
    if (written) written = files_[file]->commit();
    if (!written) complain(written.error().detail);
    return written.has_value();
  }

  const Globals& globals_;
  const BenchOptions& options_;
  Signals signals_;                                 // Before any thread.
  std::array<std::optional<OutputFile>, 4> files_;  // Report, JSON, CSV, Markdown.
  std::size_t claimed_ = 0;
  std::optional<Meter> meter_;
  report::Bench bench_;
  Duration update_{}, rest_{};
  Instant last_end_{};
  double first_c_ = report::kNan;
};

}  // namespace

int run_bench(const Globals& globals, const BenchOptions& options) {
  return Bencher(globals, options).run();
}

}  // namespace zeus::cli
