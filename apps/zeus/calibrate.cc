#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/files.h"
#include "base/numbers.h"
#include "load.h"
#include "measure/calibration_file.h"
#include "options.h"
#include "output.h"
#include "report/json.h"
#include "report/table.h"
#include "version.h"
#include "zeus/profile.h"
#include "zeus/sampler.h"

namespace zeus::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using SystemClock = std::chrono::system_clock;

struct CalibrateOptions {
  Choice choice{.gpus = {}, .cpus = {}, .no_cpu = true, .positions = {}};
  Duration duration = std::chrono::seconds(20), period = milliseconds(2);
  std::string load, meter;
  double meter_start = 0, meter_u_percent = 1;
  bool dry_run = false, forget = false;
};

double unix_s(SystemClock::time_point t) {
  return std::chrono::duration<double>(t.time_since_epoch()).count();
}
Duration of_seconds(double s) { return Duration(std::llround(s * 1e9)); }

/// A sensor that is calibrated, and whose it is.
struct Subject {
  const Device* device;
  const Sensor* sensor;
};

std::vector<Subject> subjects(const Machine& machine) {
  std::vector<Subject> out;
  for (const Device& d : machine.devices) {
    for (const Sensor& s : d.sensors) {
      const bool electric =
          s.info.quantity == Quantity::energy || s.info.quantity == Quantity::power;
      if (electric && s.info.domain.scope == Scope::gpu) out.push_back({&d, &s});
    }
  }
  return out;
}

/// Somebody asked to end: nothing is written.
struct Ended {
  int signal;
};

/// Polls the sensors while the load, if there is one, is let go and held.
class Bench {
 public:
  Bench(std::vector<Subject> subjects, const CalibrateOptions& options, const Signals& signals)
      : subjects_(std::move(subjects)),
        signals_(signals),
        sampler_(sensors(), {options.period, capacity(options), &Clock::steady()}),
        wall_(SystemClock::now()),
        origin_(Clock::steady().now()) {}

  void run(const CalibrateOptions& options) {
    if (sampler_.start() != Errc::ok) {
      throw UsageError("cannot start the sampler: the system grants no thread");
    }
    if (options.load.empty()) {
      wait(options.duration);
    } else {
      drive(options.load);
    }
    end_ = Clock::steady().now();
  }

  std::vector<Sample> polls(std::size_t i) const {
    std::vector<Sample> out(sampler_.capacity());
    out.resize(sampler_.copy(i, origin_, Instant::max(), out));
    return out;
  }
  const std::vector<Subject>& all() const { return subjects_; }
  Instant origin() const { return origin_; }
  double begin_unix_s() const { return unix_s(wall_); }
  double length_s() const { return seconds(end_ - origin_); }
  StepTrace load() const { return StepTrace(marks_); }

 private:
  static constexpr auto kLevel = std::chrono::seconds(4);
  static constexpr int kPeriods = 50;
  static constexpr double kBeat = 1.031;  // 33 periods of the load are 34 updates.

  static std::size_t capacity(const CalibrateOptions& options) {
    const Duration longest = std::max<Duration>(options.duration, std::chrono::minutes(2));
    return static_cast<std::size_t>(longest / options.period) + 1024;
  }
  std::vector<Sensor> sensors() const {
    std::vector<Sensor> out;
    for (const Subject& s : subjects_) out.push_back(*s.sensor);
    return out;
  }

  void wait(Duration duration) const {
    const Instant until = Clock::steady().now() + duration;
    for (Instant now = until - duration; now < until; now = Clock::steady().now()) {
      const auto signal = signals_.wait(until - now);
      if (signal && asks_to_end(signal->number)) throw Ended{signal->number};
    }
  }

  void set(Load& load, bool on) {
    if (load.ended()) {
      throw UsageError(
          "the load ended by itself; give --load a command that runs until it is stopped");
    }
    on ? load.go() : load.hold();
    marks_.push_back({seconds(Clock::steady().now() - origin_), on ? 1.0 : 0.0});
  }

