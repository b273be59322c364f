#include "report/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "report/origin.h"

namespace zeus::report {
namespace {

bool same_number(const Json& a, const Json& b, double relative) {
  if (a.is_number_integer() && b.is_number_integer()) return a == b;
  const auto x = a.get<double>(), y = b.get<double>();
  if (relative == 0) return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  return std::abs(x - y) <= relative * std::max(std::abs(x), std::abs(y));
}

bool same_leaf(const Json& a, const Json& b, double relative) {
  return a.is_number() && b.is_number() ? same_number(a, b, relative) : a == b;
}

class Comparison {
 public:
  explicit Comparison(double relative) : relative_(relative) {}

  void compare(const std::string& path, const Json& a, const Json& b) {
    if (a.is_object() && b.is_object()) {
      for (const auto& [key, value] : a.items()) compare(below(path, key), value, at(b, key));
      // Another version may tell more than was told then.
      for (const auto& [key, value] : b.items()) {
        if (relative_ == 0 && !a.contains(key)) compare(below(path, key), {}, value);
      }
    } else if (a.is_array() && b.is_array()) {
      for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
        compare(below(path, std::to_string(i)), i < a.size() ? a[i] : Json(),
                i < b.size() ? b[i] : Json());
      }
    } else {
      ++values;
      if (!same_leaf(a, b, relative_)) found.push_back({path, a, b});
    }
  }
  std::vector<Difference> found;
  std::size_t values = 0;

 private:
  static Json at(const Json& object, const std::string& key) {
    const auto it = object.find(key);
    return it == object.end() ? Json() : *it;
  }
  static std::string below(const std::string& path, const std::string& key) {
    return path.empty() ? key : path + '/' + key;
  }
  double relative_;
};

/// The samples of a window: those after `from` and not after its end.
std::span<const Sample> within(const std::vector<Sample>& all, const Recording::Window& w) {
  const auto later = [](Instant t, const Sample& s) { return t < s.at(); };
  const auto first = std::upper_bound(all.begin(), all.end(), w.from, later);
  return {first, std::upper_bound(first, all.end(), w.measurement.end, later)};
}

WindowResult judge_again(const Recording& r, const Recording::Window& w) {
  const Measurement& m = w.measurement;
  if (m.subject->sensors.empty()) return only_time(r.machine, m.name, m.begin, m.end, m.wall);
  Peaks peaks(r.places.size(), kNan);
  for (std::size_t i = 0; i < r.places.size(); ++i) {
    for (const Sample& s : within(r.samples[r.places[i]], w)) {
      note_peak(peaks, i, m.subject->sensors[i], s);
    }
  }
  return judge(r.machine, m, peaks);
}

bool among(const Sample& s, std::span<const Sample> all) {
  const auto before = [](const Sample& a, Instant t) { return a.at() < t; };
  for (auto it = std::lower_bound(all.begin(), all.end(), s.at(), before);
       it != all.end() && it->at() == s.at(); ++it) {
    if (it->raw() == s.raw() && it->error() == s.error()) return true;
  }
  return false;
}

void check_samples(const Recording& r, Verification& out) {
  if (r.lost > 0) return;  // What was overwritten unread is in no file.
  for (std::size_t k = 0; k < r.windows.size(); ++k) {
    const Measurement& m = r.windows[k].measurement;
    for (std::size_t i = 0; i < m.series.size(); ++i) {
      const auto& s = m.series[i];
      const auto own = std::span(m.between).subspan(s.first, s.count);
      const auto all = within(r.samples[r.places[i]], r.windows[k]);
      std::size_t checked = 0, stray = 0;
      for (const Sample& each : own) {
        if (each.at() > m.end) continue;  // It came while the edges were read.
        ++checked;
        stray += among(each, all) ? 0U : 1U;
      }
      out.checked += checked;
      if (stray == 0) continue;
      const SensorInfo& info = m.subject->sensors[i];
      out.differences.push_back(
          {fmt::format("samples/{}/{}/{}", k, to_string(info.domain), info.name),
           fmt::format("{} samples in the window", checked),
           fmt::format("{} of them are not among those taken", stray)});
    }
  }
}

}  // namespace

std::vector<Difference> differences(const Json& recorded, const Json& recomputed, double relative,
                                    std::size_t& values) {
  Comparison comparison(relative);
  comparison.compare("", recorded, recomputed);
  values += comparison.values;
  return std::move(comparison.found);
}

