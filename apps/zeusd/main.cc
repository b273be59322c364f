#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

#include "log_sink.h"
#include "net/token.h"
#include "options.h"

namespace zeus::zeusd {
namespace {

constexpr int kUsage = 2;

Group group_or_throw(const std::string& name) {
  const auto group = zeus::net::group_named(name);
  if (!group) {
    throw CLI::ValidationError(
        fmt::format("{} is no API group: there are gpu-control, gpu-read and cpu-read", name));
  }
  return *group;
}

/// "gpu-control=@zeusd,alice"
void add_people(const std::string& text, ServeOptions& o) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) {
    throw CLI::ValidationError("--allow takes GROUP=WHO,..., like gpu-control=@zeusd,alice");
  }
  auto people = People::parse(std::string_view(text).substr(equals + 1));
  if (!people) throw CLI::ValidationError(people.error().detail);
  People& all = o.people[group_or_throw(text.substr(0, equals))];
  all.users.merge(people->users);
  all.groups.merge(people->groups);
}

struct Words {
  std::vector<std::string> modes, enable, allow;
  std::string permissions, gpu_backend = "auto", socket_group, log_level = "info";
};

void add_serve(CLI::App& app, ServeOptions& o, Words& w) {
  app.add_option("--mode", w.modes, "uds, tcp, or both (default: uds)")
      ->delimiter(',')
      ->type_name("MODE")
      ->check(CLI::IsMember({"uds", "tcp"}));
  app.add_option("--socket-path", o.socket_path,
                 "Unix socket to listen on (default: /run/zeusd/zeusd.sock)")
      ->type_name("PATH");
  app.add_option("--socket-permissions", w.permissions, "Its mode, in octal (default: 660)")
      ->type_name("MODE");
  app.add_option("--socket-uid", o.socket_uid, "Its owner, as a number")->type_name("UID");
  app.add_option("--socket-gid", o.socket_gid,
                 "Its group, as a number (default: that of the group zeusd, where there is one)")
      ->type_name("GID");
  app.add_option("--tcp-bind-address", o.tcp_bind_address,
                 "HOST:PORT to listen on (default: 127.0.0.1:4938)")
      ->type_name("ADDRESS");
  app.add_flag("--tcp-read-only", o.tcp_read_only, "No control over TCP, token or not");
  app.add_flag("--insecure-control", o.insecure_control,
               "Let anybody who reaches the TCP port control the GPUs");
  app.add_option("--tls-cert", o.tls_cert, "Certificate chain for TCP, PEM")->type_name("FILE");
  app.add_option("--tls-key", o.tls_key, "Its private key, PEM")->type_name("FILE");
  app.add_option("--allow-host", o.allow_hosts, "Name by which TCP clients may call this host")
      ->type_name("NAME");
  app.add_option("--enable", w.enable,
                 "API groups: gpu-control, gpu-read, cpu-read (default: all that work here)")
      ->delimiter(',')
      ->type_name("GROUP");
  app.add_option("--allow", w.allow,
                 "GROUP=WHO,...: who may use an API group over the Unix socket; users, and groups "
                 "behind an @")
      ->type_name("RULE");
  app.add_option("--signing-key-path", o.signing_key,
                 "Key that tokens are signed with; clients then need one. SIGHUP reads it anew")
      ->type_name("FILE");
  app.add_option("--gpu-command-overrides", o.overrides,
                 "Commands in place of the driver's calls, TOML. SIGHUP reads them anew")
      ->type_name("FILE");
  app.add_option("--journal", o.journal, "Folder for what to put back (default: /run/zeus)")
      ->type_name("DIR");
  app.add_option(
         "--audit-log", o.audit_log,
         "A line of JSON for each write, appended; while it cannot be written, no write is done")
      ->type_name("FILE");
  app.add_option("--adoption-seconds", o.adoption_s,
                 "How long leases of a daemon that died wait to be renewed (default: 10)")
      ->type_name("INT")
      ->check(CLI::Range(0, 3600));
  app.add_option("--num-workers", o.workers,
                 "Threads that serve (default: one a processor, up to 4)")
      ->type_name("INT")
      ->check(CLI::Range(1, 256));
  app.add_option("--max-connections", o.connections, "Open at once (default: 20000)")
      ->type_name("INT")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--max-connections-per-peer", o.per_peer,
                 "Open at once by one user, or by one host over TCP; root over the Unix socket may "
                 "have all (default: a quarter of them, at least 64)")
      ->type_name("INT")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--gpu-power-poll-hz", o.gpu_hz, "Of power streams (default: 20)")
      ->type_name("INT")
      ->check(CLI::Range(0, 1000));
  app.add_option("--cpu-power-poll-hz", o.cpu_hz, "Of power streams (default: 10)")
      ->type_name("INT")
      ->check(CLI::Range(0, 1000));
  app.add_option("--gpu-backend", w.gpu_backend, "auto or nvml (default: auto)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "nvml"}));
  app.add_flag("--always-sample", o.always_sample, "Poll power even while nobody listens");
  app.add_option("--host", o.host, "Machine to serve: local: or sim:NAME (default: local:)")
      ->type_name("ADDRESS");
  app.add_flag("--allow-simulated", o.allow_simulated, "As root, serve a simulated machine");
  app.add_flag("--compat", o.compat,
               "Upstream's defaults: a socket for everybody, any signing key, no check of Host");
  app.add_option("--log-level", w.log_level, "trace, debug, info, warn or error (default: info)")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}));
}

