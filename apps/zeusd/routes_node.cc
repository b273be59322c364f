#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon.h"
#include "net/asio.h"
#include "report/node_metrics.h"

namespace zeus::zeusd {
namespace {

using zeus::net::Method;
using zeus::net::Query;
using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Json to_json(const Leases::Info& lease) {
  Json out = {{"lease", lease.id},
              {"holder", lease.who},
              {"pid", lease.pid != 0 ? Json(lease.pid) : Json()},
              {"ttl_s", lease.ttl_s ? Json(*lease.ttl_s) : Json()},
              {"ends_in_s", lease.left_s ? Json(*lease.left_s) : Json()},
              {"waiting", lease.waiting},
              {"gpus", lease.gpus}};
  return out;
}

Response answer(const zeus::Result<Leases::Info>& lease) {
  return lease ? json(dump(to_json(*lease))) : lease_refusal(lease.error());
}

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
}

}  // namespace

Response lease_refusal(const zeus::Error& error) {
  switch (error.code) {
    case Errc::absent: return refusal(404, error.detail);
    case Errc::busy: return refusal(429, error.detail);
    default: return refusal(status_of(error.code), error.detail);
  }
}

void Daemon::add_node_routes() {
  add(Method::get, "/discover", std::nullopt, &Daemon::discover, true);
  add(Method::get, "/time", std::nullopt, &Daemon::time, true);
  add(Method::get, "/healthz", std::nullopt, &Daemon::healthz, true);
  add(Method::get, "/auth/whoami", std::nullopt, &Daemon::whoami);
  add(Method::get, "/metrics", std::nullopt, &Daemon::metrics);
  add(Method::get, "/lease/list", Group::gpu_control, &Daemon::lease_list);
  add(Method::post, "/lease/open", Group::gpu_control, &Daemon::lease_open);
  add(Method::post, "/lease/renew", Group::gpu_control, &Daemon::lease_renew);
  add(Method::post, "/lease/release", Group::gpu_control, &Daemon::lease_release);
}

Awaitable<Response> Daemon::discover(Call&) {
  Response r;
  r.type = "application/json";
  r.shared = discovery_;
  co_return r;
}

Awaitable<Response> Daemon::time(Call&) {
  co_return json(fmt::format("{{\"timestamp_ms\":{}}}", unix_ms_now()));
}

Awaitable<Response> Daemon::whoami(Call& call) {
  const auto& claims = *call.caller.claims;
  Json out = {{"sub", claims.subject}, {"scopes", Json::array()}};
  for (const Group g : claims.scopes) out["scopes"].push_back(to_string(g));
  if (claims.expires) out["exp"] = *claims.expires;
  co_return json(dump(out));
}

/// Whether it works, for whoever would restart it: its socket is there, and its devices answer. A
/// GPU that is gone is no reason to restart.
Awaitable<Response> Daemon::healthz(Call&) {
  const bool well = options_.healthy();
  const auto away = parts_.hold->until_ms();
  Response r = json(dump({{"ok", well},
                          {"version", options_.version},
                          {"instance", instance_},
                          {"gpus_released_until_ms", away ? Json(*away) : Json()}}));
  r.status = well ? 200 : 503;
  co_return r;
}

Awaitable<Response> Daemon::lease_open(Call& call) {
  Query query(call.request.query);
  const auto ttl_s = query.number_if("ttl_s");
  if (!query.fault().empty()) co_return bad_query(query);
  co_return answer(parts_.leases->open(*call.request.peer, call.caller.holder, ttl_s));
}

Awaitable<Response> Daemon::lease_renew(Call& call) {
  Query query(call.request.query);
  const std::string id = query.text("lease");
  if (!query.fault().empty()) co_return bad_query(query);
  co_return answer(parts_.leases->renew(id, *call.request.peer, call.caller.holder));
}

Awaitable<Response> Daemon::lease_release(Call& call) {
  Query query(call.request.query);
  const std::string id = query.text("lease");
  if (!query.fault().empty()) co_return bad_query(query);
  const auto gpus = parts_.leases->release(id, call.caller.holder);
  if (!gpus) co_return lease_refusal(gpus.error());
  // The answer comes when its knobs have been put back.
  auto outcomes = std::make_shared<std::vector<Outcome>>();
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        auto go_on = std::make_shared<decltype(handler)>(std::move(handler));
        parts_.control->ended(
            id, *gpus, [&context = call.worker.context, go_on, outcomes](std::vector<Outcome> all) {
              *outcomes = std::move(all);
              asio::post(context, [go_on] { std::move (*go_on)(); });
            });
      },
      asio::use_awaitable);
  for (const Outcome& o : *outcomes) {
    if (o.status != 200) co_return refusal(500, "not all could be put back: " + o.text);
  }
  co_return Response{};
}

Awaitable<Response> Daemon::lease_list(Call& call) {
  Query query(call.request.query);
  if (!query.fault().empty()) co_return bad_query(query);
  Json out = Json::array();
  for (const auto& lease : parts_.leases->list()) {
    Json one = to_json(lease);
    // The id is the right to use it: only its holder is told, and nobody where all are nameless.
    if (lease.who.empty() || lease.who != call.caller.holder.who)
      one["lease"] = lease.id.substr(0, 8) + "...";
    out.push_back(std::move(one));
  }
  co_return json(dump(out));
}

