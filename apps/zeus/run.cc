#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "child.h"
#include "meter.h"
#include "options.h"
#include "output.h"
#include "report/json.h"
#include "report/text.h"
#include "report/timeline.h"
#include "solve/study.h"
#include "version.h"

namespace zeus::cli {
namespace {

struct RunOptions {
  Choice choice;
  Duration period = std::chrono::milliseconds(100), live{};
  unsigned repeat = 1, warmup = 0;
  bool ignore_failure = false, align = false;
  std::string timeline;
};

/// A file that gets a line for each sample.
class TimelineFile {
 public:
  explicit TimelineFile(const std::string& path) {
    if (path.empty()) return;
    const auto format = report::timeline_format(path);
    if (!format) throw UsageError(format.error().detail);
    format_ = *format;
    auto file = OutputFile::stream(path);
    if (!file) throw UsageError(file.error().detail);
    file_.emplace(std::move(*file));
    lines_ = report::timeline_header(format_);
  }
  bool wanted() const { return file_.has_value(); }

  /// Collects lines; flush() writes them, whole, in one piece.
  Meter::Visit visit(Instant begin) {
    if (!file_) return {};
    return [this, begin](const std::string& device, const SensorInfo& info, const Sample& sample) {
      lines_ += report::timeline_row(format_, begin, device, info, sample);
    };
  }
  void flush() {
    if (!file_ || lines_.empty()) return;
    const auto written = file_->write(lines_);
    if (!written && !std::exchange(complained_, true)) {
      complain(written.error().detail + "; the timeline is incomplete");
    }
    lines_.clear();
  }

 private:
  report::TimelineFormat format_{};
  std::optional<OutputFile> file_;
  std::string lines_;
  bool complained_ = false;
};

/// "  12.3 s  gpu:0 100.1 W  gpu:1 unknown | 200.1 W  2461 J".
std::string live_line(const Meter::Lap& lap) {
  std::string out = fmt::format("{:8.1f} s ", lap.so_far.seconds());
  const auto watts = [](double w) {
    return std::isfinite(w) ? fmt::format("{:.1f} W", w) : std::string("unknown");
  };
  double now = 0;
  auto domains = lap.since_last.domains;
  std::sort(domains.begin(), domains.end(),
            [](const auto& a, const auto& b) { return report::before(a.domain, b.domain); });
  for (const report::DomainResult& d : domains) {
    // Where the counter has not moved in so short a time, its power sensor still tells.
    const double w = std::isfinite(d.mean_power_w) ? d.mean_power_w : d.peak_power_w;
    if (d.in_total) {
      out += fmt::format(" {} {} ", to_string(d.domain), watts(w));
      now += w;
    }
  }
  const report::WindowResult& all = lap.so_far;
  const std::string joules = std::isfinite(all.total.value)
                                 ? fmt::format("{:.1f} J", all.total.value)
                                 : std::string("no energy measured");
  return out + fmt::format("| {}, {}{}\n",
                           watts(lap.since_last.domains.empty() ? report::kNan : now), joules,
                           all.missing.empty() ? "" : " (incomplete)");
}

class Runner {
 public:
  Runner(const Globals& globals, const RunOptions& options)
      : globals_(globals), options_(options), timeline_(options.timeline) {
    if (!globals.output.empty()) {
      auto file = OutputFile::open(globals.output);
      if (!file) throw UsageError(file.error().detail);
      out_.emplace(std::move(*file));
    }
  }

  int run() {
    Machine machine = open_machine(globals_);
    report_.host = host_of(globals_, machine);
    report_.selections = choose(machine, options_.choice, globals_);
    for (const Device& d : machine.devices) report_.devices.push_back(d.info);
    meter_.emplace(
        std::move(machine),
        Meter::Options{options_.period,
                       timeline_.wanted() ? Monitor::Follow::all : Monitor::Follow::power,
                       options_.align ? Monitor::Align::tick : Monitor::Align::none});
    report_.version = kVersion;
    report_.command = globals_.command;
    report_.problems = meter_->problems();
    report_.warmup = options_.warmup;
    int status = 0;
    for (unsigned i = 0; i < options_.warmup + options_.repeat; ++i) {
      if (!options_.align && options_.repeat > 1) shift(i);
      const auto ended = once(i >= options_.warmup);
      if (!ended) return status_;
      status = status_of(*ended);
      if (ended->asked != 0 || (status != 0 && !options_.ignore_failure)) break;
    }
    report_.overhead = meter_->overhead();
    return deliver(status);
  }

 private:
  /// Repeated runs start at evenly spread phases of the sensors: what these hide of a load in step
  /// with them cancels in the mean.
  void shift(unsigned turn) const {
    const Clock& clock = Clock::steady();
    const auto start =
        solve::next_start(clock.now().time_since_epoch().count(), meter_->memory().update.count(),
                          turn, solve::phases(options_.repeat));
    clock.sleep_until(Instant(Duration(start)));
  }

