#include "backends/zeusd/knobs.h"

#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "net/json_scan.h"

namespace zeus::zeusd {
namespace {

using net::JsonScan;

/// One GPU of a daemon, and what it answers.
class Remote {
 public:
  Remote(SessionPtr session, std::shared_ptr<Held> held, std::size_t place, std::string subject)
      : session_(std::move(session)),
        held_(std::move(held)),
        place_(place),
        subject_(std::move(subject)) {}

  std::string id() const { return std::to_string(session_->discovery().gpus[place_].id); }

  /// Writes under the lease of this process, where the daemon gives one. `knob` says what is
  /// turned, `away` whether to anything else than where it stood before.
  Status write(const std::string& route, const std::string& rest, const std::string& knob,
               bool away) {
    auto done = write_once(route, rest);
    if (!done && done.error().code == Errc::absent) {  // The lease, since the daemon's restart.
      held_->forget();
      done = write_once(route, rest);
    }
    if (done) held_->turned({place_, knob}, away);
    return done;
  }

  /// Has what was written last stay when this process ends.
  Status keep(const std::string& route, const std::string& rest) {
    if (auto released = held_->release(); !released) return released;
    const auto done = ask(route, rest + "&block=true", true);
    if (!done) return done.error();
    return ok();
  }

  /// The body, where the status is 200.
  Result<std::string> ask(const std::string& route, const std::string& rest, bool write) {
    const std::string target = route + "?gpu_ids=" + id() + rest;
    const auto answer = write ? session_->client().post(target) : session_->client().get(target);
    if (!answer) return answer.error();
    if (answer->status == 200) return answer->body;
    Error error{to_errc(answer->status), static_cast<int>(answer->status),
                "cannot do " + route + " on " + subject_ + " through zeusd at " +
                    session_->endpoint().text() + ": " + words_of(answer->body) + " (status " +
                    std::to_string(answer->status) + ")"};
    if (error.code == Errc::unsupported && write) error.code = Errc::invalid;
    return error;
  }

  /// {"0":{"NAME":5}}.
  Result<std::uint64_t> number(const std::string& route, std::string_view name) {
    const auto body = ask(route, "", false);
    if (!body) return body.error();
    std::optional<std::uint64_t> found;
    JsonScan scan(*body);
    scan.object([&](std::string_view /*id*/) {
      scan.object([&](std::string_view key) {
        if (key != name) return scan.skip();
        found = name == "enabled" ? flag(scan) : scan.number();
      });
    });
    if (scan.done() && found) return *found;
    return Error{Errc::malformed, 0,
                 "cannot read " + std::string(name) + " of " + subject_ +
                     " in what zeusd answers to " + route};
  }

 private:
  Status write_once(const std::string& route, const std::string& rest) {
    const auto lease = held_->argument();
    if (!lease) return lease.error();
    const auto done = ask(route, rest + "&block=true" + *lease, true);
    if (!done) return done.error();
    return ok();
  }
  static std::uint64_t flag(JsonScan& scan) { return scan.boolean() ? 1 : 0; }

  SessionPtr session_;
  std::shared_ptr<Held> held_;
  std::size_t place_;
  std::string subject_;
};

/// What the daemon can tell as well as set, in the wire's unit.
class Plain final : public Knob {
 public:
  struct Routes {
    const char *get, *name, *set, *key;
    double scale;  ///< One raw unit in SI.
  };
  static constexpr Routes kLimit{"/gpu/get_power_limit", "power_limit_mw", "/gpu/set_power_limit",
                                 "power_limit_mw", 1e-3};
  static constexpr Routes kPersistence{"/gpu/get_persistence_mode", "enabled",
                                       "/gpu/set_persistence_mode", "enabled", 1};

  Plain(Remote remote, const Routes& routes) : remote_(std::move(remote)), routes_(routes) {}

  Result<Setting> get() override {
    const auto raw = remote_.number(routes_.get, routes_.name);
    if (!raw) return raw.error();
    return Setting(static_cast<double>(*raw) * routes_.scale);
  }

  Status set(Setting setting) override {
    const auto before = remote_.number(routes_.get, routes_.name);
    if (!before) return before.error();
    const auto raw = static_cast<std::uint64_t>(std::lround(setting.low / routes_.scale));
    if (!stood_) stood_ = *before;
    const auto done = remote_.write(routes_.set, argument(raw), routes_.name, raw != *stood_);
    if (!done) return done;
    if (raw == *stood_) stood_.reset();
    set_ = raw;
    const auto now = remote_.number(routes_.get, routes_.name);
    if (!now) return now.error();
    if (*now == raw) return ok();
    return Error{Errc::malformed, 0,
                 std::string(routes_.set) + " was accepted for " + std::to_string(raw) +
                     ", but it reads back as " + std::to_string(*now)};
  }

