#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "daemon.h"
#include "net/asio.h"

namespace zeus::zeusd {
namespace {

using zeus::net::Method;
using zeus::net::parse_ids;
using zeus::net::Query;

std::string_view cannot(Errc code) {
  switch (code) {
    case Errc::unsupported: return "this GPU does not tell it";
    case Errc::denied: return "the driver does not let this daemon read it";
    case Errc::lost: return "the GPU does not answer: it is lost, or its driver is being reset";
    case Errc::busy: return "the GPU has no value just now; ask again";
    case Errc::malformed: return "the driver gave a value that cannot be";
    default: return "the GPU cannot be read";
  }
}

/// Of a device without such a sensor: lost ones may come back, others never had it.
Errc missing(const Gpu& gpu) { return gpu.device->info.lost ? Errc::lost : Errc::unsupported; }

void key(std::string& out, unsigned id) {
  if (out.back() != '{') out += ',';
  const fmt::format_int digits(id);
  out += '"';
  out.append(digits.data(), digits.size());
  out += "\":";
}

void number(std::string& out, std::uint64_t value) {
  const fmt::format_int digits(value);
  out.append(digits.data(), digits.size());
}

}  // namespace

void Daemon::add_gpu_routes() {
  constexpr auto kRead = Group::gpu_read, kControl = Group::gpu_control;
  add(Method::get, "/gpu/get_power", kRead, &Daemon::gpu_power);
  add(Method::get, "/gpu/get_cumulative_energy", kRead, &Daemon::gpu_energy);
  add(Method::get, "/gpu/get_power_limit", kRead, &Daemon::gpu_power_limit);
  add(Method::get, "/gpu/get_power_limit_constraints", kRead, &Daemon::gpu_constraints);
  add(Method::get, "/gpu/get_persistence_mode", kRead, &Daemon::gpu_persistence);
  add(Method::get, "/gpu/stream_power", kRead, &Daemon::gpu_stream);
  add(Method::post, "/gpu/set_power_limit", kControl,
      &Daemon::gpu_write<Operation::set_power_limit>);
  add(Method::post, "/gpu/set_persistence_mode", kControl,
      &Daemon::gpu_write<Operation::set_persistence_mode>);
  add(Method::post, "/gpu/set_gpu_locked_clocks", kControl,
      &Daemon::gpu_write<Operation::set_gpu_locked_clocks>);
  add(Method::post, "/gpu/reset_gpu_locked_clocks", kControl,
      &Daemon::gpu_write<Operation::reset_gpu_locked_clocks>);
  add(Method::post, "/gpu/set_mem_locked_clocks", kControl,
      &Daemon::gpu_write<Operation::set_mem_locked_clocks>);
  add(Method::post, "/gpu/reset_mem_locked_clocks", kControl,
      &Daemon::gpu_write<Operation::reset_mem_locked_clocks>);
  add(Method::post, "/gpu/reset_locked_clocks", kControl,
      &Daemon::gpu_write<Operation::reset_locked_clocks>);
  add(Method::post, "/gpu/release", kControl, &Daemon::gpu_release);
  add(Method::post, "/gpu/acquire", kControl, &Daemon::gpu_acquire);
}

zeus::Result<std::vector<const Gpu*>> Daemon::chosen_gpus(
    const std::optional<std::string>& ids) const {
  std::vector<const Gpu*> out;
  if (!ids) {
    for (const Gpu& g : parts_.node.gpus()) out.push_back(&g);
    return out;
  }
  const auto wanted = parse_ids(*ids);
  if (!wanted) return wanted.error();
  for (const unsigned id : *wanted) {
    const Gpu* gpu = parts_.node.gpu(id);
    if (gpu == nullptr) {
      return Error{
          Errc::absent, 0,
          fmt::format("there is no GPU {}: this machine has {}", id, parts_.node.gpus().size())};
    }
    out.push_back(gpu);
  }
  return out;
}

/// What all reads of GPUs have in common: which, in what order faults are told, and that one GPU
/// that fails makes the request fail, unless the client asks for the rest.
Awaitable<Daemon::Gathered> Daemon::gather(Call& call, std::optional<Channel> Gpu::*channel,
                                           std::string_view what, Describe describe) {
  Query query(call.request.query);
  const auto ids = query.text_if("gpu_ids");
  const bool partial = query.flag_if("partial").value_or(false);
  if (!query.fault().empty()) co_return Gathered{bad_query(query)};
  const auto gpus = chosen_gpus(ids);
  if (!gpus) co_return Gathered{refusal(400, gpus.error().detail)};
  if (auto away = parts_.hold->refusal()) co_return Gathered{std::move(*away)};

  std::vector<Feed*> feeds;
  for (const Gpu* g : *gpus) {
    if (g->*channel) feeds.push_back((g->*channel)->feed);
  }
  const auto op = co_await read(std::move(feeds), call.worker);
  DeviceErrors errors;
  Gathered out{{}, "{", {}};
  for (const Gpu* g : *gpus) {
    const auto& c = g->*channel;
    const Errc error = c ? op->value(c->feed, c->slot).error : missing(*g);
    if (error != Errc::ok) {
      errors.add(g->id, error == Errc::busy ? 500 : status_of(error),
                 fmt::format("cannot read {} of GPU {}: {}", what, g->id, cannot(error)));
      continue;
    }
    key(out.map, g->id);
    describe(out.map, *g, *op);
  }
  out.map += '}';
  if (errors.any()) {
    if (auto away = parts_.hold->refusal()) co_return Gathered{std::move(*away)};
    if (!partial) co_return Gathered{errors.response()};
    out.errors = ",\"errors\":" + errors.json();
  }
  co_return out;
}

Awaitable<Response> Daemon::gpu_values(Call& call, std::optional<Channel> Gpu::*channel,
                                       std::string_view what, Describe describe) {
  Gathered g = co_await gather(call, channel, what, describe);
  if (g.refusal) co_return std::move(*g.refusal);
  if (!g.errors.empty()) {
    g.map.pop_back();
    g.map += g.map == "{" ? g.errors.substr(1) : g.errors;
    g.map += '}';
  }
  co_return json(std::move(g.map));
}

Awaitable<Response> Daemon::gpu_power(Call& call) {
  Gathered g = co_await gather(
      call, &Gpu::power, "the power", [](std::string& out, const Gpu& gpu, const ReadOp& op) {
        number(out, gpu.power->on_wire(op.value(gpu.power->feed, gpu.power->slot)));
      });
  if (g.refusal) co_return std::move(*g.refusal);
  std::string body = "{\"timestamp_ms\":";
  number(body, static_cast<std::uint64_t>(unix_ms_now()));  // After all readings.
  body += ",\"power_mw\":";
  body += g.map;
  body += g.errors;
  body += '}';
  co_return json(std::move(body));
}

Awaitable<Response> Daemon::gpu_energy(Call& call) {
  return gpu_values(
      call, &Gpu::energy, "the energy", [](std::string& out, const Gpu& gpu, const ReadOp& op) {
        out += "{\"energy_mj\":";
        number(out, gpu.energy->on_wire(op.value(gpu.energy->feed, gpu.energy->slot)));
        out += '}';
      });
}

Awaitable<Response> Daemon::gpu_power_limit(Call& call) {
  return gpu_values(call, &Gpu::limit, "the power limit",
                    [](std::string& out, const Gpu& gpu, const ReadOp& op) {
                      out += "{\"power_limit_mw\":";
                      number(out, op.value(gpu.limit->feed, 0).count);
                      out += '}';
                    });
}

Awaitable<Response> Daemon::gpu_constraints(Call& call) {
  return gpu_values(call, &Gpu::limit, "the range of the power limit",
                    [](std::string& out, const Gpu& gpu, const ReadOp&) {
                      const auto mw = [](double w) {
                        return static_cast<std::uint64_t>(w * 1e3 + 0.5);
                      };
                      out += "{\"min_power_limit_mw\":";
                      number(out, mw(gpu.power_limit->min));
                      out += ",\"max_power_limit_mw\":";
                      number(out, mw(gpu.power_limit->max));
                      out += '}';
                    });
}

Awaitable<Response> Daemon::gpu_persistence(Call& call) {
  return gpu_values(call, &Gpu::persistent, "the persistence mode",
                    [](std::string& out, const Gpu& gpu, const ReadOp& op) {
                      const bool on = op.value(gpu.persistent->feed, 0).count != 0;
                      out += on ? "{\"enabled\":true}" : "{\"enabled\":false}";
                    });
}

Awaitable<Response> Daemon::gpu_stream(Call& call) {
  Query query(call.request.query);
  const auto ids = query.text_if("gpu_ids");
  if (!query.fault().empty()) co_return bad_query(query);
  const auto gpus = chosen_gpus(ids);
  if (!gpus && gpus.error().code != Errc::absent) co_return refusal(400, gpus.error().detail);
  if (!gpus) {
    std::string unknown, known;
    const auto wanted = parse_ids(*ids);
    for (const unsigned id : *wanted) {
      if (parts_.node.gpu(id) != nullptr) continue;
      unknown += fmt::format("{}{}", unknown.empty() ? "" : ", ", id);
    }
    for (const Gpu& g : parts_.node.gpus()) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", g.id);
    }
    co_return refusal(400, fmt::format("there are no GPUs [{}]; there are [{}]", unknown, known));
  }
  std::vector<unsigned> wanted;
  for (const Gpu* g : *gpus) wanted.push_back(g->id);
  Response r;
  r.stream = parts_.streams->gpus(wanted, call.worker.index);
  if (call.caller.claims) r.until = call.caller.claims->expires;
  co_return r;
}

