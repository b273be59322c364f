#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "zeus/result.h"

namespace zeus::report {

/// What of a run is compared.
enum class Metric : std::uint8_t { energy, time, power };
const char* to_string(Metric metric) noexcept;
const char* unit_of(Metric metric) noexcept;  ///< "J", "s", "W".

/// What a user demands of the runs of a command.
struct Condition {
  enum class Kind : std::uint8_t {
    fails_if,      ///< Fails where the data show that the quantity lies beyond the limit.
    no_worse_than  ///< Fails unless the data show that it lies below the limit.
  };
  Kind kind = Kind::fails_if;
  Metric metric = Metric::energy;
  bool above = true;     ///< Beyond is above the limit; else below.
  bool relative = true;  ///< The limit is a ratio to the reference; else in SI units.
  double limit = 1;
  std::string text;  ///< As the user wrote it.
};

/// "energy > 1.05x", "time<0.9x", "power > 300", "energy > 1.2kJ", "time > 90s". A number with x is
/// a ratio to the reference, one without a unit in SI. Errc::invalid says what is wrong.
Result<Condition> parse_fail_if(std::string_view text);

/// "1.05x" (of the energy), "time 1.1x", "power 300W".
Result<Condition> parse_no_worse_than(std::string_view text);

}  // namespace zeus::report
