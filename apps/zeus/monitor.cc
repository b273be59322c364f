#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "child.h"
#include "meter.h"
#include "options.h"
#include "output.h"
#include "report/json.h"
#include "report/origin.h"
#include "version.h"

namespace zeus::cli {
namespace {

struct MonitorOptions {
  Choice choice;
  Duration duration{};  // 0: until a signal comes.
  Duration period = std::chrono::seconds(1);
  std::string domain = "device_instant";
};

/// Lines for standard output or a file, each there as soon as it is written.
class Lines {
 public:
  explicit Lines(const Globals& globals) : style_(globals.style(STDOUT_FILENO)) {
    if (globals.output.empty()) return;
    auto file = OutputFile::stream(globals.output);
    if (!file) throw UsageError(file.error().detail);
    file_.emplace(std::move(*file));
    style_.color = false;
  }
  report::Style style() const { return style_; }
  /// False once nobody reads any more.
  bool print(std::string_view text) {
    return file_ ? file_->write(text).has_value() : write_all(STDOUT_FILENO, text) == 0;
  }

 private:
  std::optional<OutputFile> file_;
  report::Style style_;
};

struct Watch {
  Watch(const Globals& globals, const MonitorOptions& options, Meter::Options meter_options) {
    Machine machine = open_machine(globals);
    host = host_of(globals, machine);
    selections = choose(machine, options.choice, globals);
    for (const Device& d : machine.devices) devices.push_back(d.info);
    meter.emplace(std::move(machine), meter_options);
  }

  std::string head(report::Style style) const {
    std::string out = report::origin(host, style);
    for (const auto& [kind, s] : selections) {
      out += report::to_text(kind == "gpu" ? "GPUs" : "CPUs", s, devices);
    }
    return out;
  }
  report::Json json_head(const char* schema) const {
    report::Json out = {{"schema", schema}, {"zeus", kVersion}, {"host", report::to_json(host)}};
    out["selection"] = report::Json::object();
    for (const auto& [kind, s] : selections) out["selection"][kind] = report::to_json(s);
    out["problems"] = report::Json::array();
    for (const Problem& p : meter->problems()) out["problems"].push_back(report::to_json(p));
    return out;
  }
  bool has_gpu() const {
    return std::any_of(devices.begin(), devices.end(),
                       [](const DeviceInfo& d) { return d.kind == DeviceInfo::Kind::gpu; });
  }
  int nothing() const {
    complain("cannot monitor: nothing chosen here tells energy or power; zeus env says why");
    return kFailed;
  }

