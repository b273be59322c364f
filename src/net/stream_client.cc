#include "net/stream_client.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "net/async_connection.h"
#include "net/event_stream.h"
#include "net/power_event.h"

namespace zeus::net {
namespace {

using asio::awaitable;
using std::chrono::duration;

double wall_s() noexcept {
  return duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<std::uint64_t> parse_time(std::string_view json) noexcept {
  std::optional<std::uint64_t> out;
  JsonScan scan(json);
  scan.object([&](std::string_view key) {
    if (key == "timestamp_ms") {
      out = scan.number();
    } else {
      scan.skip();
    }
  });
  return scan.done() ? out : std::nullopt;
}

/// Daemons that lost many clients at once are not found by all of them at once.
Duration spread(Duration delay) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::chrono::duration_cast<Duration>(
      delay * std::uniform_real_distribution<double>(0.5, 1.5)(random));
}

}  // namespace

struct StreamFollower::Impl {
  Impl(asio::io_context& io, const Endpoint& to, Options how, Take whom)
      : endpoint(to),
        options(std::move(how)),
        take(std::move(whom)),
        connection(io, to),
        pause(io) {}

  Endpoint endpoint;
  Options options;
  Take take;
  AsyncConnection connection;
  asio::steady_timer pause;
  Health health;
  bool over = false;

  void stop() {
    over = true;
    connection.close();
    pause.cancel();
  }

  bool gpu() const { return options.kind == DeviceInfo::Kind::gpu; }
  Group group() const { return gpu() ? Group::gpu_read : Group::cpu_read; }
  std::string target() const { return gpu() ? "/gpu/stream_power" : "/cpu/stream_power"; }

  Error fault(Errc code, unsigned status, const std::string& what) const {
    return {code, static_cast<int>(status),
            "cannot follow the power of zeusd at " + endpoint.text() + ": " + what};
  }
  Error answered(unsigned status, const std::string& path) const {
    if (status == 401) {
      return fault(Errc::denied, status,
                   "it does not accept our token (status 401); ZEUSD_TOKEN is what zeusd token "
                   "issue printed, and it may have expired");
    }
    if (status == 403) {
      return fault(Errc::denied, status,
                   "our token does not grant " + std::string(to_string(group())) +
                       " (status 403); ask for one that does");
    }
    return fault(Errc::lost, status,
                 path + " answers with status " + std::to_string(status) + "; its log says why");
  }

  void event(const EventStream::Event& e) {
    if (over) return;
    const auto read = parse_power_event(e.data);
    if (!read) {
      ++health.bad;
      return;
    }
    ++health.samples;
    PowerSample sample;
    sample.kind = options.kind;
    sample.id = read->id;
    sample.watts = static_cast<double>(read->power_mw) * 1e-3;
    if (read->dram_mw) sample.dram_watts = static_cast<double>(*read->dram_mw) * 1e-3;
    sample.timestamp_ms = static_cast<std::int64_t>(read->timestamp_ms);
    sample.received = health.heard;
    sample.offset_s = health.offset_s;
    take(sample);
  }

  awaitable<Status> discover() {
    const auto answer = co_await connection.get("/discover", options.step);
    if (!answer) co_return answer.error();
    if (answer->status != 200) co_return answered(answer->status, "/discover");
    auto found = parse_discovery(answer->body);
    if (!found) co_return fault(Errc::malformed, 200, found.error().detail);
    health.discovery = std::move(*found);
    if (health.discovery->enables(group())) co_return ok();
    const std::string name(to_string(group()));
    co_return fault(Errc::unsupported, 200,
                    "it does not serve " + name + "; start it with --enable " + name);
  }

  /// Nothing where the daemon does not tell the time.
  awaitable<Result<std::optional<double>>> offset() {
    std::vector<double> all;
    while (all.size() < 5) {
      const double sent = wall_s();
      const auto answer = co_await connection.get("/time", options.step);
      const double received = wall_s();
      if (!answer) co_return answer.error();
      const auto time = answer->status == 200 ? parse_time(answer->body) : std::nullopt;
      if (!time) co_return std::optional<double>();
      all.push_back((sent + received) / 2 - static_cast<double>(*time) * 1e-3);
    }
    std::sort(all.begin(), all.end());
    co_return std::optional(all[2]);
  }

  /// One connection from its beginning to its end, which always has a reason.
  awaitable<Error> session() {
    const Status known = co_await discover();
    if (!known) co_return known.error();
    const auto clock = co_await offset();
    if (!clock) co_return clock.error();
    health.offset_s = *clock;

    std::string body;
    ResponseParser parser(body);
    parser.body_limit(boost::none);
    const auto status = co_await connection.begin(target(), parser, options.step);
    if (!status) co_return status.error();
    if (*status != 200 || !parser.is_event_stream()) co_return answered(*status, target());

    EventStream events;
    health.state = State::live;
    health.why.clear();
    ++health.connects;
    // A daemon that promised nothing may be silent for as long as nothing changes.
    const Duration limit =
        health.discovery->has("heartbeat") ? options.patience * 3 : Duration::zero();
    for (bool on = true; on && !over;) {
      health.heard = now();
      const std::uint64_t before = events.skipped();
      events.feed(body, [this](const EventStream::Event& e) { event(e); });
      health.bad += events.skipped() - before;
      body.clear();
      const auto more = co_await connection.more(parser, limit);
      if (!more) co_return more.error();
      on = *more;
    }
    co_return fault(Errc::lost, 200, "it ended the stream");
  }

  awaitable<void> run(std::shared_ptr<Impl> /*alive*/) {
    const Status usable = connection.prepare(options.token, options.ca_file);
    if (!usable) refuse(usable.error());
    Duration delay = options.first_delay;
    while (!over) {
      const Instant began = now();
      health.state = State::connecting;
      const Error why = co_await session();
      connection.close();
      if (over) co_return;
      if (why.code == Errc::denied && (why.vendor == 401 || why.vendor == 403)) {
        refuse(why);
        co_return;
      }
      health.state = State::down;
      health.why = why.detail;
      if (now() - began > options.most_delay) delay = options.first_delay;
      pause.expires_after(spread(delay));
      error_code ec;
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
      delay = std::min(delay * 2, options.most_delay);
    }
  }
  void refuse(const Error& why) {
    health.state = State::refused;
    health.why = why.detail;
    over = true;
  }
};

StreamFollower::StreamFollower(asio::io_context& io, const Endpoint& endpoint, Options options,
                               Take take)
    : impl_(std::make_shared<Impl>(io, endpoint, std::move(options), std::move(take))) {
  asio::co_spawn(io, impl_->run(impl_), asio::detached);
}

StreamFollower::~StreamFollower() { impl_->stop(); }

StreamFollower::Health StreamFollower::health(Instant at) const {
  Health out = impl_->health;
  if (out.state == State::live && at - out.heard > impl_->options.patience) {
    out.state = State::stale;
  }
  return out;
}

const Endpoint& StreamFollower::endpoint() const noexcept { return impl_->endpoint; }

const char* to_string(StreamFollower::State state) noexcept {
  constexpr const char* kNames[] = {"connecting", "live", "stale", "down", "refused"};
  return kNames[static_cast<std::size_t>(state)];
}

}  // namespace zeus::net
