#pragma once

// A table of sensors as text, and as rows: one file of a ProfileBook.

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeus/profile.h"

namespace zeus {

/// profiles.csv, compiled in.
extern const std::string_view kBuiltinProfiles;

/// The numbers of a row, in the units of its columns.
enum Fact : std::size_t {
  kUpdateMs,
  kWindowMs,
  kDelayMs,
  kTauMs,
  kTauUMs,
  kCoverage,
  kGain,
  kOffsetW,
  kGainU,
  kOffsetUW,
  kPowerMinW,
  kFacts
};

/// What a row says. How a sensor averages is one statement, and its gain is another: from the first
/// row that makes such a statement comes all of it, what is left empty included.
struct Facts {
  std::array<std::optional<double>, kFacts> value{};
  std::optional<SensorKind> kind;
  std::optional<GainClass> gain_class;

  /// Adds what `row` says and this does not. False if that is nothing.
  bool add(const Facts& row);
  void apply_to(SensorProfile& profile) const;

 private:
  bool shape_told_ = false, gain_told_ = false;
};

/// The parts of a driver's version: {550, 54, 15}. Empty for any other text.
using Version = std::vector<unsigned>;
Version parse_version(std::string_view text);

struct ProfileRow {
  /// Patterns: * is any text, ? any one character, | parts alternatives. Empty: fits everything.
  std::string backend, model, arch, compute, uuid, field;
  Version driver_min, driver_max;  ///< Either may be empty. 530 as the greatest admits 530.30.02.
  Facts facts;
  std::string source;
  std::size_t line = 0;

  bool fits(const DeviceInfo& device, const SensorInfo& sensor) const;
  /// How many drivers it is for, in no particular unit; infinite without a bound.
  double breadth() const;
};

/// Whether `text` fits the pattern.
bool fits(std::string_view pattern, std::string_view text) noexcept;

/// All rows of a file. The error names `name`, the line, and what is wrong with it.
Result<std::vector<ProfileRow>> parse_profiles(std::string_view csv, std::string_view name);

}  // namespace zeus