  report::Host host;
  std::vector<std::pair<std::string, Selection>> selections;
  std::vector<DeviceInfo> devices;
  std::optional<Meter> meter;
};

int energy(const Globals& globals, const MonitorOptions& options) {
  const Signals signals;
  Lines lines(globals);
  Watch watch(globals, options, {});
  Meter& meter = *watch.meter;
  if (!meter.measures()) return watch.nothing();
  if (!globals.json) lines.print(watch.head(lines.style()));
  meter.begin("zeus.monitor.energy");
  until_told(signals, options.duration, meter.patience(), [&] {
    meter.drain();
    return true;
  });
  const report::WindowResult result = meter.end();
  if (!globals.json) {
    lines.print(fmt::format("  time   {:.3f} s\n", result.seconds()) +
                report::to_text(result, lines.style()) +
                report::to_text(meter.problems(), lines.style()));
    return 0;
  }
  report::Json out = watch.json_head("zeus.monitor.energy/1");
  out.update(report::result_json(result));
  lines.print(report::dump(out, false));
  return 0;
}

/// The power sensors that upstream's three names stand for, the best first.
struct PowerDomain {
  std::string_view name;
  std::array<std::string_view, 2> sensors;
};
constexpr PowerDomain kPowerDomains[] = {{"device_instant", {"power_instant", "power"}},
                                         {"device_average", {"power_average", "power"}},
                                         {"memory_average", {"memory_power_average", ""}}};

/// One GPU and where its power stands in the subject.
struct Row {
  std::string name;
  std::size_t sensor;
  DomainId domain;
};

const PowerDomain& power_domain(std::string_view name) {
  const auto* wanted = std::find_if(std::begin(kPowerDomains), std::end(kPowerDomains),
                                    [name](const PowerDomain& d) { return d.name == name; });
  if (wanted != std::end(kPowerDomains)) return *wanted;
  throw UsageError(
      fmt::format("does not know the power domain \"{}\"; there are device_instant, "
                  "device_average, memory_average",
                  name));
}

std::vector<Row> rows(const Watch& watch, const PowerDomain& wanted) {
  std::vector<Row> out;
  for (const Device& d : watch.meter->machine().devices) {
    if (d.info.kind != DeviceInfo::Kind::gpu) continue;
    for (const std::string_view name : wanted.sensors) {
      const auto i = watch.meter->sensor(d.info.id, name);
      if (!i) continue;
      out.push_back({fmt::format("GPU{}", d.info.index), *i,
                     watch.meter->monitor().subject().sensors[*i].domain});
      break;
    }
  }
  return out;
}

std::string power_line(const Watch& watch, const std::vector<Row>& gpus, bool json) {
  const auto now = report::iso8601(std::chrono::system_clock::now());
  const double elapsed =
      std::chrono::duration<double>(Clock::steady().now() - watch.meter->begun()).count();
  if (json) {
    report::Json power = report::Json::object();
    for (const Row& r : gpus) power[r.name] = report::number(watch.meter->recent(r.sensor));
    return report::dump({{"time", now}, {"elapsed_s", elapsed}, {"power_w", power}}, false);
  }
  std::string out = now;
  for (const Row& r : gpus) {
    const double w = watch.meter->recent(r.sensor);
    out += std::isfinite(w) ? fmt::format("  {} {:.1f} W", r.name, w)
                            : fmt::format("  {} not read", r.name);
  }
  return out + '\n';
}

std::string power_totals(const Watch& watch, const std::vector<Row>& gpus,
                         const report::WindowResult& result, bool json) {
  report::Json joules = report::Json::object();
  std::string text = fmt::format("Total time (s): {:.3f}\nTotal energy (J):\n", result.seconds());
  for (const Row& r : gpus) {
    const auto d = std::find_if(result.domains.begin(), result.domains.end(),
                                [&](const auto& x) { return x.domain == r.domain; });
    if (d == result.domains.end()) continue;
    joules[r.name] = report::to_json(*d);
    text += fmt::format("  {}: {}\n", r.name, report::energy_text(*d));
  }
  if (!json) return text;
  report::Json out = watch.json_head("zeus.monitor.power/1");
  out["total_time_s"] = result.seconds();
  out["total_energy"] = joules;
  return report::dump(out, false);
}

int power(const Globals& globals, const MonitorOptions& options) {
  if (options.period < std::chrono::milliseconds(10)) {
    throw UsageError("--update-period must be at least 10ms");
  }
  const PowerDomain& domain = power_domain(options.domain);
  const Signals signals;
  Lines lines(globals);
  const Duration pace = std::min<Duration>(options.period, std::chrono::milliseconds(100));
  Watch watch(globals, options, {pace, Monitor::Follow::power});
  const std::vector<Row> gpus = rows(watch, domain);
  if (gpus.empty()) {
    complain(watch.has_gpu()
                 ? fmt::format("cannot monitor power: no chosen GPU has a sensor for {}; zeus env "
                               "lists the sensors",
                               options.domain)
                 : "cannot monitor power: there is no GPU, or none is chosen, as zeus env tells; "
                   "zeus monitor energy watches CPUs too");
    return kFailed;
  }
  if (!globals.json) lines.print(watch.head(lines.style()));
  watch.meter->begin("zeus.monitor.power");
  until_told(signals, options.duration, options.period, [&] {
    watch.meter->drain();
    return lines.print(power_line(watch, gpus, globals.json));
  });
  const auto result = watch.meter->end();
  lines.print(power_totals(watch, gpus, result, globals.json));
  return 0;
}

}  // namespace

void add_monitor(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb = app.add_subcommand("monitor", "Watch energy or power until Ctrl-C");
  verb->require_subcommand(1);
  verb->footer(
      "Examples:\n  zeus monitor energy --duration 60s\n"
      "  zeus monitor power --update-period 0.5");
  const auto options = std::make_shared<MonitorOptions>();
  const auto add = [&](CLI::App* sub) {
    add_choice(sub, options->choice);
    const auto places = [options](const std::vector<std::string>& words) {
      options->choice.positions.clear();
      for (const std::string& word : words) {
        options->choice.positions.push_back(
            static_cast<std::size_t>(whole_number("--gpu-indices", word, 65535)));
      }
    };
    sub->add_option_function<std::vector<std::string>>(
           "--gpu-indices", places, "GPUs by their place among the visible ones (default: all)")
        ->delimiter(',')
        ->type_name("LIST");
    add_duration(sub, "--duration", options->duration, "End after so long (default: on Ctrl-C)");
  };
  auto* joules = verb->add_subcommand("energy", "Print the energy at the end");
  add(joules);
  joules->footer(
      "Examples:\n  zeus monitor energy --gpu-indices 0 1\n"
      "  zeus monitor energy --duration 60s --json");
  auto* watts = verb->add_subcommand("power",
                                     "Print the power of each GPU, and the totals at the "
                                     "end");
  add(watts);
  add_duration(watts, "--update-period", options->period, "Time between lines (default: 1.0)");
  watts
      ->add_option("--power-domain", options->domain,
                   "device_instant (default), device_average or memory_average")
      ->type_name("NAME");
  watts->footer(
      "Examples:\n  zeus monitor power --update-period 0.5\n"
      "  zeus monitor power --json --duration 10s > power.jsonl");
  verbs.emplace_back(joules, [&globals, options] { return energy(globals, *options); });
  verbs.emplace_back(watts, [&globals, options] { return power(globals, *options); });
}

}  // namespace zeus::cli
