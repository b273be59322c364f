#include "report/bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <random>

#include "child.h"
#include "meter.h"
#include "options.h"
#include "output.h"
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

struct BenchOptions {
  Choice choice;
  std::vector<std::string> commands, names, fail_if, no_worse_than;
  unsigned runs = 10, warmup = 1, reference = 1;
  solve::Order order = solve::Order::random;
  std::uint64_t seed = 0;
  bool seeded = false;
  Duration period = std::chrono::milliseconds(100);
  Duration cooldown{}, cool_limit = std::chrono::seconds(60);
  std::optional<double> cool_to;
  bool phase = false, no_phase = false, ignore_failure = false, show_output = false;
  std::string shell = "/bin/sh", prepare;
  std::string export_json, export_csv, export_markdown;
};

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

/// How long a sensor of the total needs to forget what was before: its update, or the window of a
/// running mean.
struct Memory {
  Duration update{}, longest{};

  explicit Memory(const Meter& meter) {
    if (!meter.measures()) return;
    const Subject& subject = meter.monitor().subject();
    for (const DomainId root : subject.domains.roots()) {
      const SensorInfo* s = sensor_of(subject, root);
      if (s == nullptr) continue;
      update = std::max(update, s->profile.update);
      longest = std::max({longest, s->profile.update, s->profile.window});
    }
  }
};

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
    const Memory memory(*meter_);
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

int bench(const Globals& globals, const BenchOptions& options) {
  if (options.commands.empty()) {
    throw UsageError(
        "has nothing to compare; name commands in quotes, as in zeus bench 'python a.py'");
  }
  if (options.runs == 0) throw UsageError("--runs must be at least 1");
  if (options.period < std::chrono::milliseconds(1)) {
    throw UsageError("--period must be at least 1ms: no sensor answers faster");
  }
  if (options.names.size() > options.commands.size()) {
    throw UsageError(fmt::format("--name is given {} times for {} commands; give it once a command",
                                 options.names.size(), options.commands.size()));
  }
  if (options.reference < 1 || options.reference > options.commands.size()) {
    throw UsageError(fmt::format("--reference {} is none of {} commands; the first is 1",
                                 options.reference, options.commands.size()));
  }
  if (options.phase && options.no_phase) {
    throw UsageError("--phase and --no-phase contradict each other; keep one of them");
  }
  if (options.shell == "none") {
    std::vector<std::string> all = options.commands;
    if (!options.prepare.empty()) all.push_back(options.prepare);
    for (const std::string& text : all) {
      if (const auto words = split_words(text); !words) throw UsageError(words.error().detail);
    }
  }
  return Bencher(globals, options).run();
}

solve::Order read_order(const std::string& text) {
  for (const auto order :
       {solve::Order::random, solve::Order::interleaved, solve::Order::sequential}) {
    if (text == to_string(order)) return order;
  }
  throw CLI::ValidationError(
      "--order", fmt::format("\"{}\" is none of random, interleaved, sequential", text));
}

double read_celsius(const std::string& text) {
  double out = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (ec != std::errc{} || end != text.data() + text.size() || !std::isfinite(out)) {
    throw CLI::ValidationError("--cool-to", fmt::format("\"{}\" is no temperature in degC", text));
  }
  return out;
}

/// An option that may be given again and again, one value each time.
CLI::Option* add_many(CLI::App* app, const std::string& name, std::vector<std::string>& target,
                      const std::string& help, const std::string& type) {
  return app->add_option(name, target, help)->type_name(type)->allow_extra_args(false);
}

void add_design(CLI::App* verb, BenchOptions& o) {
  add_number(verb, "-r,--runs", o.runs, "How often to run each command (default: 10)");
  add_number(verb, "-w,--warmup", o.warmup, "Runs of each before those (default: 1)");
  verb->add_option_function<std::string>(
          "--order", [&o](const std::string& text) { o.order = read_order(text); },
          "random (default: blocks that hold every command once), interleaved, sequential")
      ->type_name("NAME");
  verb->add_option_function<std::string>(
          "--seed",
          [&o](const std::string& text) {
            o.seed = static_cast<std::uint64_t>(
                whole_number("--seed", text, std::numeric_limits<std::int64_t>::max()));
            o.seeded = true;
          },
          "Of the random order; by default another each time")
      ->type_name("INT");
  add_number(verb, "--reference", o.reference, "The command to compare with (default: 1)");
  add_duration(verb, "--cooldown", o.cooldown, "Wait so long between runs");
  verb->add_option_function<std::string>(
          "--cool-to", [&o](const std::string& text) { o.cool_to = read_celsius(text); },
          "Wait until no GPU is hotter (default: until none is 2 degC hotter than at first)")
      ->type_name("CELSIUS");
  add_duration(verb, "--cool-limit", o.cool_limit, "The longest such wait (default: 60s)");
  verb->add_flag("--phase", o.phase, "Spread the starts over the sensors' update period (default)");
  verb->add_flag("--no-phase", o.no_phase, "Start each run as soon as it can");
}

}  // namespace

void add_bench(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb = app.add_subcommand("bench", "Compare the energy of commands, run many times");
  const auto options = std::make_shared<BenchOptions>();
  BenchOptions& o = *options;
  verb->add_option("commands", o.commands, "The commands, each in quotes")->type_name("COMMAND");
  add_choice(verb, o.choice);
  add_duration(verb, "--period", o.period, "How often to sample power (default: 100ms)");
  add_design(verb, o);
  add_many(verb, "--name", o.names, "Of the first command, the second ...", "TEXT");
  verb->add_option("--shell", o.shell, "What runs the commands (default: /bin/sh), or none")
      ->type_name("PATH");
  verb->add_option("--prepare", o.prepare, "Run this before each run")->type_name("COMMAND");
  verb->add_flag("--ignore-failure", o.ignore_failure, "Go on although a run failed");
  verb->add_flag("--show-output", o.show_output, "Show what commands print, on standard error");
  add_many(verb, "--fail-if", o.fail_if,
           "End with 3 if the runs show this: \"energy > 1.05x\", \"power > 300\"", "EXPR");
  add_many(verb, "--no-worse-than", o.no_worse_than,
           "End with 3 unless the runs show that it needs less than this: \"1.05x\"", "LIMIT");
  for (const auto& [name, target] :
       {std::pair{"--export-json", &o.export_json}, std::pair{"--export-csv", &o.export_csv},
        std::pair{"--export-markdown", &o.export_markdown}}) {
    verb->add_option(name, *target, "Also write a file")->type_name("FILE");
  }
  verb->footer(
      "Examples:\n"
      "  zeus bench 'python a.py' 'python b.py'\n"
      "  zeus bench -r 20 --fail-if 'energy > 1.05x' './old' './new'\n"
      "  zeus bench --no-worse-than 1.02x --export-json b.json './old' './new'\n"
      "The exit status is 0; 3 if a condition is violated; that of a command that failed; 1 if a\n"
      "condition could not be judged; 2 if zeus was asked for something it cannot do.");
  verbs.emplace_back(verb, [&globals, options] { return bench(globals, *options); });
}

}  // namespace zeus::cli
