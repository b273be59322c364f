#pragma once

#include <optional>
#include <string>

#include "child.h"
#include "meter.h"
#include "options.h"
#include "output.h"
#include "report/json.h"
#include "report/run.h"
#include "report/timeline.h"

namespace zeus::cli {

/// What `zeus run` can be told.
struct RunOptions {
  Choice choice;
  Duration period = std::chrono::milliseconds(100), live{};
  unsigned repeat = 1, warmup = 0;
  bool ignore_failure = false, align = false;
  std::string timeline;
};
void add_run_options(CLI::App* verb, RunOptions& options);
/// Throws UsageError for what cannot be done.
void check(const Globals& globals, const RunOptions& options);

/// Looks on while something is measured. All sensors are sampled then.
class Witness {
 public:
  virtual ~Witness() = default;
  /// Before the first window.
  virtual void opened(const Meter& meter, const report::Run& run) = 0;
  virtual void sample(std::size_t sensor, const Sample& sample) = 0;
  virtual void drained() = 0;
  virtual void ended(const Meter& meter, bool counted) = 0;
  /// The report is made, and may be added to. An error is told to the user.
  virtual Status closed(report::Json& report, const report::Overhead& overhead) = 0;
  /// A line below the report for people.
  virtual std::string last_word() const = 0;
};

/// A file that gets a line for each sample.
class TimelineFile {
 public:
  explicit TimelineFile(const std::string& path);
  bool wanted() const { return file_.has_value(); }

  /// Collects lines; flush() writes them, whole, in one piece.
  void add(const Meter& meter, std::size_t sensor, const Sample& sample);
  void flush();

 private:
  report::TimelineFormat format_{};
  std::optional<OutputFile> file_;
  std::string lines_;
  bool complained_ = false;
};

/// What stands in a report before anything is measured; opens the machine, and drops from it what
/// was not chosen.
report::Run describe(const Globals& globals, const Choice& choice, Machine& machine);

/// Measures a command, so often as was asked for, and prints the report.
class Runner {
 public:
  Runner(const Globals& globals, const RunOptions& options, Witness* witness = nullptr);
  int run();

 private:
  /// Repeated runs start at evenly spread phases of the sensors: what these hide of a load in step
  /// with them cancels in the mean.
  void shift(unsigned turn) const;
  /// One run of the command; nothing where it could not be started.
  std::optional<Child::Ended> once(bool counted);
  void drain(bool counted);
  Duration interval() const;
  int deliver(int status);

  const Globals& globals_;
  const RunOptions& options_;
  Witness* witness_;
  Signals signals_;  // Before any thread.
  TimelineFile timeline_;
  std::optional<OutputFile> out_;
  std::optional<Meter> meter_;
  report::Run report_;
  int status_ = 0;
};

}  // namespace zeus::cli
