#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "child.h"
#include "fleet_host.h"
#include "options.h"
#include "output.h"
#include "report/json.h"
#include "report/table.h"

namespace zeus::cli {
namespace {

using Kind = DeviceInfo::Kind;
using Hosts = std::vector<std::shared_ptr<FleetHost>>;
using Row = FleetHost::Row;
using std::chrono::milliseconds;

struct FleetOptions {
  std::vector<std::string> hosts;
  Duration duration{};  // 0: until a signal comes.
  Duration interval = std::chrono::seconds(1);
};

/// The sum over devices of a kind, of those that are known; NaN where none is.
struct Sum {
  double power_w = report::kNan, energy_j = report::kNan;
  bool part = false;  ///< Some device has no energy, or not all of it.
};
Sum sum(const std::vector<Row>& rows, Kind kind) {
  Sum out;
  const auto add = [](double& to, double value) { to = std::isnan(to) ? value : to + value; };
  for (const Row& r : rows) {
    if (r.kind != kind) continue;
    if (!std::isnan(r.power_w)) add(out.power_w, r.power_w);
    if (r.energy_j) add(out.energy_j, *r.energy_j);
    out.part = out.part || !r.energy_j || r.reset;
  }
  return out;
}

double age_s(const net::StreamFollower::Health& health) {
  if (health.heard == Instant{}) return report::kNan;
  return std::chrono::duration<double>(Clock::steady().now() - health.heard).count();
}

std::string state_of(const net::StreamFollower::Health& health) {
  const char* const name = net::to_string(health.state);
  const bool silent = health.state == net::StreamFollower::State::stale;
  return silent ? fmt::format("{} {:.0f} s", name, age_s(health)) : name;
}

std::string watts(double value) { return std::isnan(value) ? "-" : fmt::format("{:.1f} W", value); }
std::string joules(double value, bool part) {
  return std::isnan(value) ? "-" : fmt::format("{}{:.1f} J", part ? ">= " : "", value);
}

std::string table(const Hosts& hosts, bool verbose) {
  using Align = report::Table::Align;
  report::Table out({Align::left, Align::left, Align::right, Align::right, Align::right,
                     Align::right, Align::left});
  out.row({"host", "state", "GPU power", "GPU energy", "CPU power", "CPU energy", ""});
  for (const auto& host : hosts) {
    const auto health = host->health();
    const auto rows = host->rows();
    const Sum gpu = sum(rows, Kind::gpu), cpu = sum(rows, Kind::cpu);
    out.row({host->name(), state_of(health), watts(gpu.power_w), joules(gpu.energy_j, gpu.part),
             watts(cpu.power_w), joules(cpu.energy_j, cpu.part), health.why});
    if (!verbose) continue;
    for (const Row& r : rows) {
      const std::string w = watts(r.power_w),
                        j = joules(r.energy_j.value_or(report::kNan), r.reset);
      if (r.kind == Kind::gpu) {
        out.row({fmt::format("  gpu {}", r.id), "", w, j, "", "", ""});
      } else {
        out.row({fmt::format("  cpu {}", r.id), "", "", "", w, j, ""});
      }
    }
  }
  return out.text("");
}

std::string lines(const Hosts& hosts, double elapsed_s) {
  const auto now = report::iso8601(std::chrono::system_clock::now());
  std::string out;
  for (const auto& host : hosts) {
    const auto health = host->health();
    report::Json line = {{"time", now},
                         {"elapsed_s", elapsed_s},
                         {"host", host->name()},
                         {"state", net::to_string(health.state)},
                         {"why", health.why},
                         {"age_s", report::number(age_s(health))},
                         {"clock_offset_s", report::number(health.offset_s.value_or(report::kNan))},
                         {"bad_events", health.bad}};
    for (const auto& [kind, name] : {std::pair(Kind::gpu, "gpu"), std::pair(Kind::cpu, "cpu")}) {
      report::Json devices = report::Json::object();
      for (const Row& r : host->rows()) {
        if (r.kind != kind) continue;
        devices[std::to_string(r.id)] = {
            {"power_w", report::number(r.power_w)},
            {"energy_j", report::number(r.energy_j.value_or(report::kNan))},
            {"reset", r.reset}};
      }
      line[name] = std::move(devices);
    }
    out += report::dump(line, false);
  }
  return out;
}

/// Where the tables go: on a terminal each takes the place of the one before.
class Screen {
 public:
  explicit Screen(const Globals& globals)
      : in_place_(!globals.json && globals.output.empty() && ::isatty(STDOUT_FILENO) == 1) {
    if (globals.output.empty()) return;
    auto file = OutputFile::stream(globals.output);
    if (!file) throw UsageError(file.error().detail);
    file_.emplace(std::move(*file));
  }
  bool show(const std::string& text) {
    if (file_) return file_->write(text).has_value();
    std::string out = in_place_ && shown_ > 0 ? fmt::format("\x1b[{}A\x1b[J", shown_) : "";
    out += in_place_ ? cut(text) : text;
    shown_ = std::count(out.begin(), out.end(), '\n');
    return write_all(STDOUT_FILENO, out) == 0;
  }

