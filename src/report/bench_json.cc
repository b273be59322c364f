#include "report/bench.h"
#include "report/json.h"

namespace zeus::report {
namespace {

Json level_json(const solve::Level& l) {
  const auto interval = l.mean.interval(0.95);
  return {{"n", l.summary.n},
          {"mean", number(l.mean.value)},
          {"u", number(l.mean.u)},
          {"freedom", number(l.mean.freedom)},
          {"low_95", number(interval[0])},
          {"high_95", number(interval[1])},
          {"sd", number(l.summary.sd)},
          {"min", number(l.summary.min)},
          {"max", number(l.summary.max)}};
}

Json comparison_json(const solve::Comparison& c) {
  const auto interval = c.interval(0.95), one_sided = c.interval(0.90);
  return {{"n", c.n},
          {"method", c.paired ? "paired" : "welch"},
          {"ratio", number(c.ratio())},
          {"u_log", number(c.log_ratio.u)},
          {"freedom", number(c.log_ratio.freedom)},
          {"low_95", number(interval[0])},
          {"high_95", number(interval[1])},
          {"at_least_95", number(one_sided[0])},
          {"at_most_95", number(one_sided[1])},
          {"p", number(c.p())},
          {"detectable", number(c.detectable())}};
}

const char* word(solve::Answer answer) {
  switch (answer) {
    case solve::Answer::shown: return "shown";
    case solve::Answer::refuted: return "refuted";
    case solve::Answer::undecided: return "undecided";
  }
  return "undecided";
}

Json slope_json(const solve::Slope& s) {
  return {{"relative", number(s.per_unit)}, {"t", number(s.t)}, {"drift", s.drifts()}};
}

Json commands_json(const Bench& bench, const Findings& f) {
  Json out = Json::array();
  for (std::size_t c = 0; c < bench.commands.size(); ++c) {
    out.push_back({{"number", c + 1},
                   {"name", bench.commands[c].name},
                   {"command", bench.commands[c].text},
                   {"energy_j", level_json(f.energy.levels[c])},
                   {"duration_s", level_json(f.time.levels[c])},
                   {"mean_power_w", level_json(f.power.levels[c])}});
  }
  return out;
}

Json comparisons_json(const Bench& bench, const Findings& f) {
  Json out = Json::array();
  for (std::size_t c = 0; c < bench.commands.size(); ++c) {
    if (c == bench.reference) continue;
    Json energy = comparison_json(f.energy.comparisons[c]);
    energy["bootstrap_low_95"] = number(f.bootstrap[c][0]);
    energy["bootstrap_high_95"] = number(f.bootstrap[c][1]);
    out.push_back({{"command", c + 1},
                   {"reference", bench.reference + 1},
                   {"energy", energy},
                   {"time", comparison_json(f.time.comparisons[c])},
                   {"power", comparison_json(f.power.comparisons[c])}});
  }
  return out;
}

Json conditions_json(const Bench& bench, const Findings& f) {
  Json out = Json::array();
  for (const Ruling& v : f.rulings) {
    const Condition& c = bench.conditions[v.condition];
    const bool gate = c.kind == Condition::Kind::fails_if;
    out.push_back({{"option", gate ? "fail-if" : "no-worse-than"},
                   {"text", c.text},
                   {"metric", to_string(c.metric)},
                   {"relative", c.relative},
                   {"limit", c.limit},
                   {"command", v.command + 1},
                   {"value", number(v.value)},
                   {"at_least_95", number(v.limits[0])},
                   {"at_most_95", number(v.limits[1])},
                   {"answer", v.judged ? Json(word(v.answer)) : Json(nullptr)},
                   {"fails", v.judged ? Json(v.fails) : Json(nullptr)}});
  }
  return out;
}

Json runs_json(const Bench& bench, const Findings& f) {
  Json out = Json::array();
  for (std::size_t i = 0; i < bench.done.size(); ++i) {
    const BenchRun& r = bench.done[i];
    Json run = {{"run", r.place + 1},
                {"command", r.command + 1},
                {"block", r.block + 1},
                {"compared", f.energy.outcomes[i].usable()},
                {"start_temperature_c", number(r.start_temperature_c)},
                {"cooled", r.cooled},
                {"exit", to_json(r.exit)}};
    run.update(result_json(r.window));
    out.push_back(run);
  }
  return out;
}

}  // namespace

Json to_json(const Bench& bench, const Findings& f) {
  double measured = 0;
  Duration edges{};
  for (const BenchRun& r : bench.done) {
    measured += r.window.seconds();
    edges += r.window.self_cost;
  }
  Json out = {
      {"schema", "zeus.bench/1"},
      {"zeus", bench.version},
      {"host", to_json(bench.host)},
      {"complete", bench.ended_early.empty()},
      {"design",
       {{"runs", bench.runs},
        {"warmup", bench.warmup},
        {"order", to_string(bench.order)},
        {"seed", bench.seed},
        {"phases", bench.period_s > 0 ? bench.phases : 0},
        {"period_s", bench.period_s > 0 ? Json(bench.period_s) : Json(nullptr)}}},
      {"reference", bench.reference + 1},
      {"gain_included", f.gain_included},
      {"commands", commands_json(bench, f)},
      {"comparisons", comparisons_json(bench, f)},
      {"conditions", conditions_json(bench, f)},
      {"drift", {{"per_run", slope_json(f.per_run)}, {"per_degree", slope_json(f.per_degree)}}},
      {"outliers", Json::array()},
      {"warnings", f.warnings}};
  for (const std::size_t i : f.outliers) out["outliers"].push_back(bench.done[i].place + 1);
  out["selection"] = Json::object();
  for (const auto& [kind, s] : bench.selections) out["selection"][kind] = to_json(s);
  out["devices"] = Json::array();
  for (const DeviceInfo& d : bench.devices) out["devices"].push_back(to_json(d));
  out["problems"] = Json::array();
  for (const Problem& p : bench.problems) out["problems"].push_back(to_json(p));
  out["overhead"] = to_json(bench.overhead, measured, edges);
  out["runs"] = runs_json(bench, f);
  return out;
}

}  // namespace zeus::report
