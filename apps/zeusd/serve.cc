#include <fmt/format.h>
#include <grp.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "audit_log.h"
#include "control.h"
#include "daemon.h"
#include "device/backend.h"
#include "guard.h"
#include "hold.h"
#include "leases.h"
#include "net/listen.h"
#include "net/server.h"
#include "node.h"
#include "notify.h"
#include "options.h"
#include "readers.h"
#include "reload.h"
#include "streams.h"

namespace zeus::zeusd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

constexpr int kFailed = 1;

/// What is wrong with how it was started or where: one sentence for whoever started it.
struct CannotServe : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class T>
T must(Result<T> result) {
  if (!result) throw CannotServe(result.error().detail);
  return *std::move(result);
}

bool loopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("localhost:") ||
         address.starts_with("[::1]:");
}

/// Every connection takes a descriptor: as many as the system grants. How many connections may take
/// one: an eighth is for devices, journals, leases and commands.
std::size_t raise_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<std::size_t>::max();
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur / 8 * 7;
}

Machine open_machine(const ServeOptions& o) {
  const Address address = must(Address::parse(o.host));
  if (address.scheme == Address::Scheme::zeusd) {
    throw CannotServe("another daemon serves that machine: --host takes local: or sim:NAME");
  }
  Machine machine = must(zeus::open(address));
  for (const Problem& p : machine.problems) spdlog::warn("{}: {}", p.where, p.error.detail);
  if (machine.simulation && ::geteuid() == 0 && !o.allow_simulated) {
    throw CannotServe(fmt::format(
        "{} is a simulated machine: as root, zeusd serves one only with --allow-simulated",
        machine.simulation->scenario));
  }
  return machine;
}

/// Whether this process may turn knobs, found by setting them to what they are set to. One GPU that
/// lets it is enough: what the others say is told to whoever tries.
Status can_control(const Machine& machine, const Overrides* overrides) {
  if (overrides != nullptr && overrides->has(Operation::set_power_limit)) return ok();
  Status first = ok();
  for (const Device& d : machine.devices) {
    for (const KnobInfo& k : d.knobs) {
      if (k.name != "power_limit") continue;
      const auto now = k.knob->get();
      const Status same = now ? k.knob->set(*now) : Status(now.error());
      if (same) return same;
      if (first) first = same;
    }
  }
  return first;
}

/// Whether a processor's counters are there and closed to us.
std::optional<Error> denied_counters(const Machine& machine) {
  for (const Device& d : machine.devices) {
    if (d.info.kind == DeviceInfo::Kind::cpu) return std::nullopt;
  }
  for (const Problem& p : machine.problems) {
    if (p.error.code == Errc::denied && p.where.starts_with("rapl")) return p.error;
  }
  return std::nullopt;
}

/// The groups to serve: those asked for, which must then be possible, or all that are.
std::vector<Group> groups_of(const ServeOptions& o, const Machine& machine,
                             const Overrides* overrides) {
  const auto wanted =
      o.enable.value_or(std::vector<Group>(zeus::net::kGroups.begin(), zeus::net::kGroups.end()));
  std::vector<Group> out;
  for (const Group g : wanted) {
    std::optional<std::string> why;
    if (g == Group::gpu_control) {
      if (auto can = can_control(machine, overrides); !can && can.error().code == Errc::denied) {
        why = can.error().detail;
      }
    } else if (g == Group::cpu_read) {
      if (const auto denied = denied_counters(machine)) why = denied->detail;
    }
    if (!why) {
      out.push_back(g);
    } else if (o.enable) {
      throw CannotServe(fmt::format("cannot serve {}: {}", to_string(g), *why));
    } else {
      spdlog::warn("{} is not served: {}", to_string(g), *why);
    }
  }
  return out;
}

void check_exposure(const ServeOptions& o, const std::vector<Group>& groups, bool key) {
  const bool control = std::find(groups.begin(), groups.end(), Group::gpu_control) != groups.end();
  if (!o.tcp || key || !control || o.tcp_read_only) return;
  const std::string what =
      fmt::format("anybody who reaches {} could control the GPUs", o.tcp_bind_address);
  if (o.compat || o.insecure_control || loopback(o.tcp_bind_address)) {
    spdlog::warn("no signing key: {}", what);
    return;
  }
  throw CannotServe(what +
                    ": give --signing-key-path, --tcp-read-only or --enable gpu-read, or "
                    "say --insecure-control");
}

std::shared_ptr<asio::ssl::context> tls_of(const ServeOptions& o) {
  if (o.tls_cert.empty()) return nullptr;
  auto tls = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  boost::system::error_code ec;
  tls->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, ec);
  tls->use_certificate_chain_file(o.tls_cert.native(), ec);
  if (ec) {
    throw CannotServe(
        fmt::format("cannot use the certificate {}: {}", o.tls_cert.native(), ec.message()));
  }
  tls->use_private_key_file(o.tls_key.native(), asio::ssl::context::pem, ec);
  if (ec)
    throw CannotServe(fmt::format("cannot use the key {}: {}", o.tls_key.native(), ec.message()));
  return tls;
}

