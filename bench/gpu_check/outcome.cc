#include "gpu_check/outcome.h"

#include <fmt/format.h>

#include <cmath>

namespace zeus::check {
namespace {

using Json = nlohmann::ordered_json;

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json json_of(const Percentiles& p) {
  if (p.n == 0) return nullptr;
  return {{"n", p.n}, {"p50_s", p.p50}, {"p90_s", p.p90}, {"p99_s", p.p99}, {"max_s", p.max}};
}

Json json_of(const Latency& l) {
  return {{"sensors", l.sensors},
          {"idle", json_of(l.idle)},
          {"load", json_of(l.load)},
          {"back_to_back", json_of(l.back_to_back)}};
}

Json json_of(const SensorResult& s) {
  const Comb& c = s.comb;
  return {{"name", s.info->name},
          {"quantity", to_string(s.info->quantity)},
          {"profile", s.info->profile.id},
          {"update",
           {{"known", c.accepted},
            {"period_s", number(c.period_s)},
            {"low_s", number(c.period_low_s)},
            {"high_s", number(c.period_high_s)},
            {"rms_s", number(c.rms_s)},
            {"changes", c.changes},
            {"seen", number(c.seen)}}},
          {"idle_w", number(s.idle_w)},
          {"busy_w", number(s.busy_w)}};
}

Json json_of(const Together& t) {
  return {{"first", t.first}, {"second", t.second}, {"share", t.share}, {"lag_s", number(t.lag_s)}};
}

Json json_of(const Coverage& c, double period_s) {
  Json j = {{"verdict", to_string(c.verdict)}, {"why", c.why}};
  if (c.window > 0) {
    j["coverage"] = {{"value", c.window}, {"low", c.low}, {"high", c.high}};
    j["window_s"] = c.window * period_s;
  }
  j["mean_w"] = number(c.mean_w);
  j["expected_w"] = number(c.expected_w);
  j["swing_w"] = number(c.swing_w);
  j["amplitude"] = number(c.amplitude);
  j["u_amplitude"] = number(c.u_amplitude);
  return j;
}

Json json_of(const Series& s) {
  Json sensors = Json::array(), watts = Json::object();
  for (const auto& sensor : s.sensors) {
    Json runs = Json::array();
    for (const PhaseRun& r : sensor.runs) {
      runs.push_back({{"phase", r.phase}, {"watts", r.watts}, {"at_s", r.at_s}});
    }
    sensors.push_back({{"name", sensor.name},
                       {"coverage", json_of(sensor.coverage, s.period_s)},
                       {"runs", std::move(runs)}});
  }
  for (const auto& [name, values] : s.watts) {
    for (const double v : values) watts[name].push_back(number(v));
  }
  return {{"locked_to", s.locked_to},
          {"period_s", s.period_s},
          {"duty", kDuty},
          {"run_s", s.run_s},
          {"start", s.start},
          {"watts", std::move(watts)},
          {"sensors", std::move(sensors)}};
}

template <class T>
Json list(const std::vector<T>& all) {
  Json out = Json::array();
  for (const T& x : all) out.push_back(json_of(x));
  return out;
}

// What the counter says against what the sensors of power say of the same time.
Json counter_over_power(const Outcome& o, double SensorResult::*watts) {
  Json out = Json::object();
  for (const SensorResult& counter : o.sensors) {
    if (counter.info->name != o.counter_name) continue;
    for (const SensorResult& s : o.sensors) {
      if (s.info->quantity == Quantity::power && s.info->domain == counter.info->domain) {
        out[s.info->name] = number(counter.*watts / (s.*watts));
      }
    }
  }
  return out;
}

std::string microseconds(const Percentiles& p) {
  return p.n == 0 ? fmt::format("{:>8} {:>8}", "-", "-")
                  : fmt::format("{:8.1f} {:8.1f}", p.p50 * 1e6, p.p99 * 1e6);
}

std::string words(const Coverage& c) {
  if (c.window <= 0) return fmt::format("{}: {}", to_string(c.verdict), c.why);
  return fmt::format("{} ({:.0f} % of the time, 95 %: {:.0f} to {:.0f} %): {}",
                     to_string(c.verdict), 100 * c.window, 100 * c.low, 100 * c.high, c.why);
}

}  // namespace

Json to_json(const Outcome& o, const Machine& machine, const Device& device) {
  Json j = {{"schema", "zeus.gpu-check/1"}};
  if (machine.simulation) j["simulation"] = {{"scenario", machine.simulation->scenario}};
  Json facts = Json::object();
  for (const auto& [name, value] : device.info.facts) facts[name] = value;
  j["device"] = {{"model", device.info.model},
                 {"id", device.info.id},
                 {"index", device.info.index},
                 {"backend", device.info.backend},
                 {"facts", std::move(facts)}};
  j["length_s"] = o.length_s;
  j["latency"] = list(o.latency);
  j["sensors"] = list(o.sensors);
  j["together"] = list(o.together);
  j["counter_over_power"] = {{"idle", counter_over_power(o, &SensorResult::idle_w)},
                             {"busy", counter_over_power(o, &SensorResult::busy_w)}};
  j["series"] = list(o.series);
  j["counter"] = json_of(o.counter.coverage, o.counter.period_s);
  j["counter"]["name"] = o.counter_name.empty() ? Json(nullptr) : Json(o.counter_name);
  j["problems"] = o.problems;
  return j;
}

std::string to_text(const Outcome& o, const Machine& machine, const Device& device) {
  std::string t;
  if (machine.simulation) {
    t += fmt::format("SIMULATED (scenario {})\n", machine.simulation->scenario);
  }
  t += fmt::format("{} ({})\n\n", device.info.model, device.info.id);
  t += fmt::format("{:<34} {:>17} {:>17}\n", "read, us", "idle p50     p99", "load p50     p99");
  for (const Latency& l : o.latency) {
    std::string names;
    for (const auto& n : l.sensors) names += (names.empty() ? "" : "+") + n;
    const bool polled = l.idle.n > 0;
    t += fmt::format("{:<34} {} {}{}\n", names, microseconds(polled ? l.idle : l.back_to_back),
                     microseconds(l.load), polled ? "" : "  (idle: back to back)");
  }
  t += fmt::format("\n{:<24} {:>11} {:>9} {:>9}\n", "sensor", "update, ms", "idle, W", "busy, W");
  for (const SensorResult& s : o.sensors) {
    const std::string update =
        s.comb.accepted ? fmt::format("{:.3f}", s.comb.period_s * 1e3) : "unknown";
    t += fmt::format("{:<24} {:>11} {:>9.2f} {:>9.2f}\n", s.info->name, update, s.idle_w, s.busy_w);
  }
  t += '\n';
  for (const Together& p : o.together) {
    t += fmt::format("{:.0f} % of the updates of {} come with one of {}\n", 100 * p.share, p.first,
                     p.second);
  }
  for (const Series& s : o.series) {
    t += fmt::format("\nload in step with {} ({:.3f} ms), {} phases of {:.1f} s:\n", s.locked_to,
                     s.period_s * 1e3, kPhases, s.run_s);
    for (const auto& sensor : s.sensors) {
      t += fmt::format("  {:<22} {}\n", sensor.name, words(sensor.coverage));
    }
  }
  for (const auto& p : o.problems) t += fmt::format("problem: {}\n", p);
  t += fmt::format("\nthe energy counter looks at: {}\n", words(o.counter.coverage));
  return t;
}

}  // namespace zeus::check