Json recompute(const Recording& r, const Json& facts) {
  const Provenance& p = r.provenance;
  Run run;
  run.version = p.version;
  run.host = {p.address, p.hostname, p.kernel, p.simulation, p.replay};
  run.selections = r.selections;
  for (const Device& d : r.machine.devices) run.devices.push_back(d.info);
  run.problems = r.machine.problems;
  for (const Recording::Window& w : r.windows) run.runs.push_back({judge_again(r, w), {}});
  // As text, since what is no UTF-8 is replaced there.
  Json out = Json::parse(dump(to_json(run), false), nullptr, false);
  const auto take = [](Json& to, const Json& from, const char* key) {
    if (from.is_object() && from.contains(key)) to[key] = from[key];
  };
  for (const char* key : {"command", "exit", "overhead", "warmup", "recording"}) {
    take(out, facts, key);
  }
  if (!facts.is_object() || !facts.contains("runs")) return out;
  for (std::size_t i = 0; i < out["runs"].size() && i < facts["runs"].size(); ++i) {
    take(out["runs"][i], facts["runs"][i], "exit");
  }
  return out;
}

Verification verify(const Recording& r, std::string file, std::string_view build) {
  Verification out;
  out.file = std::move(file);
  out.provenance = r.provenance;
  out.windows = r.windows.size();
  out.damage = r.damage;
  for (const auto& samples : r.samples) {
    out.sensors += samples.empty() ? 0U : 1U;
    out.samples += samples.size();
  }
  out.exact = r.provenance.build == build;
  if (!out.damage.empty()) return out;
  const Json recorded = Json::parse(r.result, nullptr, false);
  if (!recorded.is_object()) {
    out.damage = "its result is no report";
    return out;
  }
  out.differences =
      differences(recorded, recompute(r, recorded), out.exact ? 0 : kOtherBuild, out.values);
  check_samples(r, out);
  return out;
}

std::string to_text(const Verification& v, Style style) {
  const Provenance& p = v.provenance;
  std::string out = fmt::format("{} {}\n", bold("zeus verify", style),
                                to_text(Replay{v.file, p.hostname, p.wall}));
  out += origin({p.address, p.hostname, p.kernel, p.simulation, p.replay}, style);
  out += fmt::format("  by zeus {} ({}) at {}\n", printable(p.version), printable(p.build),
                     printable(p.address));
  out += fmt::format("  {} window{}, {} samples of {} sensors\n", v.windows,
                     v.windows == 1 ? "" : "s", v.samples, v.sensors);
  if (!v.damage.empty()) return out + fmt::format("  not compared: {}\n", printable(v.damage));
  out += v.exact ? "  compared bit for bit: this is the same build\n"
                 : fmt::format("  compared to {:g}, relative: this is another build ({})\n",
                               kOtherBuild, build_id());
  if (v.differences.empty()) {
    return out + fmt::format("  all {} values match, and {} samples\n", v.values, v.checked);
  }
  out += fmt::format("  {} of {} values do not match\n", v.differences.size(), v.values);
  for (const Difference& d : v.differences) {
    out += fmt::format("    {}: recorded {}, recomputed {}\n", printable(d.path),
                       printable(d.recorded.dump()), printable(d.recomputed.dump()));
  }
  return out;
}

Json to_json(const Verification& v) {
  const Provenance& p = v.provenance;
  Json out = {{"file", v.file},
              {"holds", v.holds()},
              {"damage", v.damage.empty() ? Json(nullptr) : Json(v.damage)},
              {"comparison", v.exact ? "bits" : "relative"},
              {"tolerance", v.exact ? 0.0 : kOtherBuild},
              {"recorded",
               {{"zeus", p.version},
                {"build", p.build},
                {"wall", iso8601(p.wall)},
                {"host", to_json(Host{p.address, p.hostname, p.kernel, p.simulation, p.replay})}}},
              {"build", build_id()},
              {"windows", v.windows},
              {"sensors", v.sensors},
              {"samples", v.samples},
              {"samples_checked", v.checked},
              {"values", v.values}};
  out["differences"] = Json::array();
  for (const Difference& d : v.differences) {
    out["differences"].push_back(
        {{"path", d.path}, {"recorded", d.recorded}, {"recomputed", d.recomputed}});
  }
  return out;
}

}  // namespace zeus::report