 private:
  /// A line that the terminal would break could not be taken back.
  static std::string cut(const std::string& text) {
    winsize size{};
    const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    const std::size_t most = known ? size.ws_col - 1u : 79u;
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      out += text.substr(at, std::min(end - at, most)) + '\n';
      at = end + 1;
    }
    return out;
  }
  bool in_place_;
  std::ptrdiff_t shown_ = 0;
  std::optional<OutputFile> file_;
};

Hosts hosts_of(const FleetOptions& options, net::asio::io_context& io) {
  Hosts hosts;
  for (const std::string& where : options.hosts) {
    const auto endpoint = net::parse_endpoint(where);
    if (!endpoint) throw UsageError(endpoint.error().detail);
    for (const auto& other : hosts) {
      if (other->name() == endpoint->text()) {
        throw UsageError(fmt::format("{} is named twice; each host is followed once", where));
      }
    }
    hosts.push_back(std::make_shared<FleetHost>(
        io, *endpoint, environment("ZEUSD_TOKEN").value_or(""), options.interval));
  }
  return hosts;
}

int fleet(const Globals& globals, const FleetOptions& options) {
  if (options.interval < milliseconds(100)) throw UsageError("--interval must be at least 100ms");
  const Signals signals;
  net::asio::io_context io{1};
  const Hosts hosts = hosts_of(options, io);
  for (const auto& host : hosts) host->start();

  Screen screen(globals);
  const Instant begin = Clock::steady().now();
  const auto elapsed_s = [begin] {
    return std::chrono::duration<double>(Clock::steady().now() - begin).count();
  };
  const auto show = [&] {
    return screen.show(globals.json ? lines(hosts, elapsed_s()) : table(hosts, globals.verbose));
  };
  // The network is served between the ticks, and signals are looked for in each.
  Instant next = begin + options.interval;
  until_told(signals, options.duration, milliseconds(20), [&] {
    const Instant now = Clock::steady().now();
    io.restart();
    io.run_until(now + milliseconds(18));
    if (now < next) return true;
    next += options.interval * (1 + (now - next) / options.interval);
    return show();
  });
  (void)show();
  const bool all =
      std::all_of(hosts.begin(), hosts.end(), [](const auto& h) { return h->reached(); });
  for (const auto& host : hosts) host->stop();
  io.restart();
  io.run_for(std::chrono::seconds(1));  // Ends at once: what was under way fails.
  if (!all) complain("some of these hosts were never reached; the last table says why");
  return all ? 0 : kFailed;
}

}  // namespace

void add_fleet(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb =
      app.add_subcommand("fleet", "Watch the power and energy of many hosts by their daemons");
  verb->footer(
      "Examples:\n  zeus fleet node1 node2 node3:4938\n"
      "  zeus fleet --json --duration 1m https://node1 /run/zeusd/zeusd.sock");
  const auto options = std::make_shared<FleetOptions>();
  verb->add_option("hosts", options->hosts,
                   "Where daemons are: HOST, HOST:PORT, https://HOST or the path of a socket")
      ->required()
      ->type_name("HOST");
  add_duration(verb, "-I,--interval", options->interval,
               "Time between two tables and two looks at the counters (default: 1s)");
  add_duration(verb, "--duration", options->duration, "End after so long (default: on Ctrl-C)");
  verbs.emplace_back(verb, [&globals, options] { return fleet(globals, *options); });
}

}  // namespace zeus::cli
