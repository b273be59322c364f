#include "runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "report/text.h"
#include "solve/study.h"
#include "version.h"

namespace zeus::cli {
namespace {

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

}  // namespace

void add_run_options(CLI::App* verb, RunOptions& options) {
  add_choice(verb, options.choice);
  add_duration(verb, "--period", options.period, "How often to sample power (default: 100ms)");
  add_number(verb, "-r,--repeat", options.repeat, "Run it so many times; print the statistics");
  add_number(verb, "--warmup", options.warmup, "Runs before those, which do not count");
  verb->add_flag("--align", options.align,
                 "Wait for the sensors' updates before and after; exact for a short command on "
                 "devices that idle around it");
  verb->add_flag("--ignore-failure", options.ignore_failure, "Repeat although a run failed");
  verb->add_option("--timeline", options.timeline, "Write every sample to FILE.csv or FILE.jsonl")
      ->type_name("FILE");
  add_duration(verb, "-I,--interval", options.live,
               "Print a line on standard error so often; a plain number is in ms", 1e-3);
}

void check(const Globals& globals, const RunOptions& options) {
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
}

TimelineFile::TimelineFile(const std::string& path) {
  if (path.empty()) return;
  const auto format = report::timeline_format(path);
  if (!format) throw UsageError(format.error().detail);
  format_ = *format;
  auto file = OutputFile::stream(path);
  if (!file) throw UsageError(file.error().detail);
  file_.emplace(std::move(*file));
  lines_ = report::timeline_header(format_);
}

void TimelineFile::add(const Meter& meter, std::size_t sensor, const Sample& sample) {
  if (!file_) return;
  lines_ += report::timeline_row(format_, meter.begun(), meter.device(sensor),
                                 meter.monitor().subject().sensors[sensor], sample);
}

void TimelineFile::flush() {
  if (!file_ || lines_.empty()) return;
  const auto written = file_->write(lines_);
  if (!written && !std::exchange(complained_, true)) {
    complain(written.error().detail + "; the timeline is incomplete");
  }
  lines_.clear();
}

report::Run describe(const Globals& globals, const Choice& choice, Machine& machine) {
  report::Run out;
  out.version = kVersion;
  out.command = globals.command;
  machine = open_machine(globals);
  out.host = host_of(globals, machine);
  out.selections = choose(machine, choice, globals);
  for (const Device& d : machine.devices) out.devices.push_back(d.info);
  return out;
}

namespace {

/// An aligned window is told from the updates of power sensors: they are polled as often as that
/// takes, unless somebody said how often.
Duration aligned_period(const RunOptions& options) {
  return options.align && options.period == RunOptions{}.period ? Duration{} : options.period;
}

}  // namespace

Runner::Runner(const Globals& globals, const RunOptions& options, Witness* witness)
    : globals_(globals), options_(options), witness_(witness), timeline_(options.timeline) {
  if (!globals.output.empty()) {
    auto file = OutputFile::open(globals.output);
    if (!file) throw UsageError(file.error().detail);
    out_.emplace(std::move(*file));
  }
}

int Runner::run() {
  Machine machine;
  report_ = describe(globals_, options_.choice, machine);
  const bool all = witness_ != nullptr || timeline_.wanted();
  meter_.emplace(
      std::move(machine),
      Meter::Options{aligned_period(options_), all ? Monitor::Follow::all : Monitor::Follow::power,
                     options_.align ? Monitor::Align::tick : Monitor::Align::none});
  report_.problems = meter_->problems();
  report_.warmup = options_.warmup;
  if (witness_ != nullptr) witness_->opened(*meter_, report_);
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

void Runner::shift(unsigned turn) const {
  const Clock& clock = Clock::steady();
  const auto start =
      solve::next_start(clock.now().time_since_epoch().count(), meter_->memory().update.count(),
                        turn, solve::phases(options_.repeat));
  clock.sleep_until(Instant(Duration(start)));
}

std::optional<Child::Ended> Runner::once(bool counted) {
  auto child = Child::prepare(globals_.command, signals_);
  if (!child) throw UsageError(child.error().detail);
  meter_->begin(fmt::format("{}", fmt::join(globals_.command, " ")));
  if (const auto started = child->start(); !started) {
    complain(started.error().detail);
    status_ = started.error().vendor;
    return std::nullopt;
  }
  const Meter::Visit visit = [&](std::size_t sensor, const Sample& sample) {
    if (counted) timeline_.add(*meter_, sensor, sample);
    if (witness_ != nullptr) witness_->sample(sensor, sample);
  };
  const auto write = [&] {
    timeline_.flush();
    if (witness_ != nullptr) witness_->drained();
  };
  Instant next_live = meter_->begun() + options_.live;
  const auto ended = child->wait(signals_, interval(), [&] {
    meter_->drain(visit);
    write();
    const Instant now = Clock::steady().now();
    if (options_.live.count() == 0 || now < next_live) return;
    next_live += (1 + (now - next_live) / options_.live) * options_.live;
    (void)write_all(STDERR_FILENO, live_line(meter_->lap()));
  });
  report::Repetition result{meter_->end(visit), ended.exit};
  write();
  const bool counts = counted || ended.asked != 0 || status_of(ended) != 0;
  if (counts) report_.runs.push_back(std::move(result));
  if (witness_ != nullptr) witness_->ended(*meter_, counts);
  return ended;
}

Duration Runner::interval() const {
  Duration least = meter_->patience();
  if (timeline_.wanted() || witness_ != nullptr) {
    least = std::min<Duration>(least, std::chrono::seconds(1));
  }
  return options_.live.count() > 0 ? std::min(least, options_.live) : least;
}

int Runner::deliver(int status) {
  report::Json json = report::to_json(report_);
  bool failed = false;
  if (witness_ != nullptr) {
    const Status closed = witness_->closed(json, report_.overhead);
    if (!closed) complain(closed.error().detail);
    failed = !closed;
  }
  std::string text = globals_.json
                         ? report::dump(json, true)
                         : report::to_text(report_, out_ ? report::Style{false, globals_.verbose}
                                                         : globals_.style(STDERR_FILENO));
  if (witness_ != nullptr && !globals_.json) text += witness_->last_word();
  if (!out_) {
    (void)write_all(STDERR_FILENO, text);
  } else {
    Status written = out_->write(text);
    if (written) written = out_->commit();
    if (!written) complain(written.error().detail);
    failed = failed || !written;
  }
  return status == 0 && failed ? kFailed : status;
}

}  // namespace zeus::cli