Awaitable<Response> Daemon::metrics(Call& call) {
  const auto began = std::chrono::steady_clock::now();
  const bool gpus = parts_.access.may(Group::gpu_read, *call.request.peer, call.caller);
  const bool cpus = parts_.access.may(Group::cpu_read, *call.request.peer, call.caller);
  report::NodeMetrics m;
  m.version = options_.version;
  m.simulated = options_.simulation;
  m.start_time_s = static_cast<double>(started_unix_s_);
  m.ready = options_.healthy();
  bool whole = true;
  const auto age = [&](const Value& v) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - v.at).count();
  };
  if (gpus) {
    std::vector<Feed*> feeds;
    for (const Gpu& g : parts_.node.gpus()) {
      if (g.energy) feeds.push_back(g.energy->feed);
      if (g.power) feeds.push_back(g.power->feed);
      if (g.limit) feeds.push_back(g.limit->feed);
    }
    const auto op = co_await read(std::move(feeds), call.worker);
    for (const Gpu& g : parts_.node.gpus()) {
      report::NodeMetrics::Device device{g.device->info, true, std::nullopt};
      report::NodeMetrics::Domain domain;
      domain.id = {Scope::gpu, static_cast<std::uint16_t>(g.id)};
      domain.device = g.device->info.id;
      // Power that is polled all the time adds up to energy, where there is no counter.
      const bool integrated = options_.always_sampled && g.power && !g.energy;
      domain.has_energy = g.energy.has_value() || integrated;
      domain.has_power = g.power.has_value();
      if (g.energy) {
        const Value v = op->value(g.energy->feed, g.energy->slot);
        // Since the daemon began, as a counter of its process must be.
        if (v.ok()) domain.joules = v.gained(g.energy->info);
        domain.resets = v.resets;
        if (v.ok()) domain.age_s = age(v);
      }
      if (g.power) {
        const Value v = op->value(g.power->feed, g.power->slot);
        if (v.ok()) {
          domain.watts = static_cast<double>(v.count) * g.power->info.scale;
          if (integrated) domain.joules = v.gained(g.power->info);
          domain.age_s = age(v);
        }
      }
      device.up = !g.device->info.lost && (domain.joules || domain.watts);
      if (g.limit) {
        const Value v = op->value(g.limit->feed, 0);
        if (v.ok()) device.power_limit_w = static_cast<double>(v.count) * 1e-3;
      }
      for (const auto* channel : {&g.energy, &g.power, &g.limit}) {
        if (*channel) whole &= op->value((*channel)->feed, (*channel)->slot).ok();
      }
      whole &= device.up;
      const auto& sensor = g.energy ? g.energy : g.power;
      if (sensor) domain.errors = parts_.readers.errors(*sensor->feed);
      m.devices.push_back(std::move(device));
      m.domains.push_back(std::move(domain));
    }
  }
  if (cpus) {
    std::vector<const Cpu*> all;
    for (const Cpu& c : parts_.node.cpus()) all.push_back(&c);
    const auto readings = co_await read_cpus(all, guarded(call), call.worker);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Cpu& c = *all[i];
      const auto add_domain = [&](const Channel& channel, const Value& v) {
        report::NodeMetrics::Domain d;
        d.id = channel.info.domain;
        d.device = c.device->info.id;
        d.has_power = false;
        if (v.ok()) {
          d.joules = v.gained(channel.info);
          d.age_s = age(v);
        }
        d.resets = v.resets;
        d.errors = parts_.readers.errors(*channel.feed);
        m.domains.push_back(std::move(d));
        whole &= v.ok();
        return v.ok();
      };
      bool up = add_domain(*c.package, readings[i].package);
      if (c.dram) up |= add_domain(*c.dram, readings[i].dram);
      m.devices.push_back({c.device->info, up, std::nullopt});
    }
  }
  for (const auto& [route, entry] : routes_) {
    for (int hundreds = 1; hundreds < 6; ++hundreds) {
      const auto n = entry.counts[static_cast<std::size_t>(hundreds)].load();
      if (n > 0) m.requests.push_back({route, hundreds * 100, n});
    }
  }
  if (const auto n = unknown_.load(); n > 0) m.requests.push_back({"(none)", 400, n});
  for (const Problem& p : parts_.node.machine().problems) ++m.problems[p.where];
  m.subscribers["all"] = parts_.streams->subscribers();
  m.events_dropped = parts_.server->count().skipped;
  m.samples_missed = parts_.streams->missed();
  m.leases_restored = parts_.control->restored();
  m.scrape_errors = whole ? torn_.load() : ++torn_;
  m.leases = parts_.leases->list().size();
  m.gpus_released = parts_.hold->until_ms().has_value();
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    m.self_cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  m.scrape_duration_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const auto families = report::node_metrics(m);
  Response r;
  r.type = report::kPrometheusText;
  r.body = report::to_prometheus(families);
  co_return r;
}

}  // namespace zeus::zeusd
