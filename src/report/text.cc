#include "report/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "report/origin.h"
#include "report/table.h"
#include "solve/statistics.h"

namespace zeus::report {
namespace {

using enum Table::Align;

std::string watts(double w) { return std::isfinite(w) ? fmt::format("{:.1f} W", w) : ""; }

/// Twice the standard uncertainty of the value, with the gain of all sensors of which it is known.
double expanded(const Estimate& e) { return 2 * e.u_abs; }

std::string energy(const Estimate& e) {
  const double u = expanded(e);
  const std::string mark = has(e.flags, Flag::gain_unknown) ? "*" : "";
  return fmt::format("{} J ± {} J{}", rounded(e.value, u), rounded(u, u), mark);
}

/// For comparing windows of one sensor: twice the standard uncertainty without gain and offset.
std::string comparison(const Estimate& e) {
  return fmt::format("± {} J", rounded(2 * e.u_cmp, 2 * e.u_cmp));
}

std::string covered(const Estimate& e) {
  return std::isnan(e.coverage) ? "unknown" : fmt::format("{:.0f} %", 100 * e.coverage);
}

std::string bounds(const Estimate& e) {
  if (!std::isfinite(e.high)) return fmt::format("at least {} J", rounded(e.low, kNan));
  return fmt::format("{} to {} J", rounded(e.low, kNan), rounded(e.high, kNan));
}

/// Why there is no number, with what is known all the same.
std::string unmeasured(const std::string& reason, const Estimate& e) {
  const bool bounded = e.low > 0 || (e.refusal != Refusal::lost && std::isfinite(e.high));
  return "not measured: " + reason + (bounded ? " (" + bounds(e) + ")" : "");
}

/// What an uncertainty is made of, in joules at k = 1: only what there is.
std::string budget(const Estimate& e) {
  const auto& b = e.budget;
  std::vector<std::string> parts;
  for (const auto& [name, joules] :
       {std::pair{"edges", b.edges}, std::pair{"quantum", b.quantum}, std::pair{"timing", b.timing},
        std::pair{"coverage", b.coverage}, std::pair{"lag", b.lag}, std::pair{"gain", b.gain},
        std::pair{"offset", b.offset}}) {
    if (joules > 0) parts.push_back(fmt::format("{} {} J", name, rounded(joules, joules)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string notes(const Estimate& e, Style style) {
  std::vector<const char*> words;
  for (unsigned bit = 0; bit < 32; ++bit) {
    const auto flag = static_cast<Flag>(1u << bit);
    // The column of what is covered says it already.
    const bool said = flag == Flag::coverage_unverified && std::isnan(e.coverage);
    if (said && !style.verbose) continue;
    if (has(e.flags, flag) && (style.verbose || worth_a_word(flag))) words.push_back(explain(flag));
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

void add_rows(Table& table, const WindowResult& w, const DomainResult* parent, unsigned depth,
              Style style) {
  std::vector<const DomainResult*> siblings;
  for (const DomainResult& d : w.domains) {
    const bool here = parent == nullptr ? !d.parent : d.parent == parent->domain;
    if (here) siblings.push_back(&d);
  }
  std::sort(siblings.begin(), siblings.end(), [](const DomainResult* a, const DomainResult* b) {
    return before(a->domain, b->domain);
  });
  for (const DomainResult* sibling : siblings) {
    const DomainResult& d = *sibling;
    const bool same = parent != nullptr && parent->model == d.model;
    const std::string model = same ? "" : printable(d.model);
    const std::string name = std::string(2 * std::size_t{depth}, ' ') + to_string(d.domain);
    const Estimate& e = d.energy;
    if (!d.reason.empty()) {
      table.row({name, unmeasured(d.reason, e), "", "", watts(d.peak_power_w), "", "",
                 std::string(e.method), "", model, ""});
    } else {
      table.row({name, energy(e), comparison(e), watts(d.mean_power_w), watts(d.peak_power_w),
                 covered(e), to_string(e.quality), std::string(e.method),
                 style.verbose ? bounds(e) : "", model, notes(e, style)});
    }
    add_rows(table, w, &d, depth + 1, style);
  }
}

/// The total never stands as a plain number where a part of it is missing.
std::string total(const WindowResult& w) {
  if (!std::isfinite(w.total.value)) {
    return w.missing.empty() ? "not measured: nothing chosen here tells energy"
                             : fmt::format("not measured: {}", fmt::join(w.missing, ", "));
  }
  if (w.missing.empty()) return energy(w.total);
  return fmt::format("incomplete: {} without {}", energy(w.total), fmt::join(w.missing, ", "));
}

std::string quoted(const std::vector<std::string>& command) {
  std::string out;
  for (const std::string& word : command) {
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n\"'\\$&|;<>()*?") == std::string::npos;
    out += (out.empty() ? "" : " ") + (plain ? word : "'" + word + "'");
  }
  return shortened(printable(out), 100);
}

std::string repetitions(const std::vector<Repetition>& runs) {
  Table each({left, right, left, left});
  std::vector<double> joules, seconds, power;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const WindowResult& w = runs[i].window;
    joules.push_back(w.total.value);
    seconds.push_back(w.seconds());
    power.push_back(w.total.value / w.seconds());
    each.row({fmt::format("run {}", i + 1), fmt::format("{:.3f} s", w.seconds()), total(w),
              to_text(runs[i].exit)});
  }
  Table all({left, right, right, right, right, right});
  all.row({"", "mean", "± 95 %", "sd", "min", "max"});
  const auto add = [&](const char* name, const char* unit, const std::vector<double>& values) {
    const solve::Summary s = solve::summarize(values);
    if (s.n == 0) {
      all.row({name, "not measured"});
      return;
    }
    const auto cell = [&](double v, double u) {
      return std::isfinite(v) ? rounded(v, u) + ' ' + unit : std::string("one run");
    };
    all.row({name, cell(s.mean, s.half_95), cell(s.half_95, s.half_95), cell(s.sd, s.half_95),
             cell(s.min, s.half_95), cell(s.max, s.half_95)});
  };
  add("energy", "J", joules);
  add("time", "s", seconds);
  add("power", "W", power);
  return each.text() + all.text();
}

}  // namespace

std::string energy_text(const DomainResult& d) {
  return d.reason.empty() ? energy(d.energy) : unmeasured(d.reason, d.energy);
}

std::string to_text(const Exit& e) {
  if (e.signal) return fmt::format("killed by signal {}", *e.signal);
  return e.code ? fmt::format("exit status {}", *e.code) : "still running";
}

bool worth_a_word(Flag flag) noexcept {
  return flag != Flag::gain_unknown && flag != Flag::range_unknown && flag != Flag::integrated &&
         flag != Flag::missing && flag != Flag::uncalibrated_gain && flag != Flag::partial_coverage;
}

std::string to_text(const Overhead& o, double measured_s, Duration edges) {
  std::string out = fmt::format("zeus itself: {:.1f} ms of CPU", o.cpu_s * 1e3);
  if (measured_s > 0) out += fmt::format(" ({:.2f} % of a core)", 100 * o.cpu_s / measured_s);
  out += fmt::format(", {:.0f} us at the edges", static_cast<double>(edges.count()) * 1e-3);
  if (o.period.count() > 0) {
    out += fmt::format("; {} samples at {:g} ms, {} missed", o.effort.ticks,
                       static_cast<double>(o.period.count()) * 1e-6, o.effort.missed);
  }
  if (o.samples_lost > 0) out += fmt::format(", {} overwritten unread", o.samples_lost);
  return out + '\n';
}

std::string rounded(double value, double uncertainty) {
  if (std::isnan(value)) return "unknown";
  const double scale =
      std::isfinite(uncertainty) && uncertainty > 0 ? uncertainty : std::abs(value) / 100;
  if (!(scale > 0) || !std::isfinite(scale)) return fmt::format("{:g}", value);
  const int decimals = std::clamp(1 - static_cast<int>(std::floor(std::log10(scale))), 0, 9);
  return fmt::format("{:.{}f}", value, decimals);
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return out;
}

std::string shortened(std::string text, std::size_t most) {
  if (width(text) <= most) return text;
  std::size_t cut = most - 3;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut) + "...";
}

std::string bold(std::string_view text, Style style) {
  return style.color ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}

std::string simulated(const std::optional<Simulation>& simulation, Style style) {
  if (!simulation) return "";
  return bold(fmt::format("SIMULATED (scenario {})", printable(simulation->scenario)), style) +
         ": no number here is of a real machine\n";
}

std::string to_text(const std::vector<Problem>& problems, Style style) {
  if (problems.empty()) return "";
  std::string out = bold("not available", style) + '\n';
  for (const Problem& p : problems) {
    out += fmt::format("  {}: {}", printable(p.where), printable(p.error.detail));
    out += style.verbose ? fmt::format(" [{}]\n", to_string(p.error.code)) : "\n";
  }
  return out;
}

std::string to_text(std::string_view kind, const Selection& selection,
                    const std::vector<DeviceInfo>& devices) {
  std::vector<std::string> which;
  for (const std::string& id : selection.ids) {
    const auto it = std::find_if(devices.begin(), devices.end(),
                                 [&](const DeviceInfo& d) { return d.id == id; });
    which.push_back(it == devices.end() ? id : std::to_string(it->index));
  }
  std::string source = printable(selection.source);
  if (which.empty()) {
    which.emplace_back("none");
    if (source == "all GPUs") source = "no GPU found";
    if (source == "all CPUs") source = "no CPU that tells energy";
  }
  std::string out = fmt::format("{}: {} ({})\n", kind, fmt::join(which, ", "), source);
  for (const Problem& p : selection.problems) {
    out += fmt::format("  note: {}\n", printable(p.error.detail));
  }
  return out;
}

std::string to_text(const WindowResult& w, Style style) {
  Table table({left, left, left, right, right, right, left, left, left, left, left});
  table.row({"domain", "energy", "to compare", "mean", "peak", "covered", "grade", "how",
             style.verbose ? "bound" : "", "device", ""});
  add_rows(table, w, nullptr, 0, style);
  std::string out = w.domains.empty() ? "" : table.text();
  out += bold("  total  ", style) + total(w) + '\n';
  const bool starred = std::any_of(w.domains.begin(), w.domains.end(), [](const DomainResult& d) {
    return has(d.energy.flags, Flag::gain_unknown) && d.reason.empty();
  });
  if (std::isfinite(w.total.value) && w.missing.empty()) {
    out += fmt::format("  energy-delay product  {:.4g} J s\n", w.edp_js());
  }
  if (w.domains.empty()) return out;
  for (const DomainResult& d : w.domains) {
    if (!style.verbose || !d.reason.empty()) continue;
    out += fmt::format("  u of {}: {}\n", to_string(d.domain), budget(d.energy));
  }
  if (starred) {
    out += "  ± is 2 standard uncertainties; * of an uncalibrated sensor, without its gain\n";
  } else {
    out += "  ± is 2 standard uncertainties, the sensor's gain included\n";
  }
  return out;
}

std::string to_text(const Run& run, Style style) {
  std::string out = fmt::format("{} {}\n", bold("zeus run", style), quoted(run.command));
  out += origin(run.host, style);
  if (!run.runs.empty()) {
    const Repetition& last = run.runs.back();
    if (run.runs.size() > 1) {
      out += repetitions(run.runs);
      out += fmt::format("{} {}\n", bold("last run", style),
                         run.warmup > 0 ? fmt::format("(after {} to warm up)", run.warmup) : "");
    }
    out += fmt::format("  time   {:.3f} s, {}\n", last.window.seconds(), to_text(last.exit));
    out += to_text(last.window, style);
  }
  for (const auto& [kind, selection] : run.selections) {
    const std::string name = kind == "gpu" ? "GPUs" : kind == "cpu" ? "CPUs" : kind;
    out += to_text(name, selection, run.devices);
  }
  out += to_text(run.problems, style);
  double measured = 0;
  Duration edges{};
  for (const Repetition& r : run.runs) {
    measured += r.window.seconds();
    edges += r.window.self_cost;
  }
  return out + to_text(run.overhead, measured, edges);
}

}  // namespace zeus::report
