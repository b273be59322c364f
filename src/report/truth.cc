#include "report/truth.h"

#include <fmt/format.h>

#include <cmath>

#include "report/table.h"

namespace zeus::report {
namespace {

/// One value in twenty lies beyond 2 u, as it should; beyond 4 u none ought to.
constexpr double kBeyondChance = 4;

Error no(std::string detail) { return {Errc::invalid, 0, std::move(detail)}; }

double value(const Json& object, const char* key, double otherwise) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : otherwise;
}

std::string text(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

Claim read_claim(const Json& d) {
  Claim c;
  c.domain = text(d, "domain");
  const auto colon = c.domain.find(':');
  c.scope = c.domain.substr(0, colon);
  if (colon != std::string::npos) c.unit = c.domain.substr(colon + 1);
  c.device_id = text(d, "device_id");
  c.in_total = d.contains("in_total") && d["in_total"] == true;
  c.energy_j = value(d, "energy_j", kNan);
  c.u_j = value(d, "u_abs_j", kNan);
  c.low_j = value(d, "low_j", 0);
  c.high_j = value(d, "high_j", std::numeric_limits<double>::infinity());
  return c;
}

Judged judge_claim(const Claim& c) {
  Judged j;
  j.claim = c;
  j.error_j = c.energy_j - c.truth_j;
  j.error_rel = c.truth_j > 0 ? j.error_j / c.truth_j : kNan;
  j.within_2u = std::abs(j.error_j) <= 2 * c.u_j;
  j.within_bound = c.low_j <= c.truth_j && c.truth_j <= c.high_j;
  return j;
}

const char* yes_no(bool b) { return b ? "yes" : "NO"; }

Json judged_json(const Judged& j) {
  const auto answer = [&](bool b) { return j.judged() ? Json(b) : Json(nullptr); };
  return {{"domain", j.claim.domain},
          {"truth_j", number(j.claim.truth_j)},
          {"energy_j", number(j.claim.energy_j)},
          {"u_abs_j", number(j.claim.u_j)},
          {"error_j", number(j.error_j)},
          {"error_relative", number(j.error_rel)},
          {"within_2u", answer(j.within_2u)},
          {"within_bound", answer(j.within_bound)}};
}

}  // namespace

Result<Claims> read_claims(const Json& report) {
  if (!report.is_object() || text(report, "schema") != "zeus.run/1") {
    return no("it is no report of zeus run --json");
  }
  const auto host = report.find("host");
  const auto window = report.find("window");
  const auto domains = report.find("domains");
  if (host == report.end() || !host->is_object() || window == report.end() ||
      !window->is_object() || domains == report.end() || !domains->is_array()) {
    return no("it is cut short: no host, window or domains");
  }
  if (const auto replay = host->find("replay"); replay != host->end() && replay->is_object()) {
    return no("it was replayed, and its times are not those of the session that was recorded");
  }
  const auto simulation = host->find("simulation");
  if (simulation == host->end() || !simulation->is_object()) {
    return no("it was measured on a real machine, of which nobody knows the truth");
  }
  Claims out;
  out.scenario = text(*simulation, "scenario");
  out.session = text(*simulation, "session");
  const auto instant = [&](const char* key) {
    const auto it = window->find(key);
    return it != window->end() && it->is_number_integer() ? it->get<std::int64_t>() : -1;
  };
  out.begin_ns = instant("begin_monotonic_ns");
  out.end_ns = instant("end_monotonic_ns");
  if (out.session.empty() || out.begin_ns < 0 || out.end_ns < out.begin_ns) {
    return no("its window or its session cannot be read");
  }
  for (const Json& d : *domains) {
    if (d.is_object()) out.domains.push_back(read_claim(d));
  }
  if (const auto total = report.find("total"); total != report.end() && total->is_object()) {
    out.total_j = value(*total, "energy_j", kNan);
    out.total_u_j = value(*total, "u_abs_j", kNan);
  }
  return out;
}

Verdict compare(const Claims& claims) {
  Verdict out;
  out.claims = claims;
  Claim total;
  total.domain = "total";
  total.energy_j = claims.total_j;
  total.u_j = claims.total_u_j;
  total.truth_j = 0;
  total.high_j = std::numeric_limits<double>::infinity();
  bool any = false, all = true;
  for (const Claim& c : claims.domains) {
    const Judged j = judge_claim(c);
    // Of what is left out of the sum of values, the truth is left out too.
    if (c.in_total && std::isfinite(c.energy_j)) total.truth_j += c.truth_j;
    any = any || j.judged();
    all = all &&
          (!j.judged() || (j.within_bound && std::abs(j.error_j) <= kBeyondChance * j.claim.u_j));
    out.domains.push_back(j);
  }
  out.total = judge_claim(total);
  out.holds = any && all;
  return out;
}

std::string to_text(const Verdict& v, Style style) {
  using enum Table::Align;
  Table table({left, right, right, right, right, right, left, left});
  table.row({"domain", "truth", "measured", "error", "", "2 u", "within 2 u", "within bound"});
  const auto add = [&](const Judged& j) {
    const Claim& c = j.claim;
    if (!j.judged()) {
      table.row({c.domain,
                 std::isfinite(c.truth_j) ? fmt::format("{:.4f} J", c.truth_j) : "unknown",
                 std::isfinite(c.energy_j) ? fmt::format("{:.4f} J", c.energy_j) : "not measured"});
      return;
    }
    table.row({c.domain, fmt::format("{:.4f} J", c.truth_j), fmt::format("{:.4f} J", c.energy_j),
               fmt::format("{:+.4f} J", j.error_j),
               std::isfinite(j.error_rel) ? fmt::format("{:+.3f} %", 100 * j.error_rel) : "",
               fmt::format("{:.4f} J", 2 * c.u_j), yes_no(j.within_2u), yes_no(j.within_bound)});
  };
  for (const Judged& j : v.domains) add(j);
  add(v.total);
  std::string out = simulated(Simulation{v.claims.scenario, v.claims.session, ""}, style);
  return out + table.text();
}

Json to_json(const Verdict& v) {
  Json out = {{"schema", "zeus.truth/1"},
              {"scenario", v.claims.scenario},
              {"session", v.claims.session},
              {"begin_monotonic_ns", v.claims.begin_ns},
              {"end_monotonic_ns", v.claims.end_ns},
              {"holds", v.holds}};
  out["domains"] = Json::array();
  for (const Judged& j : v.domains) out["domains"].push_back(judged_json(j));
  out["total"] = judged_json(v.total);
  return out;
}

}  // namespace zeus::report