  Status keep() override { return remote_.keep(routes_.set, argument(set_)); }

 private:
  std::string argument(std::uint64_t raw) const {
    const std::string value =
        routes_.scale == 1 ? (raw != 0 ? "true" : "false") : std::to_string(raw);
    return "&" + std::string(routes_.key) + "=" + value;
  }

  Remote remote_;
  Routes routes_;
  std::optional<std::uint64_t> stood_;  ///< Before this process turned it, while it is turned.
  std::uint64_t set_ = 0;
};

/// Locked clocks. No daemon tells where they are locked, so that this knob knows only what it did.
class ClockLock final : public Knob {
 public:
  struct Routes {
    const char *set, *reset;
  };
  static constexpr Routes kSm{"/gpu/set_gpu_locked_clocks", "/gpu/reset_gpu_locked_clocks"};
  static constexpr Routes kMemory{"/gpu/set_mem_locked_clocks", "/gpu/reset_mem_locked_clocks"};

  ClockLock(Remote remote, const Routes& routes) : remote_(std::move(remote)), routes_(routes) {}

  Result<Setting> get() override {
    const std::lock_guard lock(mutex_);
    return locked_;
  }

  Status set(Setting hertz) override {
    const auto mhz = [](double f) { return static_cast<double>(std::lround(f * 1e-6)) * 1e6; };
    const Setting to(mhz(hertz.low), mhz(hertz.high));
    const auto done = remote_.write(route(to), argument(to), routes_.set, to.high != 0);
    if (!done) return done;
    const std::lock_guard lock(mutex_);
    locked_ = to;
    return ok();
  }

  Status keep() override {
    const std::lock_guard lock(mutex_);
    return remote_.keep(route(locked_), argument(locked_));
  }

 private:
  const char* route(const Setting& to) const { return to.high == 0 ? routes_.reset : routes_.set; }
  static std::string argument(const Setting& to) {
    if (to.high == 0) return {};
    return "&min_clock_mhz=" + std::to_string(std::lround(to.low * 1e-6)) +
           "&max_clock_mhz=" + std::to_string(std::lround(to.high * 1e-6));
  }

  Remote remote_;
  Routes routes_;
  std::mutex mutex_;
  Setting locked_;
};

}  // namespace

void add_knobs(const SessionPtr& session, const std::shared_ptr<Held>& held, std::size_t place,
               Device& device, Machine& part) {
  Remote remote(session, held, place, device.info.id);
  const auto add = [&](KnobInfo info, std::shared_ptr<Knob> knob) {
    info.knob = knob.get();
    device.knobs.push_back(std::move(info));
    part.owned.push_back(std::move(knob));
  };
  constexpr const char* kRange = "/gpu/get_power_limit_constraints";
  const bool reads = session->may(Group::gpu_read);
  if (reads) {
    const auto now = remote.number(Plain::kLimit.get, Plain::kLimit.name);
    const auto min = remote.number(kRange, "min_power_limit_mw");
    const auto max = remote.number(kRange, "max_power_limit_mw");
    if (now && min && max) {
      // The daemon does not tell the vendor's standard; what it stands at is always allowed.
      add({.name = "power_limit",
           .quantity = Quantity::power,
           .min = static_cast<double>(*min) * 1e-3,
           .max = static_cast<double>(*max) * 1e-3,
           .standard = static_cast<double>(*now) * 1e-3},
          std::make_shared<Plain>(remote, Plain::kLimit));
    }
  }
  // Which clocks there are, only the driver knows, and it refuses the others.
  constexpr double kMostHz = 1e11;
  const KnobInfo clock{.name = {},
                       .quantity = Quantity::clock,
                       .min = 1e6,
                       .max = kMostHz,
                       .standard = 0,
                       .knob = nullptr,
                       .range = true};
  for (const auto& [name, routes] :
       {std::pair("sm_clock", ClockLock::kSm), std::pair("memory_clock", ClockLock::kMemory)}) {
    KnobInfo info = clock;
    info.name = name;
    add(std::move(info), std::make_shared<ClockLock>(remote, routes));
  }
  if (reads && remote.number(Plain::kPersistence.get, Plain::kPersistence.name)) {
    add({.name = "persistence", .quantity = Quantity::state, .min = 0, .max = 1, .standard = 0},
        std::make_shared<Plain>(remote, Plain::kPersistence));
  }
}

}  // namespace zeus::zeusd
