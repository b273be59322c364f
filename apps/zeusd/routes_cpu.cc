#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "daemon.h"
#include "net/asio.h"

namespace zeus::zeusd {
namespace {

using std::chrono::milliseconds;
using zeus::net::Method;
using zeus::net::parse_ids;
using zeus::net::Query;

std::string_view cannot(Errc code) {
  switch (code) {
    case Errc::denied: return "this daemon may not read its counter; run it as root";
    case Errc::lost: return "its counter does not answer";
    default: return "its counter gave no value";
  }
}

}  // namespace

void Daemon::add_cpu_routes() {
  add(Method::get, "/cpu/get_cumulative_energy", Group::cpu_read, &Daemon::cpu_energy);
  add(Method::get, "/cpu/get_power", Group::cpu_read, &Daemon::cpu_power);
  add(Method::get, "/cpu/stream_power", Group::cpu_read, &Daemon::cpu_stream);
}

zeus::Result<std::vector<const Cpu*>> Daemon::chosen_cpus(
    const std::optional<std::string>& ids) const {
  std::vector<const Cpu*> out;
  if (!ids) {
    for (const Cpu& c : parts_.node.cpus()) out.push_back(&c);
    return out;
  }
  const auto wanted = parse_ids(*ids);
  if (!wanted) return wanted.error();
  std::string unknown, known;
  for (const unsigned id : *wanted) {
    const Cpu* cpu = parts_.node.cpu(id);
    if (cpu != nullptr) {
      out.push_back(cpu);
    } else {
      unknown += fmt::format("{}{}", unknown.empty() ? "" : ", ", id);
    }
  }
  if (unknown.empty()) return out;
  for (const Cpu& c : parts_.node.cpus()) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", c.id);
  }
  return Error{Errc::absent, 0,
               fmt::format("there are no CPUs [{}]; there are [{}]", unknown, known)};
}

bool Daemon::guarded(const Call& call) const {
  return !(call.request.peer->local && call.request.peer->uid == 0);
}

Awaitable<Response> Daemon::cpu_energy(Call& call) {
  Query query(call.request.query);
  const bool cpu = query.flag("cpu"), dram = query.flag("dram");
  const auto ids = query.text_if("cpu_ids");
  const bool partial = query.flag_if("partial").value_or(false);
  if (!query.fault().empty()) co_return bad_query(query);
  const auto cpus = chosen_cpus(ids);
  if (!cpus) co_return refusal(400, cpus.error().detail);
  const auto readings = co_await read_cpus(*cpus, guarded(call), call.worker);

  DeviceErrors errors;
  std::string body = "{";
  for (std::size_t i = 0; i < cpus->size(); ++i) {
    const Cpu& c = *(*cpus)[i];
    const auto& [package, memory] = readings[i];
    const Errc wrong = cpu && !package.ok()             ? package.error
                       : dram && c.dram && !memory.ok() ? memory.error
                                                        : Errc::ok;
    if (wrong != Errc::ok) {
      errors.add(c.id, wrong == Errc::busy ? 500 : status_of(wrong),
                 fmt::format("cannot read the energy of CPU {}: {}", c.id, cannot(wrong)));
      continue;
    }
    fmt::format_to(std::back_inserter(body),
                   "{}\"{}\":{{\"cpu_energy_uj\":{},\"dram_energy_uj\":{}}}",
                   body.size() > 1 ? "," : "", c.id,
                   cpu ? fmt::to_string(c.package->on_wire(package)) : "null",
                   dram && c.dram ? fmt::to_string(c.dram->on_wire(memory)) : "null");
  }
  if (errors.any() && !partial) co_return errors.response();
  if (errors.any()) body += (body.size() > 1 ? ",\"errors\":" : "\"errors\":") + errors.json();
  co_return json(body + '}');
}

/// The counters of some packages; for guarded peers, what may be told of them.
Awaitable<std::vector<Guard::Told>> Daemon::read_cpus(std::vector<const Cpu*> cpus, bool guard,
                                                      WorkerRef worker) {
  std::vector<std::optional<Guard::Told>> kept(cpus.size());
  std::vector<Feed*> feeds;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    const Cpu& c = *cpus[i];
    if (guard && c.guarded) kept[i] = parts_.guard.kept(c.id, std::chrono::steady_clock::now());
    if (kept[i]) continue;
    feeds.push_back(c.package->feed);
    if (c.dram) feeds.push_back(c.dram->feed);
  }
  const auto op = co_await read(std::move(feeds), worker);
  std::vector<Guard::Told> out(cpus.size());
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    const Cpu& c = *cpus[i];
    if (kept[i]) {
      out[i] = *kept[i];
      continue;
    }
    out[i].package = op->value(c.package->feed, c.package->slot);
    if (c.dram) out[i].dram = op->value(c.dram->feed, c.dram->slot);
    if (guard && c.guarded) {
      out[i] = parts_.guard.tell(c.id, out[i], std::chrono::steady_clock::now());
    }
  }
  co_return out;
}

Awaitable<Response> Daemon::cpu_power(Call& call) {
  Query query(call.request.query);
  const auto ids = query.text_if("cpu_ids");
  if (!query.fault().empty()) co_return bad_query(query);
  const auto cpus = chosen_cpus(ids);
  if (!cpus) co_return refusal(400, cpus.error().detail);
  const bool guard = guarded(call);

  std::chrono::nanoseconds period(1'000'000'000 / std::max(options_.cpu_hz, 1U));
  // Two guarded values must not be one and the same.
  if (guard) period = std::max<std::chrono::nanoseconds>(period, Guard::kPeriod + milliseconds(5));
  const auto before = co_await read_cpus(*cpus, guard, call.worker);
  asio::steady_timer timer(call.worker.context, period);
  co_await timer.async_wait(asio::use_awaitable);
  const auto after = co_await read_cpus(*cpus, guard, call.worker);

  DeviceErrors errors;
  std::string body = fmt::format("{{\"timestamp_ms\":{},\"power_mw\":{{", unix_ms_now());
  bool first = true;
  for (std::size_t i = 0; i < cpus->size(); ++i) {
    const Cpu& c = *(*cpus)[i];
    const auto package = power_mw(*c.package, before[i].package, after[i].package);
    const auto dram = c.dram ? power_mw(*c.dram, before[i].dram, after[i].dram) : std::nullopt;
    if (!package || (c.dram && !dram)) {
      errors.add(
          c.id, 500,
          fmt::format("cannot tell the power of CPU {}: {}", c.id, cannot(after[i].package.error)));
      continue;
    }
    fmt::format_to(std::back_inserter(body), "{}\"{}\":{{\"cpu_mw\":{},\"dram_mw\":{}}}",
                   std::exchange(first, false) ? "" : ",", c.id, *package,
                   dram ? fmt::to_string(*dram) : "null");
  }
  if (errors.any()) co_return errors.response();
  co_return json(body + "}}");
}

Awaitable<Response> Daemon::cpu_stream(Call& call) {
  Query query(call.request.query);
  const auto ids = query.text_if("cpu_ids");
  if (!query.fault().empty()) co_return bad_query(query);
  const auto cpus = chosen_cpus(ids);
  if (!cpus) co_return refusal(400, cpus.error().detail);
  std::vector<unsigned> wanted;
  for (const Cpu* c : *cpus) wanted.push_back(c->id);
  Response r;
  r.stream = parts_.streams->cpus(wanted, call.worker.index, guarded(call));
  if (call.caller.claims) r.until = call.caller.claims->expires;
  co_return r;
}

}  // namespace zeus::zeusd