namespace {

/// What becomes of an order to the hold on the drivers.
template <class Start>
Awaitable<Outcome> outcome_of(WorkerRef worker, Start start) {
  auto outcome = std::make_shared<Outcome>();
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        auto go_on = std::make_shared<decltype(handler)>(std::move(handler));
        start([&context = worker.context, go_on, outcome](Outcome o) {
          *outcome = std::move(o);
          asio::post(context, [go_on] { std::move (*go_on)(); });
        });
      },
      asio::use_awaitable);
  co_return *outcome;
}

}  // namespace

Awaitable<Response> Daemon::gpu_release(Call& call) {
  Query query(call.request.query);
  const std::uint32_t length_s = query.number_if("seconds").value_or(Hold::kUsualS);
  if (!query.fault().empty()) co_return bad_query(query);
  if (length_s == 0 || length_s > Hold::kLongestS) {
    co_return refusal(400, fmt::format("seconds goes from 1 to {}", Hold::kLongestS));
  }
  const Outcome o = co_await outcome_of(call.worker, [&](Hold::Done done) {
    parts_.hold->release(std::chrono::seconds(length_s), call.caller.name, std::move(done));
  });
  if (o.status != 200) co_return refusal(o.status, o.text);
  co_return json(
      fmt::format("{{\"until_ms\":{}}}", parts_.hold->until_ms().value_or(unix_ms_now())));
}