  void drive(const std::string& command) {
    auto load = Load::start(command, signals_);
    if (!load) throw UsageError(load.error().detail);
    marks_.push_back({0, 0});
    wait(std::chrono::seconds(1));
    for (const bool on : {true, false, true, false}) {
      set(*load, on);
      wait(kLevel);
    }
    // Half a period must be longer than the window, which is at most an update; where it is much
    // shorter, a period beside the update tells it best (specification of accuracy, B3).
    for (const double updates : {kBeat, 2 * kBeat}) {
      const Duration half = of_seconds(updates * slowest() / 2);
      for (int i = 0; i < 2 * kPeriods; ++i) {
        set(*load, i % 2 == 0);
        wait(half);
      }
    }
    marks_.push_back({seconds(Clock::steady().now() - origin_), 0});
  }

  /// The longest update period seen so far.
  double slowest() const {
    double period = 0;
    for (std::size_t i = 0; i < subjects_.size(); ++i) {
      period = std::max(period, calibrate(subjects_[i].sensor->info, polls(i), {}).comb.period_s);
    }
    return period > 0 ? std::min(period, 1.0) : 0.1;
  }

  std::vector<Subject> subjects_;
  const Signals& signals_;
  Sampler sampler_;
  SystemClock::time_point wall_;
  Instant origin_, end_{};
  std::vector<StepTrace::Point> marks_;
};

/// The meter's log, once it covers what was measured: a logger may be some seconds behind.
StepTrace meter_of(const CalibrateOptions& options, const Bench& bench) {
  if (options.meter.empty()) return {};
  const Instant patience = Clock::steady().now() + std::chrono::seconds(10);
  while (true) {
    const auto text = read_file(options.meter);
    if (!text) throw UsageError(text.error().detail + "; --meter names the log of a power meter");
    auto meter = parse_meter(*text, options.meter, options.meter_start, bench.begin_unix_s());
    if (!meter) throw UsageError(meter.error().detail);
    const bool late = meter->end_s() < bench.length_s() - 1;
    if (!late && meter->begin_s() < 1) return std::move(*meter);
    if (late && meter->end_s() > 0 && Clock::steady().now() < patience) {
      ::usleep(300'000);
      continue;
    }
    throw UsageError(fmt::format(
        "cannot use {}: it covers {:.1f} s to {:.1f} s of a measurement of 0 to {:.1f} s that "
        "began "
        "at unix time {:.3f}; check the meter's clock, or say with --meter-start when its 0 was",
        options.meter, meter->begin_s(), meter->end_s(), bench.length_s(), bench.begin_unix_s()));
  }
}

std::string method(const CalibrateOptions& options, const Machine& machine) {
  std::string how = "by its readings alone";
  if (!options.load.empty()) how = "under a load";
  if (!options.meter.empty()) {
    how = fmt::format("against the meter {} (u {:g} %)",
                      fs::path(options.meter).filename().string(), options.meter_u_percent);
  }
  return fmt::format("zeus {} calibrate, {:%Y-%m-%d}, {}{}", kVersion,
                     fmt::gmtime(SystemClock::to_time_t(SystemClock::now())), how,
                     machine.simulation ? ", simulated" : "");
}

report::Json json_of(const Subject& s, const Calibration& c) {
  const SensorInfo& info = s.sensor->info;
  report::Json out = {{"device_id", s.device->info.id},
                      {"device_index", s.device->info.index},
                      {"model", s.device->info.model},
                      {"sensor", info.name},
                      {"profile_id", info.profile.id},
                      {"update_s", c.comb.accepted ? report::Json(c.comb.period_s) : nullptr},
                      {"update_low_s", report::number(c.comb.period_low_s)},
                      {"update_high_s", report::number(c.comb.period_high_s)},
                      {"changes", c.comb.changes},
                      {"quantum", c.quantum > 0 ? report::Json(c.quantum) : nullptr},
                      {"kind_guess", to_string(c.guess)},
                      {"shape", nullptr},
                      {"coverage", c.coverage ? report::Json(*c.coverage) : nullptr},
                      {"gain", nullptr},
                      {"missing", c.missing}};
  if (c.shape) {
    out["shape"] = {{"kind", to_string(c.shape->kind)},
                    {"window_s", c.shape->window_s},
                    {"window_u_s", c.shape->window_u_s},
                    {"delay_s", c.shape->delay_s},
                    {"r2", c.shape->r2},
                    {"publications", c.shape->ticks}};
  }
  if (c.gain) {
    out["gain"] = {{"gain", c.gain->gain},          {"gain_u", c.gain->gain_u},
                   {"offset_w", c.gain->offset_w},  {"offset_u_w", c.gain->offset_u_w},
                   {"low_w", c.gain->low_w},        {"high_w", c.gain->high_w},
                   {"stretches", c.gain->stretches}};
  }
  return out;
}

std::string text_of(const std::vector<Subject>& all, const std::vector<Calibration>& found) {
  using enum report::Table::Align;
  report::Table table({left, left, left, left, left});
  std::string missing;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Calibration& c = found[i];
    const std::string gpu = fmt::format("gpu {}", all[i].device->info.index);
    const std::string name = report::printable(all[i].sensor->info.name);
    const auto ms = [](double s) { return s * 1e3; };
    std::string shape, gain;
    if (c.coverage) {
      shape = fmt::format("integrates {:.0f} % of the time", 100 * *c.coverage);
    } else if (c.shape) {
      shape = fmt::format("{} {:.1f} ± {:.1f} ms", to_string(c.shape->kind), ms(c.shape->window_s),
                          ms(2 * c.shape->window_u_s));
    }
    if (c.gain) {
      gain = fmt::format("x {:.4f} ± {:.1f} %, {:+.2f} ± {:.2f} W", c.gain->gain,
                         200 * c.gain->gain_u, c.gain->offset_w, 2 * c.gain->offset_u_w);
    }
    table.row({gpu, name, c.comb.accepted ? fmt::format("each {:.2f} ms", ms(c.comb.period_s)) : "",
               shape, gain});
    for (const std::string& sentence : c.missing) {
      missing += fmt::format("  {} {} lacks {}\n", gpu, name, sentence);
    }
  }
  return table.text() + missing;
}