/// How often counters that wrap must be read: twice before any could have.
Duration keep_period(const Readers& readers) {
  Duration period = seconds(10);
  for (const Feed& f : readers.feeds()) {
    for (const SensorInfo& s : f.infos) {
      if (s.wrap == 0) continue;
      const double most_w = s.profile.power_max_w > 0 ? s.profile.power_max_w : 1e4;
      const double wrap_s = static_cast<double>(s.wrap) * s.scale / most_w;
      period = std::min<Duration>(
          period, std::chrono::duration_cast<Duration>(std::chrono::duration<double>(wrap_s / 2)));
    }
  }
  return std::max<Duration>(period, milliseconds(100));
}

void keep_counters(Readers& readers, bool all) {
  std::vector<Feed*> feeds;
  for (const Feed& f : readers.feeds()) {
    if (all || f.wraps) feeds.push_back(const_cast<Feed*>(&f));
  }
  if (feeds.empty()) return;
  readers.submit(std::make_shared<ReadOp>(std::move(feeds), [](const auto&) {}));
}

/// Everything that serves, in the order in which it is made.
struct Service {
  Service(const ServeOptions& o, Machine machine, const std::vector<Group>& groups,
          Access::Options access_options, std::shared_ptr<const Overrides> commands)
      : audit(must(AuditLog::open(o.audit_log))),
        overrides(commands ? std::make_unique<Live<Overrides>>(std::move(commands)) : nullptr),
        node(std::move(machine), readers, gpus(groups), cpus(groups)),
        access(std::move(access_options)),
        daemon(
            {ZEUS_VERSION, o.cpu_hz, scenario(node), o.always_sample, [this] { return healthy(); }},
            {node, readers, access, guard}),
        server(server_options(o), daemon),
        leases(
            server.context(0),
            [this](const std::string& id, const std::set<unsigned>& touched, std::string_view why) {
              spdlog::info("lease {} ends: {}", id.substr(0, 8), why);
              if (control) control->abandoned(id, touched);
            }),
        control(std::make_unique<Control>(
            node, leases,
            Control::Options{o.journal, overrides.get(), [this](const Audit& a) { audit->add(a); },
                             [this] { return audit->ready(); }, seconds(o.adoption_s)})),
        streams(node, readers, guard, server,
                {o.gpu_hz, o.cpu_hz, milliseconds(1000), milliseconds(5000), o.always_sample}),
        hold(node, readers, *control, leases, [this](const Audit& a) { audit->add(a); }) {
    auto& parts = daemon.parts();
    parts.server = &server;
    parts.leases = &leases;
    parts.control = control.get();
    parts.streams = &streams;
    parts.hold = &hold;
  }

  /// Nothing is read any more of what goes now.
  ~Service() { readers.stop(milliseconds(5000)); }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  static bool has(const std::vector<Group>& groups, Group g) {
    return std::find(groups.begin(), groups.end(), g) != groups.end();
  }
  static bool gpus(const std::vector<Group>& groups) {
    return has(groups, Group::gpu_read) || has(groups, Group::gpu_control);
  }
  static bool cpus(const std::vector<Group>& groups) { return has(groups, Group::cpu_read); }
  static std::string scenario(const Node& node) {
    return node.machine().simulation ? node.machine().simulation->scenario : std::string();
  }
  static zeus::net::Server::Options server_options(const ServeOptions& o) {
    zeus::net::Server::Options s;
    s.workers =
        o.workers != 0 ? o.workers : std::clamp(std::thread::hardware_concurrency(), 1U, 4U);
    s.connections = o.connections;
    s.per_peer = o.per_peer != 0 ? o.per_peer : std::max<std::size_t>(o.connections / 4, 64);
    s.headers_sent = fmt::format("zeus-protocol: {}\r\n", zeus::net::kProtocol);
    return s;
  }
  bool healthy() const { return !listener || listener->intact(); }

  std::unique_ptr<AuditLog> audit;
  std::unique_ptr<Live<Overrides>> overrides;  ///< Null where there is no file of them.
  Readers readers;
  Node node;
  Access access;
  Guard guard;
  Daemon daemon;
  zeus::net::Server server;
  std::optional<zeus::net::UnixListener> listener;
  Leases leases;
  std::unique_ptr<Control> control;
  Streams streams;
  Hold hold;
};

void listen(Service& service, const ServeOptions& o) {
  if (o.uds) {
    service.listener = must(zeus::net::UnixListener::open(
        o.socket_path, {o.socket_permissions, o.socket_uid, o.socket_gid}));
    must(service.server.listen(std::move(*service.listener).take()));
    spdlog::info("listening on {}", o.socket_path.native());
  }
  if (o.tcp) {
    std::string bound;
    auto socket = must(zeus::net::listen_tcp(o.tcp_bind_address, bound));
    must(service.server.listen(std::move(socket), tls_of(o)));
    spdlog::info("listening on {}{}", bound, o.tls_cert.empty() ? "" : " (TLS)");
  }
}