  /// One run of the command; nothing where it could not be started.
  std::optional<Child::Ended> once(bool counted) {
    auto child = Child::prepare(globals_.command, signals_);
    if (!child) throw UsageError(child.error().detail);
    meter_->begin(fmt::format("{}", fmt::join(globals_.command, " ")));
    if (const auto started = child->start(); !started) {
      complain(started.error().detail);
      status_ = started.error().vendor;
      return std::nullopt;
    }
    const Meter::Visit visit = counted ? timeline_.visit(meter_->begun()) : Meter::Visit{};
    Instant next_live = meter_->begun() + options_.live;
    const auto ended = child->wait(signals_, interval(), [&] {
      meter_->drain(visit);
      timeline_.flush();
      const Instant now = Clock::steady().now();
      if (options_.live.count() == 0 || now < next_live) return;
      next_live += (1 + (now - next_live) / options_.live) * options_.live;
      (void)write_all(STDERR_FILENO, live_line(meter_->lap()));
    });
    report::Repetition result{meter_->end(visit), ended.exit};
    timeline_.flush();
    if (counted || ended.asked != 0 || status_of(ended) != 0) {
      report_.runs.push_back(std::move(result));
    }
    return ended;
  }

  Duration interval() const {
    Duration least = meter_->patience();
    if (timeline_.wanted()) least = std::min<Duration>(least, std::chrono::seconds(1));
    return options_.live.count() > 0 ? std::min(least, options_.live) : least;
  }

  int deliver(int status) {
    const std::string text =
        globals_.json ? report::dump(report::to_json(report_), true)
                      : report::to_text(report_, out_ ? report::Style{false, globals_.verbose}
                                                      : globals_.style(STDERR_FILENO));
    if (!out_) {
      (void)write_all(STDERR_FILENO, text);
      return status;
    }
    Status written = out_->write(text);
    if (written) written = out_->commit();
    if (written) return status;
    complain(written.error().detail);
    return status == 0 ? kFailed : status;
  }

  const Globals& globals_;
  const RunOptions& options_;
  Signals signals_;  // Before any thread.
  TimelineFile timeline_;
  std::optional<OutputFile> out_;
  std::optional<Meter> meter_;
  report::Run report_;
  int status_ = 0;
};

int run(const Globals& globals, const RunOptions& options) {
  if (globals.command.empty()) {
    throw UsageError(
        "has nothing to run; the command goes behind --, as in zeus run -- python train.py");
  }
  if (options.repeat == 0) throw UsageError("--repeat must be at least 1");
  if (options.period < std::chrono::milliseconds(1)) {
    throw UsageError("--period must be at least 1ms: no sensor answers faster");
  }
  if (options.live.count() != 0 && options.live < std::chrono::milliseconds(10)) {
    throw UsageError("--interval must be at least 10ms");
  }
  if (options.live.count() != 0 && globals.json && globals.output.empty()) {
    throw UsageError("--interval and --json would share standard error; name a file with -o");
  }
  return Runner(globals, options).run();
}

}  // namespace

void add_run(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb = app.add_subcommand("run", "Measure the energy of a command");
  const auto options = std::make_shared<RunOptions>();
  add_choice(verb, options->choice);
  add_duration(verb, "--period", options->period, "How often to sample power (default: 100ms)");
  add_number(verb, "-r,--repeat", options->repeat, "Run it so many times; print the statistics");
  add_number(verb, "--warmup", options->warmup, "Runs before those, which do not count");
  verb->add_flag("--align", options->align,
                 "Wait for the sensors' updates before and after; exact for a short command on "
                 "devices that idle around it");
  verb->add_flag("--ignore-failure", options->ignore_failure, "Repeat although a run failed");
  verb->add_option("--timeline", options->timeline, "Write every sample to FILE.csv or FILE.jsonl")
      ->type_name("FILE");
  add_duration(verb, "-I,--interval", options->live,
               "Print a line on standard error so often; a plain number is in ms", 1e-3);
  verb->footer(
      "Examples:\n"
      "  zeus run -- python train.py\n"
      "  zeus run --gpus 0,1 --json -o run.json -- ./train\n"
      "  zeus run -r 5 --warmup 1 -- ./bench          mean, deviation, 95 % interval\n"
      "  zeus run -I 1000 --timeline power.csv -- ./train\n"
      "The exit status is the command's, 128+N if signal N killed it, 127 if there is no such\n"
      "command, 126 if it cannot be run, 2 if zeus was asked for something it cannot do.");
  verbs.emplace_back(verb, [&globals, options] { return run(globals, *options); });
}

}  // namespace zeus::cli
