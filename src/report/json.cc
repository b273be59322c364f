#include "report/json.h"

#include <cmath>
#include <functional>

#include "base/numbers.h"
#include "solve/statistics.h"

namespace zeus::report {
namespace {

std::int64_t ns(Instant t) { return t.time_since_epoch().count(); }
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class T>
Json list(const std::vector<T>& items) {
  Json out = Json::array();
  for (const T& item : items) out.push_back(to_json(item));
  return out;
}

Json total_json(const WindowResult& w) {
  Json out = to_json(w.total);
  out["complete"] = w.missing.empty() && std::isfinite(w.total.value);
  out["missing"] = w.missing;
  out["mean_power_w"] = number(w.seconds() > 0 ? w.total.value / w.seconds() : kNan);
  return out;
}

Json summary_json(const std::vector<Repetition>& runs,
                  const std::function<double(const Repetition&)>& pick) {
  std::vector<double> values;
  for (const Repetition& r : runs) values.push_back(pick(r));
  const solve::Summary s = solve::summarize(values);
  return {{"n", s.n},
          {"mean", number(s.mean)},
          {"sd", number(s.sd)},
          {"half_width_95", number(s.half_95)},
          {"min", number(s.min)},
          {"max", number(s.max)}};
}

Json domain_summaries(const std::vector<Repetition>& runs) {
  Json out = Json::object();
  for (std::size_t i = 0; i < runs.front().window.domains.size(); ++i) {
    out[to_string(runs.front().window.domains[i].domain)] =
        summary_json(runs, [i](const Repetition& r) {
          return i < r.window.domains.size() ? r.window.domains[i].energy.value : kNan;
        });
  }
  return out;
}

Json window_json(const WindowResult& w) {
  return {{"name", w.name},
          {"begin_monotonic_ns", ns(w.begin)},
          {"end_monotonic_ns", ns(w.end)},
          {"wall_start", iso8601(w.wall)},
          {"duration_s", w.seconds()},
          {"self_cost_s", seconds(w.self_cost)}};
}

Json repetition_json(const Repetition& r) {
  Json out = {{"exit", to_json(r.exit)}};
  out.update(result_json(r.window));
  return out;
}

Json overhead_json(const Run& run) {
  Duration edges{};
  double measured = 0;
  for (const Repetition& r : run.runs) {
    edges += r.window.self_cost;
    measured += r.window.seconds();
  }
  return to_json(run.overhead, measured, edges);
}

Json alias_json(const Estimate::Alias& a) {
  if (!(a.load_s > 0)) return nullptr;
  return {{"load_s", a.load_s}, {"beat_s", number(a.beat_s)}, {"r", a.r}, {"p", a.p}};
}

}  // namespace

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_json(const Estimate& e) {
  Json flags = Json::array();
  for (const auto name : names(e.flags)) flags.push_back(std::string(name));
  return {{"energy_j", number(e.value)},
          {"u_abs_j", number(e.u_abs)},
          {"u_cmp_j", number(e.u_cmp)},
          {"low_j", number(e.low)},
          {"high_j", number(e.high)},
          {"interval_j", {number(e.interval()[0]), number(e.interval()[1])}},
          {"method", std::string(e.method)},
          {"flags", flags},
          {"refusal", e.refusal == Refusal::none ? Json(nullptr) : Json(to_string(e.refusal))},
          {"quality", to_string(e.quality)},
          {"quality_abs", to_string(e.quality_abs)},
          {"coverage", number(e.coverage)},
          {"update_s", e.update_s > 0 ? Json(e.update_s) : Json(nullptr)},
          {"alias", alias_json(e.alias)},
          {"budget",
           {{"edges_j", number(e.budget.edges)},
            {"quantum_j", number(e.budget.quantum)},
            {"timing_j", number(e.budget.timing)},
            {"coverage_j", number(e.budget.coverage)},
            {"lag_j", number(e.budget.lag)},
            {"gain_j", number(e.budget.gain)},
            {"offset_j", number(e.budget.offset)}}}};
}

Json to_json(const DomainResult& d) {
  Json out = {{"domain", to_string(d.domain)},
              {"parent", d.parent ? Json(to_string(*d.parent)) : Json(nullptr)},
              {"in_total", d.in_total},
              {"device_id", d.device_id},
              {"device_index", d.device_index},
              {"model", d.model},
              {"backend", d.backend},
              {"sensor", d.sensor},
              {"lineage", d.lineage},
              {"profile_id", d.profile_id},
              {"profile_source", d.profile_source},
              {"sensor_kind", zeus::to_string(d.sensor_kind)},
              {"gain_class", zeus::to_string(d.gain_class)}};
  out.update(to_json(d.energy));
  out["reason"] = d.reason.empty() ? Json(nullptr) : Json(d.reason);
  out["mean_power_w"] = number(d.mean_power_w);
  out["peak_power_w"] = number(d.peak_power_w);
  return out;
}

Json to_json(const Host& h) {
  Json simulation = nullptr;
  if (h.simulation) {
    simulation = {{"scenario", h.simulation->scenario},
                  {"session", h.simulation->session},
                  {"files", h.simulation->files}};
  }
  Json replay = nullptr;
  if (h.replay) {
    replay = {{"file", h.replay->file},
              {"hostname", h.replay->hostname},
              {"recorded", iso8601(h.replay->recorded)}};
  }
  return {{"address", h.address},
          {"hostname", h.hostname},
          {"kernel", h.kernel},
          {"simulation", simulation},
          {"replay", replay}};
}

Json to_json(const Selection& s) {
  return {{"ids", s.ids}, {"shared", s.shared}, {"source", s.source}, {"notes", list(s.problems)}};
}

Json to_json(const DeviceInfo& d) {
  Json facts = Json::object();
  for (const auto& [name, value] : d.facts) facts[name] = value;
  return {{"kind", to_string(d.kind)},
          {"index", d.index},
          {"model", d.model},
          {"id", d.id},
          {"backend", d.backend},
          {"pci", d.pci.empty() ? Json(nullptr) : Json(d.pci)},
          {"lost", d.lost},
          {"partitioned", d.partitioned},
          {"partitions", d.partitions},
          {"facts", facts}};
}

Json to_json(const Problem& p) {
  return {{"where", p.where}, {"code", to_string(p.error.code)}, {"detail", p.error.detail}};
}

Json to_json(const Exit& e) { return {{"code", or_null(e.code)}, {"signal", or_null(e.signal)}}; }

Json to_json(const Overhead& o, double measured_s, Duration edges) {
  return {{"cpu_s", o.cpu_s},
          {"cpu_fraction", number(measured_s > 0 ? o.cpu_s / measured_s : kNan)},
          {"self_cost_s", seconds(edges)},
          {"period_s", o.period.count() > 0 ? Json(seconds(o.period)) : Json(nullptr)},
          {"ticks", o.effort.ticks},
          {"missed", o.effort.missed},
          {"busy_s", seconds(o.effort.busy)},
          {"samples_lost", o.samples_lost}};
}

Json result_json(const WindowResult& w) {
  return {{"window", window_json(w)},
          {"total", total_json(w)},
          {"domains", list(w.domains)},
          {"edp_js", number(w.missing.empty() ? w.edp_js() : kNan)}};
}

Json to_json(const Run& run) {
  Json out = {{"schema", "zeus.run/1"},
              {"zeus", run.version},
              {"command", run.command},
              {"host", to_json(run.host)}};
  if (!run.runs.empty()) out.update(repetition_json(run.runs.back()));
  out["selection"] = Json::object();
  for (const auto& [kind, selection] : run.selections) out["selection"][kind] = to_json(selection);
  out["devices"] = list(run.devices);
  out["problems"] = list(run.problems);
  out["overhead"] = overhead_json(run);
  out["warmup"] = run.warmup;
  out["runs"] = Json::array();
  for (const Repetition& r : run.runs) out["runs"].push_back(repetition_json(r));
  if (run.runs.size() > 1) {
    out["summary"] = {
        {"energy_j", summary_json(run.runs, [](const auto& r) { return r.window.total.value; })},
        {"duration_s", summary_json(run.runs, [](const auto& r) { return r.window.seconds(); })},
        {"mean_power_w",
         summary_json(run.runs,
                      [](const auto& r) { return r.window.total.value / r.window.seconds(); })},
        {"domains_energy_j", domain_summaries(run.runs)}};
  } else {
    out["summary"] = nullptr;
  }
  return out;
}

std::string dump(const Json& json, bool pretty) {
  return json.dump(pretty ? 2 : -1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace zeus::report