/// Replaces the file with one that `edit` makes of its text, while nobody else does.
void rewrite(const fs::path& path,
             const std::function<Result<std::string>(std::string_view)>& edit) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) {
    throw UsageError(
        fmt::format("cannot make the folder {}: {}; XDG_STATE_HOME names another place",
                    path.parent_path().string(), error.message()));
  }
  auto lock = LockedFile::open(path.string() + ".lock");
  if (!lock) throw UsageError(lock.error().detail);
  const auto before = read_file(path);
  if (!before && before.error().code != Errc::absent) throw UsageError(before.error().detail);
  const auto after = edit(before ? *before : std::string());
  if (!after)
    throw UsageError(fmt::format("cannot add to {}: {}", path.string(), after.error().detail));
  auto file = OutputFile::open(path.string());
  if (!file) throw UsageError(file.error().detail);
  Status written = file->write(*after);
  if (written) written = file->commit();
  if (!written) throw UsageError(written.error().detail);
  lock->remove();
}

int deliver(const Globals& globals, const std::string& text) {
  if (globals.output.empty()) return write_all(STDOUT_FILENO, text) == 0 ? 0 : kFailed;
  auto file = OutputFile::open(globals.output);
  if (!file) throw UsageError(file.error().detail);
  Status written = file->write(text);
  if (written) written = file->commit();
  if (!written) throw UsageError(written.error().detail);
  return 0;
}

int forget(const Globals& globals, const Machine& machine, const fs::path& path) {
  std::vector<std::string> ids;
  for (const Device& d : machine.devices) ids.push_back(d.info.id);
  std::error_code none;
  if (fs::exists(path, none)) {
    rewrite(path, [&](std::string_view text) { return with_calibrations(text, {}, ids); });
  }
  return deliver(globals, globals.json ? report::dump({{"schema", "zeus.calibration/1"},
                                                       {"file", path.string()},
                                                       {"forgotten", ids}},
                                                      true)
                                       : fmt::format("forgot what {} had of {} GPUs\n",
                                                     report::printable(path.string()), ids.size()));
}