/// What the words mean together.
void settle(ServeOptions& o, const Words& w) {
  if (!w.modes.empty()) {
    o.uds = std::find(w.modes.begin(), w.modes.end(), "uds") != w.modes.end();
    o.tcp = std::find(w.modes.begin(), w.modes.end(), "tcp") != w.modes.end();
  }
  if (o.compat) o.socket_permissions = 0666;
  if (!w.permissions.empty()) {
    const char* const end = w.permissions.data() + w.permissions.size();
    const auto read = std::from_chars(w.permissions.data(), end, o.socket_permissions, 8);
    if (read.ec != std::errc{} || read.ptr != end || o.socket_permissions > 0777) {
      throw CLI::ValidationError(
          fmt::format("--socket-permissions: {} is no mode from 0 to 777 in octal", w.permissions));
    }
  }
  if (!o.socket_gid && !o.compat) {
    if (const ::group* g = ::getgrnam("zeusd"); g != nullptr) o.socket_gid = g->gr_gid;
  }
  if (!w.enable.empty()) {
    o.enable.emplace();
    for (const std::string& name : w.enable) o.enable->push_back(group_or_throw(name));
  }
  for (const std::string& rule : w.allow) add_people(rule, o);
  if (o.tls_cert.empty() != o.tls_key.empty()) {
    throw CLI::ValidationError("--tls-cert and --tls-key go together");
  }
}

struct Issue {
  std::filesystem::path key;
  std::string user, expires;
  std::vector<std::string> scopes;
};

void add_issue(CLI::App& app, Issue& i) {
  app.add_option("--signing-key-path", i.key, "Key that the daemon was given")
      ->type_name("FILE")
      ->required();
  app.add_option("--user", i.user, "Whose token it is")->type_name("NAME")->required();
  app.add_option("--scope", i.scopes, "gpu-control, gpu-read, cpu-read")
      ->delimiter(',')
      ->type_name("GROUP");
  app.add_option("--expires", i.expires, "1h, 7d, 30d, \"1h 30m\", or never")
      ->type_name("DURATION")
      ->required();
}

int issue(const Issue& i) {
  const auto fail = [](const Error& e) {
    fmt::print(stderr, "zeusd: {}\n", e.detail);
    return kUsage;
  };
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const auto expires = zeus::net::parse_expiry(i.expires, now);
  if (!expires) return fail(expires.error());
  const auto key = zeus::net::SigningKey::load(i.key, false);
  if (!key) {
    return fail({key.error().code, key.error().vendor,
                 key.error().detail + "; it is named by --signing-key-path"});
  }
  zeus::net::Claims claims{i.user, {}, *expires};
  for (const std::string& s : i.scopes) claims.scopes.push_back(group_or_throw(s));
  if (claims.scopes.empty()) fmt::print(stderr, "zeusd: this token has no scope\n");
  fmt::print("{}\n", zeus::net::issue(*key, claims));
  return 0;
}

/// Whoever started us may have closed these: the next socket would take their place, and be written
/// the log.
void open_standard_streams() {
  int fd = 0;
  while (fd >= 0 && fd <= 2) fd = ::open("/dev/null", O_RDWR);
  if (fd > 2) ::close(fd);
}

int run_main(int argc, char** argv) {
  open_standard_streams();
  CLI::App app("Serves the power and energy of this machine, and guarded control of its GPUs.",
               "zeusd");
  app.set_version_flag("--version", std::string("zeusd ") + ZEUS_VERSION);
  app.require_subcommand(1);
  ServeOptions options;
  Words words;
  auto* const serve_verb = app.add_subcommand("serve", "Serve until a signal comes");
  add_serve(*serve_verb, options, words);
  auto* const token = app.add_subcommand("token", "Tokens for clients");
  token->require_subcommand(1);
  Issue wanted;
  add_issue(*token->add_subcommand("issue", "Print a token"), wanted);
  try {
    app.parse(argc, argv);
    if (!serve_verb->parsed()) return issue(wanted);
    settle(options, words);
  } catch (const CLI::ParseError& e) {
    return e.get_exit_code() == 0 ? app.exit(e) : (app.exit(e), kUsage);
  }
  auto log = std::make_shared<spdlog::logger>("zeusd", std::make_shared<LogSink>(STDERR_FILENO));
  log->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  log->set_level(spdlog::level::from_str(words.log_level));
  spdlog::set_default_logger(std::move(log));
  return serve(options);
}

}  // namespace
}  // namespace zeus::zeusd

int main(int argc, char** argv) {
  try {
    return zeus::zeusd::run_main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "zeusd: {}\n", e.what());
    return 1;
  }
}
