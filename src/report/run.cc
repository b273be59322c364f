#include "report/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <span>

namespace zeus::report {
namespace {

/// The place of `domain`'s sensor of one quantity in the subject.
std::size_t index_of(const Subject& subject, DomainId domain, Quantity quantity) {
  const auto& all = subject.sensors;
  return static_cast<std::size_t>(std::find_if(all.begin(), all.end(),
                                               [&](const SensorInfo& s) {
                                                 return s.domain == domain &&
                                                        s.quantity == quantity;
                                               }) -
                                  all.begin());
}

const Device* owner(const Machine& machine, const SensorInfo& info) {
  for (const Device& d : machine.devices) {
    for (const Sensor& s : d.sensors) {
      if (s.info.domain == info.domain && s.info.name == info.name) return &d;
    }
  }
  return nullptr;
}

/// Why an estimate has no value, from the flags and the errors at the edges of its sensor.
std::string why(const Measurement& m, const Estimate& e, std::size_t sensor) {
  if (has(e.flags, Flag::stalled)) return "its counter did not move in all that time";
  switch (e.refusal) {
    case Refusal::no_update: return "the window is shorter than its counter's step";
    case Refusal::fell: return "its counter fell or started anew";
    case Refusal::wrap_unknown:
      return "it was not read for so long that its counter may have wrapped";
    case Refusal::implausible: return "it would be more or less power than the device can have";
    case Refusal::too_uncertain: return "its uncertainty exceeds its value in so short a window";
    default: break;
  }
  if (sensor < m.series.size()) {
    const auto& s = m.series[sensor];
    for (const Errc error : {s.end.sample.error(), s.begin.sample.error()}) {
      if (error != Errc::ok)
        return std::string("its sensor could not be read: ") + to_string(error);
    }
  }
  return "its sensor was never read in the window";
}

double peak_of(const Measurement& m, std::size_t sensor, const Peaks& peaks) {
  Peaks seen = peaks;
  seen.resize(m.series.size(), kNan);
  if (sensor >= m.series.size()) return kNan;
  const auto& s = m.series[sensor];
  const SensorInfo& info = m.subject->sensors[sensor];
  for (const Sample& sample : std::span(m.between).subspan(s.first, s.count)) {
    note_peak(seen, sensor, info, sample);
  }
  note_peak(seen, sensor, info, s.begin.sample);
  note_peak(seen, sensor, info, s.end.sample);
  return seen[sensor];
}

DomainResult judge_domain(const Machine& machine, const Measurement& m, DomainId domain,
                          const Peaks& peaks) {
  DomainResult r;
  r.domain = domain;
  r.energy = estimate(m, domain);
  const Subject& subject = *m.subject;
  const auto& roots = subject.domains.roots();
  r.parent = subject.domains.parent(domain);
  r.in_total = std::find(roots.begin(), roots.end(), domain) != roots.end();
  const std::size_t power = index_of(subject, domain, Quantity::power);
  std::size_t sensor = index_of(subject, domain, Quantity::energy);
  if (sensor == subject.sensors.size() || has(r.energy.flags, Flag::integrated)) sensor = power;
  if (sensor < subject.sensors.size()) {
    const SensorInfo& info = subject.sensors[sensor];
    r.sensor = info.name;
    r.lineage = info.lineage;
    r.profile_id = info.profile.id;
    r.profile_source = info.profile.source;
    r.sensor_kind = info.profile.kind;
    r.gain_class = info.profile.gain_class;
    if (const Device* d = owner(machine, info)) {
      r.device_id = d->info.id;
      r.device_index = d->info.index;
      r.model = d->info.model;
      r.backend = d->info.backend;
    }
  }
  if (std::isnan(r.energy.value)) r.reason = why(m, r.energy, sensor);
  const double seconds = std::chrono::duration<double>(m.end - m.begin).count();
  if (seconds > 0) r.mean_power_w = r.energy.value / seconds;
  if (power < subject.sensors.size()) r.peak_power_w = peak_of(m, power, peaks);
  return r;
}

/// Devices that were chosen but tell neither energy nor power.
std::vector<std::string> silent(const Machine& machine) {
  std::vector<std::string> out;
  for (const Device& d : machine.devices) {
    const bool tells = std::any_of(d.sensors.begin(), d.sensors.end(), [](const Sensor& s) {
      return s.info.quantity == Quantity::energy || s.info.quantity == Quantity::power;
    });
    if (tells && !d.info.lost) continue;
    out.push_back(fmt::format("{} {} ({})", to_string(d.info.kind), d.info.index,
                              d.info.lost ? "lost" : "it tells no energy"));
  }
  return out;
}

}  // namespace

void note_peak(Peaks& peaks, std::size_t sensor, const SensorInfo& info, const Sample& sample) {
  if (!sample.ok() || sensor >= peaks.size()) return;
  const double value = static_cast<double>(sample.raw()) * info.scale;
  if (!(peaks[sensor] >= value)) peaks[sensor] = value;
}

WindowResult judge(const Machine& machine, const Measurement& m, const Peaks& peaks) {
  WindowResult out{.name = m.name,
                   .begin = m.begin,
                   .end = m.end,
                   .wall = m.wall,
                   .self_cost = m.self_cost,
                   .domains = {},
                   .total = estimate(m, kNode),
                   .missing = silent(machine)};
  for (const DomainId domain : m.subject->domains.all()) {
    out.domains.push_back(judge_domain(machine, m, domain, peaks));
    const DomainResult& last = out.domains.back();
    if (last.in_total && std::isnan(last.energy.value)) {
      out.missing.push_back(fmt::format("{} ({})", to_string(domain), last.reason));
    }
  }
  return out;
}

WindowResult only_time(const Machine& machine, std::string name, Instant begin, Instant end,
                       std::chrono::system_clock::time_point wall) {
  return {.name = std::move(name),
          .begin = begin,
          .end = end,
          .wall = wall,
          .self_cost = {},
          .domains = {},
          .total = estimate(Measurement{}, kNode),
          .missing = silent(machine)};
}

Measurement joined(const Measurement& first, const Measurement& last) {
  Measurement out = last;
  out.name = first.name;
  out.wall = first.wall;
  out.begin = first.begin;
  out.self_cost = first.self_cost + last.self_cost;
  out.between.clear();
  for (std::size_t i = 0; i < out.series.size() && i < first.series.size(); ++i) {
    auto& series = out.series[i];
    const auto &one = first.series[i], &two = last.series[i];
    series.begin = one.begin;
    series.before_begin = one.before_begin;
    series.lead = one.lead;
    const auto add = [&out](const Measurement& m, std::size_t from, std::size_t count) {
      const auto begin = m.between.begin() + static_cast<std::ptrdiff_t>(from);
      out.between.insert(out.between.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
    };
    add(first, one.first - one.earlier, one.earlier);
    series.earlier = one.earlier;
    series.first = out.between.size();
    add(first, one.first, one.count);
    if (&first != &last) add(last, two.first, two.count);
    series.count = out.between.size() - series.first;
    add(last, two.first + two.count, two.later);
  }
  return out;
}

bool before(DomainId a, DomainId b) noexcept {
  const auto rank = [](Scope scope) {
    switch (scope) {
      case Scope::module:
      case Scope::gpu: return 0;
      case Scope::package: return 1;
      case Scope::dram: return 2;
      default: return 3;
    }
  };
  return rank(a.scope) != rank(b.scope) ? rank(a.scope) < rank(b.scope) : a < b;
}

const char* explain(Flag flag) noexcept {
  switch (flag) {
    case Flag::none: return "";
    case Flag::missing: return "not measured, or a part is left out";
    case Flag::short_window: return "so short that its edges cost more than 1 %";
    case Flag::gap: return "a stretch may have been missed";
    case Flag::reset: return "the counter started anew";
    case Flag::gain_unknown: return "sensor not calibrated";
    case Flag::range_unknown: return "no upper bound known";
    case Flag::integrated: return "from samples of power";
    case Flag::below_resolution: return "shorter than the counter's step";
    case Flag::stalled: return "the counter stood still";
    case Flag::shared: return "others' use of the device is in it";
    case Flag::disagree: return "counter and sampled power contradict each other";
    case Flag::partial_coverage: return "the sensor looks at a part of the time only";
    case Flag::coverage_unverified: return "what the sensor does not see is not proven";
    case Flag::aliased: return "the load runs in step with the sensor";
    case Flag::no_pad: return "no quiet power around the window";
    case Flag::profile_mismatch: return "the sensor does not behave as its profile says";
    case Flag::missed_ticks: return "readings were missed";
    case Flag::uncalibrated_gain: return "gain taken from other devices";
    case Flag::unit_suspect: return "two sensors differ by the ratio of two units";
    case Flag::modelled: return "computed by a model, not measured";
    case Flag::identity_by_index: return "only a number says which device it is";
  }
  return "";
}

std::string iso8601(std::chrono::system_clock::time_point t) {
  using std::chrono::microseconds;
  const auto us = std::chrono::floor<microseconds>(t.time_since_epoch()).count();
  const std::time_t seconds =
      static_cast<std::time_t>(us >= 0 ? us / 1'000'000 : (us - 999'999) / 1'000'000);
  std::tm tm{};
  gmtime_r(&seconds, &tm);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", tm.tm_year + 1900, tm.tm_mon + 1,
                     tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                     us - static_cast<std::int64_t>(seconds) * 1'000'000);
}

}  // namespace zeus::report
