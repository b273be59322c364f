#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/condition.h"
#include "report/run.h"
#include "report/text.h"
#include "solve/study.h"

namespace zeus::report {

/// Characters of a command's name that a sentence or a table shows.
inline constexpr std::size_t kLongestName = 48;

/// One run of one command of a comparison.
struct BenchRun {
  std::size_t command = 0, block = 0;
  std::size_t place = 0;  ///< Among the runs that count, in the order in which they were made.
  double start_temperature_c = kNan;  ///< Of the hottest chosen GPU; NaN: none tells.
  bool cooled = true;                 ///< False: it was still too hot when the wait was over.
  WindowResult window{};
  Exit exit{};
};

/// Everything that `zeus bench` did.
struct Bench {
  struct Command {
    std::string name, text;
  };
  std::string version;
  Host host;
  std::vector<std::pair<std::string, Selection>> selections;  ///< "gpu", "cpu".
  std::vector<DeviceInfo> devices;
  std::vector<Problem> problems;
  Overhead overhead;

  std::vector<Command> commands;
  std::size_t reference = 0;  ///< The command that the others are compared with.
  std::size_t runs = 0, warmup = 0;
  solve::Order order = solve::Order::random;
  std::uint64_t seed = 0;
  double period_s = 0;     ///< Over which starts were spread; 0: they were not.
  std::size_t phases = 0;  ///< In how many steps.
  std::vector<Condition> conditions;

  std::vector<BenchRun> done;
  std::string ended_early;  ///< Why not all runs were made; empty if they were.
};

/// What a condition came to for one command.
struct Ruling {
  std::size_t condition = 0, command = 0;
  double value = kNan;
  std::array<double, 2> limits{kNan, kNan};  ///< The one-sided limits of 95 %.
  solve::Answer answer = solve::Answer::undecided;
  bool judged = false;  ///< False: there are too few numbers for any answer.
  bool fails = false;
};

/// What the runs say.
struct Findings {
  struct PerMetric {
    std::vector<solve::Outcome> outcomes;        ///< Parallel to Bench::done.
    std::vector<solve::Level> levels;            ///< Of each command.
    std::vector<solve::Comparison> comparisons;  ///< Of each command; that of the reference idle.
  };
  PerMetric energy, time, power;
  std::vector<std::array<double, 2>> bootstrap;  ///< Of the ratio of energies of each command.
  bool gain_included = false;        ///< In the uncertainty of the levels: every sensor's is known.
  solve::Slope per_run, per_degree;  ///< Of the energy.
  std::vector<std::size_t> outliers;
  std::vector<Ruling> rulings;
  std::vector<std::string> warnings;

  const PerMetric& of(Metric metric) const noexcept;
  bool fails() const noexcept;   ///< A condition is violated.
  bool judged() const noexcept;  ///< Every condition has an answer.
};

/// The part of `u_cmp` that all runs share, so that repetition does not average it out
/// (specification of accuracy, section 5.8): all of it where `phases` is 0, starts not being spread
/// over the sensor's period. Where they were, at n phases, what the edges and the coverage of the
/// sensor do to a run is in the scatter of the runs, but for an n-th: of runs of one length, n
/// phases see the age of the last reading to T_u / n, and what n phases leave of the harmonics of a
/// load in step falls like 1 / n. The resolution of the sensor is in the scatter.
double common_u(const Estimate& estimate, std::size_t phases);

/// Judges the runs. The energy of a run counts where it is no mere lower bound, and no part is
/// missing that others have. Ratios leave the gain out: it cancels.
Findings analyze(const Bench& bench);

/// The report of `zeus bench` for people.
std::string to_text(const Bench& bench, const Findings& findings, Style style);
/// Every run in a line (RFC 4180).
std::string to_csv(const Bench& bench, const Findings& findings);
/// The commands as a table of Markdown.
std::string to_markdown(const Bench& bench, const Findings& findings);

}  // namespace zeus::report