int run(const Globals& globals, const CalibrateOptions& options) {
  const fs::path path = ProfileBook::calibrations_path(environment);
  if (path.empty()) {
    throw UsageError("cannot tell where calibrations belong: set HOME or XDG_STATE_HOME");
  }
  if (options.period < milliseconds(1)) throw UsageError("--period must be at least 1ms");
  const Signals signals;  // Before any thread.
  Machine machine = open_machine(globals);
  (void)choose(machine, options.choice, globals);
  const report::Host host = host_of(globals, machine);
  if (options.forget) return forget(globals, machine, path);
  if (subjects(machine).empty()) {
    complain("cannot calibrate: no chosen GPU tells energy or power; zeus env says why");
    return kFailed;
  }
  if (!options.meter.empty() && !fs::exists(options.meter)) {
    throw UsageError(
        fmt::format("cannot read {}: there is no such file; start the meter first", options.meter));
  }
  Bench bench(subjects(machine), options, signals);
  try {
    bench.run(options);
  } catch (const Ended& ended) {
    complain("was told to end; nothing is written");
    return 128 + ended.signal;
  }
  const Stimulus stimulus{bench.origin(), meter_of(options, bench), bench.load(),
                          options.meter_u_percent / 100};
  std::vector<Calibration> found;
  std::vector<std::string> rows;
  report::Json sensors = report::Json::array();
  for (std::size_t i = 0; i < bench.all().size(); ++i) {
    const Subject& s = bench.all()[i];
    found.push_back(calibrate(s.sensor->info, bench.polls(i), stimulus));
    sensors.push_back(json_of(s, found.back()));
    if (found.back().empty()) continue;
    rows.push_back(
        calibration_row(s.device->info, s.sensor->info, found.back(), method(options, machine)));
  }
  const bool write = !options.dry_run && !rows.empty();
  if (write) {
    rewrite(path, [&](std::string_view text) { return with_calibrations(text, rows); });
  }
  if (globals.json) {
    (void)deliver(globals, report::dump({{"schema", "zeus.calibration/1"},
                                         {"zeus", kVersion},
                                         {"host", report::to_json(host)},
                                         {"file", path.string()},
                                         {"written", write ? rows.size() : 0},
                                         {"duration_s", bench.length_s()},
                                         {"sensors", sensors}},
                                        true));
  } else {
    const std::string end =
        write ? fmt::format("wrote {} rows to {}\n", rows.size(), report::printable(path.string()))
        : rows.empty() ? "nothing was found, and nothing written\n"
                       : "a dry run: nothing is written\n";
    (void)deliver(globals, report::simulated(machine.simulation, globals.style(STDOUT_FILENO)) +
                               text_of(bench.all(), found) + end);
  }
  return rows.empty() ? kFailed : 0;
}

void add_real(CLI::App* verb, const char* name, double& target, double most, const char* help) {
  const auto take = [name, most, &target](double value) {
    if (!(value >= 0 && value <= most)) {
      throw CLI::ValidationError(name, fmt::format("{:g} is not from 0 to {:g}", value, most));
    }
    target = value;
  };
  verb->add_option_function<double>(name, take, help)->type_name("NUMBER");
}

}  // namespace

void add_calibrate(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb = app.add_subcommand("calibrate", "Learn what the sensors of this machine's GPUs are");
  const auto options = std::make_shared<CalibrateOptions>();
  verb->add_option("--gpus", options->choice.gpus, "GPUs to calibrate, as in zeus run")
      ->type_name("LIST");
  verb->add_option("--load", options->load,
                   "A command that keeps the GPUs busy until it is stopped; it is held and let go")
      ->type_name("COMMAND");
  verb->add_option("--meter", options->meter,
                   "The log of a power meter: CSV with t_s or t_ms, and power_w")
      ->type_name("FILE");
  add_real(verb, "--meter-start", options->meter_start, 1e11,
           "Unix time of the log's 0, in seconds (default: it has unix times)");
  add_real(verb, "--meter-u", options->meter_u_percent, 50,
           "Standard uncertainty of the meter in per cent (default: 1)");
  add_duration(verb, "--duration", options->duration,
               "How long to watch where there is no --load (default: 20s)");
  add_duration(verb, "--period", options->period, "How often to read (default: 2ms)");
  verb->add_flag("--dry-run", options->dry_run, "Print what was found, write nothing");
  verb->add_flag("--forget", options->forget, "Remove what is known of these GPUs");
  verb->footer(
      "Examples:\n"
      "  zeus calibrate                                      update periods, by watching\n"
      "  zeus calibrate --load ./burn                        windows and coverage too\n"
      "  zeus calibrate --load ./burn --meter pmd.csv        gain and offset as well\n"
      "  zeus calibrate --forget --gpus 0");
  verbs.emplace_back(verb, [&globals, options] { return run(globals, *options); });
}

}  // namespace zeus::cli
