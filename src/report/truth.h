#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/json.h"
#include "report/text.h"

namespace zeus::report {

/// What a report claims of one domain, and, once somebody who knows has filled it in, the truth.
struct Claim {
  std::string domain, scope, unit;  ///< "gpu:0", "gpu", "0"
  std::string device_id;
  bool in_total = false;
  double energy_j = kNan, u_j = kNan, low_j = 0, high_j = kNan;
  double truth_j = kNan;  ///< NaN: nobody knows.
};

struct Claims {
  std::string scenario, session;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::vector<Claim> domains;
  double total_j = kNan, total_u_j = kNan;
};

/// Reads a report of `zeus run` on a simulated machine. Errc::invalid says what it is instead.
Result<Claims> read_claims(const Json& report);

/// A claim judged. What was not measured, or whose truth is unknown, holds neither way.
struct Judged {
  Claim claim;
  double error_j = kNan, error_rel = kNan;
  bool within_2u = false, within_bound = false;
  bool judged() const noexcept { return error_j == error_j; }
};

struct Verdict {
  Claims claims;
  std::vector<Judged> domains;
  Judged total;
  bool holds = false;  ///< Something was judged, and all of it lies in its bound and within 4 u.
};
Verdict compare(const Claims& claims);

std::string to_text(const Verdict& verdict, Style style);
Json to_json(const Verdict& verdict);  ///< The schema "zeus.truth/1".

}  // namespace zeus::report