Awaitable<Response> Daemon::gpu_acquire(Call& call) {
  Query query(call.request.query);
  if (!query.fault().empty()) co_return bad_query(query);
  const Outcome o = co_await outcome_of(call.worker, [&](Hold::Done done) {
    parts_.hold->acquire(call.caller.name, std::move(done));
  });
  if (o.status != 200) co_return refusal(o.status, o.text);
  co_return Response{};
}

template <Operation kOperation>
Awaitable<Response> Daemon::gpu_write(Call& call) {
  Query query(call.request.query);
  Write w;
  w.operation = kOperation;
  if constexpr (kOperation == Operation::set_power_limit) {
    w.power_limit_mw = query.number("power_limit_mw");
  } else if constexpr (kOperation == Operation::set_persistence_mode) {
    w.enabled = query.flag("enabled");
  } else if constexpr (kOperation == Operation::set_gpu_locked_clocks ||
                       kOperation == Operation::set_mem_locked_clocks) {
    w.min_clock_mhz = query.number("min_clock_mhz");
    w.max_clock_mhz = query.number("max_clock_mhz");
  }
  return write(call, std::move(w), query);
}

namespace {

/// What a write waits for: one outcome a GPU.
struct Answers {
  std::mutex mutex;
  DeviceErrors errors;
  std::size_t left = 0;
  std::function<void()> done;

  void take(unsigned gpu, const Outcome& outcome) {
    std::function<void()> last;
    {
      const std::lock_guard lock(mutex);
      if (outcome.status != 200) errors.add(gpu, outcome.status, outcome.text);
      if (--left == 0) last = std::move(done);
    }
    if (last) last();
  }
};

}  // namespace

Awaitable<Response> Daemon::ready(Response response) { co_return response; }

Awaitable<Response> Daemon::write(Call& call, Write w, Query& query) {
  // All of it is taken before the first suspension: the query is gone by then.
  const std::string ids = query.text("gpu_ids");
  const bool block = query.flag("block");
  w.lease = query.text_if("lease").value_or("");
  w.who = call.caller.name;
  if (!query.fault().empty()) return ready(bad_query(query));
  return submit(call, std::move(w), ids, block);
}

Awaitable<Response> Daemon::submit(Call& call, Write w, std::string ids, bool block) {
  const auto wanted = parse_ids(ids);
  if (!wanted) co_return refusal(400, wanted.error().detail);
  for (const unsigned id : *wanted) {
    if (parts_.node.gpu(id) != nullptr) continue;
    Response r;
    r.status = 400;
    r.type = "text/plain; charset=utf-8";
    r.body = fmt::format("there is no GPU {}: this machine has {}", id, parts_.node.gpus().size());
    co_return r;
  }
  if (!w.lease.empty()) {
    // A write is as good as a heartbeat.
    const auto mine = parts_.leases->renew(w.lease, *call.request.peer, call.caller.holder);
    if (!mine) {
      co_return lease_refusal(mine.error());
    }
  }
  auto answers = std::make_shared<Answers>();
  answers->left = wanted->size() + 1;  // And one for who queues them.
  DeviceErrors refused;
  const auto queue = [&] {
    for (const unsigned id : *wanted) {
      const Outcome queued =
          parts_.control->submit(id, w, [answers, id](const Outcome& o) { answers->take(id, o); });
      if (queued.status == 200) continue;
      refused.add(id, queued.status, queued.text);
      answers->take(id, queued);
    }
  };
  if (!block) {
    queue();
    // Of what is queued nothing can be said; of what was not, it must be.
    if (refused.any()) co_return refused.response();
    co_return Response{};
  }
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        auto go_on = std::make_shared<decltype(handler)>(std::move(handler));
        answers->done = [&context = call.worker.context, go_on] {
          asio::post(context, [go_on] { std::move (*go_on)(); });
        };
        queue();
        answers->take(0, {});
      },
      asio::use_awaitable);
  const std::lock_guard lock(answers->mutex);
  if (answers->errors.any()) co_return answers->errors.response();
  co_return Response{};
}

}  // namespace zeus::zeusd
