#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/json.h"
#include "report/run.h"
#include "report/text.h"
#include "zeus/recording.h"

namespace zeus::report {

/// How far results of another build may lie apart: its compiler may order sums differently.
inline constexpr double kOtherBuild = 1e-12;

/// A value of a recorded result that is not what its record gives.
struct Difference {
  std::string path;  ///< "domains/0/energy_j".
  Json recorded, recomputed;
};

/// What became of a recorded result when it was judged again.
struct Verification {
  std::string file;
  Provenance provenance;
  std::size_t windows = 0, sensors = 0, samples = 0;
  std::string damage;  ///< Then nothing was compared.
  bool exact = false;  ///< The same build: compared bit for bit. Else to `kOtherBuild`.
  std::size_t values = 0;
  std::size_t checked = 0;  ///< Samples of windows that were looked for among all samples.
  std::vector<Difference> differences;

  bool holds() const { return damage.empty() && differences.empty(); }
};

/// The result of a recording, from its records alone. What no record tells (the command, how it
/// ended, what measuring cost) is taken from `facts`.
Json recompute(const Recording& recording, const Json& facts);

/// Judges a recording again, and looks for the samples of its windows among all that were taken.
/// `build`: build_id() of who compares.
Verification verify(const Recording& recording, std::string file, std::string_view build);

/// Every leaf that differs; `relative` of 0 asks for equal bits. Adds to `values` how many leaves
/// were compared.
std::vector<Difference> differences(const Json& recorded, const Json& recomputed, double relative,
                                    std::size_t& values);

std::string to_text(const Verification& verification, Style style);
Json to_json(const Verification& verification);  ///< An element of "zeus.verify/1".

}  // namespace zeus::report