/// Looks after everything that has its time, until a signal comes that ends it. The result is that
/// signal.
int keep(Service& service, const ServeOptions& o, const sigset_t& signals) {
  const Duration counters_every = keep_period(service.readers);
  const auto watchdog = watchdog_period();
  Duration tick = std::min<Duration>(milliseconds(250), counters_every);
  if (watchdog) tick = std::min<Duration>(tick, *watchdog);
  const timespec wait{tick / seconds(1), static_cast<long>((tick % seconds(1)).count())};
  auto counters_at = SteadyClock::now(), strays_at = counters_at, beat_at = counters_at;
  while (true) {
    siginfo_t info{};
    const int signal = ::sigtimedwait(&signals, &info, &wait);
    if (signal == SIGHUP) {
      notify("RELOADING=1");
      reload(o, {service.access, service.overrides.get(), *service.audit});
      notify("READY=1");
    } else if (signal > 0) {
      return signal;
    }
    const auto now = SteadyClock::now();
    service.leases.sweep(now);
    service.readers.nudge();
    if (now >= counters_at) {
      keep_counters(service.readers, false);
      counters_at = now + counters_every;
    }
    if (now >= strays_at) {
      if (!service.hold.until_ms()) service.control->settle_strays();
      strays_at = now + seconds(2);
    }
    if (watchdog && now >= beat_at) {
      notify("WATCHDOG=1");
      beat_at = now + *watchdog;
    }
  }
}

int run(ServeOptions o) {
  o.connections = std::min(o.connections, raise_descriptors());
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&signals, s);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // A journal that may not grow is an error like a full disk.

  std::shared_ptr<const Overrides> overrides;
  if (!o.overrides.empty()) {
    overrides = std::make_shared<const Overrides>(must(load_overrides(o)));
  }
  const Overrides* const commands = overrides && !overrides->empty() ? overrides.get() : nullptr;
  Machine machine = open_machine(o);
  const auto groups = groups_of(o, machine, commands);
  if (commands != nullptr && !Service::has(groups, Group::gpu_control)) {
    throw CannotServe(
        fmt::format("the overrides in {} would have no effect: gpu-control is not "
                    "enabled; enable it, or leave them out",
                    o.overrides.native()));
  }
  Access::Options access{groups, std::nullopt, o.people, {}, !o.compat, o.tcp_read_only};
  access.hosts.insert(o.allow_hosts.begin(), o.allow_hosts.end());
  if (!o.signing_key.empty()) access.key = must(load_key(o));
  check_exposure(o, groups, access.key.has_value());
  std::error_code ec;
  if (Service::has(groups, Group::gpu_control)) {
    namespace fs = std::filesystem;
    const bool made = fs::create_directories(o.journal, ec);
    if (made && !ec) fs::permissions(o.journal, fs::perms::owner_all, ec);
    const auto mode = ec ? fs::perms::none : fs::status(o.journal, ec).permissions();
    if ((mode & (fs::perms::group_write | fs::perms::others_write)) != fs::perms::none) {
      throw CannotServe(fmt::format(
          "cannot keep a journal in {}: others may write there; take that right away, or name "
          "another folder with --journal",
          o.journal.native()));
    }
    if (ec) {
      throw CannotServe(
          fmt::format("cannot keep a journal in {}: {}; name another folder with "
                      "--journal",
                      o.journal.native(), ec.message()));
    }
  }

  auto service = std::make_unique<Service>(o, std::move(machine), groups, std::move(access),
                                           std::move(overrides));
  listen(*service, o);
  keep_counters(service->readers, true);  // All joules that are served count from now.
  if (Service::has(groups, Group::gpu_control)) {
    for (const Problem& p : service->control->recover()) {
      spdlog::warn("{}: {}", p.where, p.error.detail);
    }
  }
  service->server.start();
  service->streams.start();
  spdlog::info("zeusd {} serves {} GPUs and {} CPUs{}", ZEUS_VERSION, service->node.gpus().size(),
               service->node.cpus().size(),
               service->node.machine().simulation
                   ? fmt::format(" of the simulated machine {}", Service::scenario(service->node))
                   : "");
  notify("READY=1");

  const int signal = keep(*service, o, signals);
  spdlog::info("signal {}: stopping", signal);
  notify("STOPPING=1");
  service->server.stop();
  const bool held = service->hold.stop(milliseconds(5000));
  const bool turned = service->control->stop(milliseconds(5000));
  const bool read = service->readers.stop(milliseconds(200));
  if (held && turned && read) return 0;
  // A driver's call hangs. What it uses must stay until the process is gone.
  spdlog::warn("a call of a driver does not return; what it may have left is in {}",
               o.journal.native());
  service->listener.reset();
  spdlog::shutdown();
  ::_exit(turned ? 0 : kFailed);
}

}  // namespace

int serve(const ServeOptions& options) {
  try {
    return run(options);
  } catch (const CannotServe& e) {
    spdlog::error("{}", e.what());
    return kFailed;
  }
}

}  // namespace zeus::zeusd
