#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "options.h"
#include "report/origin.h"
#include "runner.h"
#include "zeus/recording.h"

namespace zeus::cli {
namespace {

struct RecordOptions {
  RunOptions run;
  Duration duration{};  // 0: there is a command.
};

/// A name that no other recording has: "zeus-20260131T120000Z.zeus".
std::string default_name() {
  std::string now = report::iso8601(std::chrono::system_clock::now()).substr(0, 19);
  std::erase_if(now, [](char c) { return c == '-' || c == ':'; });
  return fmt::format("zeus-{}Z.zeus", now);
}

/// Writes down what it sees.
class Secretary final : public Witness {
 public:
  explicit Secretary(std::string path) : path_(std::move(path)) {
    auto recorder = Recorder::create(path_);
    if (!recorder) throw UsageError(recorder.error().detail + "; choose another file with -o");
    recorder_.emplace(std::move(*recorder));
  }
  /// What was never measured leaves no file behind.
  ~Secretary() override {
    std::error_code none;
    if (!measured_ && std::filesystem::is_regular_file(path_, none)) {
      std::filesystem::remove(path_, none);
    }
  }
  Secretary(const Secretary&) = delete;
  Secretary& operator=(const Secretary&) = delete;

  void opened(const Meter& meter, const report::Run& run) override {
    Machine machine = meter.machine();
    machine.problems = run.problems;
    recorder_->begin({.version = run.version,
                      .build = build_id(),
                      .hostname = run.host.hostname,
                      .kernel = run.host.kernel,
                      .address = run.host.address,
                      .wall = std::chrono::system_clock::now(),
                      .at = Clock::steady().now(),
                      .simulation = run.host.simulation,
                      .replay = run.host.replay},
                     machine, run.selections,
                     meter.measures() ? meter.monitor().subject() : Subject{});
  }
  void sample(std::size_t sensor, const Sample& sample) override {
    measured_ = true;
    recorder_->add(sensor, sample);
  }
  void drained() override {
    recorder_->flush();
    if (recorder_->status() || std::exchange(complained_, true)) return;
    complain(recorder_->status().error().detail + "; what is measured goes on without it");
  }
  void ended(const Meter& meter, bool counted) override {
    measured_ = true;
    if (counted) recorder_->add(meter.record(), meter.begun());
  }
  Status closed(report::Json& report, const report::Overhead& overhead) override {
    recorder_->write_samples();
    size_ = recorder_->size();
    report["recording"] = {{"file", path_},
                           {"samples", size_.samples},
                           {"sample_bytes", size_.sample_bytes},
                           {"bytes_per_sample", report::number(each())}};
    const Status finished = recorder_->finish(report::dump(report, true), overhead.samples_lost);
    size_ = recorder_->size();
    failed_ = !finished;
    if (finished) return finished;
    Error error = finished.error();
    if (complained_) error.detail = "the recording " + path_ + " is not whole";
    return error;
  }
  std::string last_word() const override {
    if (failed_) return "";
    std::string out = fmt::format("recorded in {}: {} bytes, {} samples", report::printable(path_),
                                  size_.bytes, size_.samples);
    return out + (size_.samples > 0 ? fmt::format(" at {:.1f} bytes each\n", each()) : "\n");
  }

 private:
  double each() const {
    return size_.samples > 0
               ? static_cast<double>(size_.sample_bytes) / static_cast<double>(size_.samples)
               : report::kNan;
  }

  std::string path_;
  std::optional<Recorder> recorder_;
  Recorder::Size size_;
  bool measured_ = false, complained_ = false, failed_ = false;
};

/// Records a machine for a time, or until somebody asks to end.
int record_time(const Globals& globals, const RecordOptions& options, Secretary& secretary) {
  const Signals signals;
  Machine machine;
  report::Run run = describe(globals, options.run.choice, machine);
  Meter meter(std::move(machine), {options.run.period, Monitor::Follow::all});
  run.problems = meter.problems();
  if (!meter.measures()) {
    complain("cannot record: nothing chosen here tells energy or power; zeus env says why");
    return kFailed;
  }
  secretary.opened(meter, run);
  const Meter::Visit visit = [&](std::size_t sensor, const Sample& sample) {
    secretary.sample(sensor, sample);
  };
  meter.begin("zeus.record");
  const Duration pace = std::min<Duration>(meter.patience(), std::chrono::seconds(1));
  until_told(signals, options.duration, pace, [&] {
    meter.drain(visit);
    secretary.drained();
    return true;
  });
  run.runs.push_back({meter.end(visit), {}});
  secretary.drained();
  secretary.ended(meter, true);
  run.overhead = meter.overhead();

  report::Json json = report::to_json(run);
  const Status closed = secretary.closed(json, run.overhead);
  if (!closed) complain(closed.error().detail);
  const report::Style style = globals.style(STDERR_FILENO);
  const report::WindowResult& window = run.runs.back().window;
  std::string text = report::dump(json, true);
  if (!globals.json) {
    text = report::origin(run.host, style) + fmt::format("  time   {:.3f} s\n", window.seconds()) +
           report::to_text(window, style);
    for (const auto& [kind, selection] : run.selections) {
      text += report::to_text(kind == "gpu" ? "GPUs" : "CPUs", selection, run.devices);
    }
    text += report::to_text(run.problems, style) + secretary.last_word();
  }
  (void)write_all(STDERR_FILENO, text);
  return closed ? 0 : kFailed;
}

int record(const Globals& globals, const RecordOptions& options) {
  const bool timed = options.duration.count() > 0;
  if (timed != globals.command.empty()) {
    throw UsageError(
        "needs either a command behind --, as in zeus record -- python train.py, or --duration");
  }
  if (timed && (options.run.repeat != 1 || options.run.warmup != 0 ||
                options.run.live.count() != 0 || !options.run.timeline.empty())) {
    throw UsageError("--repeat, --warmup, --interval and --timeline need a command behind --");
  }
  // The file of -o is the recording; the report goes to standard error.
  Globals rest = globals;
  rest.output.clear();
  check(rest, options.run);
  Secretary secretary(globals.output.empty() ? default_name() : globals.output);
  if (timed) return record_time(rest, options, secretary);
  return Runner(rest, options.run, &secretary).run();
}

}  // namespace

void add_record(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb = app.add_subcommand("record", "Measure a command and keep every sample in a file");
  const auto options = std::make_shared<RecordOptions>();
  add_run_options(verb, options->run);
  add_duration(verb, "--duration", options->duration,
               "Record the machine for so long, without a command");
  verb->footer(
      "Examples:\n"
      "  zeus record -o a.zeus -- python train.py     the report of zeus run, and a file\n"
      "  zeus record --period 10ms -o a.zeus --duration 60s\n"
      "  zeus verify a.zeus                           judge it again\n"
      "  zeus --host replay:a.zeus monitor energy     play it as a machine\n"
      "-o names the recording (default: zeus-TIME.zeus here); the report goes to standard error.\n"
      "Every sensor is read, every 100ms or as --period says. The exit status is that of zeus "
      "run;\n"
      "1 if the command succeeded and the recording could not be written to its end.");
  verbs.emplace_back(verb, [&globals, options] { return record(globals, *options); });
}

}  // namespace zeus::cli
