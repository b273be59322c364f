#include "daemon.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "net/asio.h"
#include "net/discovery.h"

namespace zeus::zeusd {
namespace {

using zeus::net::Discovery;
using zeus::net::Method;

std::string new_instance() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

std::int64_t unix_ms_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Response json(std::string body) {
  Response r;
  r.type = "application/json";
  r.body = std::move(body);
  return r;
}

Response bad_query(const zeus::net::Query& query) {
  Response r;
  r.status = 400;
  r.type = "text/plain; charset=utf-8";
  r.body = query.fault();
  return r;
}

void DeviceErrors::add(unsigned id, unsigned status, std::string_view text) {
  status_ = std::max(status_, status);
  texts_.emplace_back(id, text);
}

std::string DeviceErrors::json() const {
  nlohmann::ordered_json errors = nlohmann::ordered_json::object();
  auto sorted = texts_;  // They come as the devices answer.
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [id, text] : sorted) errors[std::to_string(id)] = text;
  return errors.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Response DeviceErrors::response() const {
  Response r = zeus::zeusd::json("{\"errors\":" + json() + "}");
  r.status = status_;
  return r;
}

Daemon::Daemon(Options options, Parts parts)
    : options_(std::move(options)),
      parts_(parts),
      instance_(new_instance()),
      started_unix_s_(unix_ms_now() / 1000) {
  add_node_routes();
  add_gpu_routes();
  add_cpu_routes();

  const Access& access = parts_.access;
  Discovery d;
  if (access.enabled(Group::gpu_read) || access.enabled(Group::gpu_control)) {
    for (const Gpu& g : parts_.node.gpus()) {
      d.gpus.push_back({static_cast<std::uint16_t>(g.id), g.device->info.model, g.pci,
                        g.energy.has_value(), g.device->info.id});
    }
  }
  if (access.enabled(Group::cpu_read)) {
    for (const Cpu& c : parts_.node.cpus()) {
      d.cpus.push_back({static_cast<std::uint16_t>(c.id), c.dram.has_value()});
    }
  }
  d.enabled_api_groups = access.groups();
  d.auth_required = access.required();
  d.version = options_.version;
  d.protocol = zeus::net::kProtocol;
  d.instance = instance_;
  d.features = {"heartbeat", "lease", "metrics", "partial", "release"};
  if (!options_.simulation.empty()) d.simulation = options_.simulation;
  discovery_ = std::make_shared<const std::string>(to_json(d));
}

Daemon::~Daemon() = default;

void Daemon::add(Method method, std::string path, std::optional<Group> group, Route route,
                 bool open) {
  Entry& e = routes_[std::move(path)];
  e.method = method;
  e.place = {group, open, true};
  e.route = route;
}

/// Of a path that is no route: what belongs to a group tells nobody who lacks it what there is.
Place Daemon::place_of(std::string_view path) const {
  if (path.starts_with("/gpu/set_") || path.starts_with("/gpu/reset_") ||
      path.starts_with("/lease/")) {
    return {Group::gpu_control};
  }
  if (path.starts_with("/gpu/")) return {Group::gpu_read};
  if (path.starts_with("/cpu/")) return {Group::cpu_read};
  return {};
}

Awaitable<Response> Daemon::handle(const Request& request, WorkerRef worker) {
  const auto found = routes_.find(request.path);
  Call call{request, worker, {}};
  const Place place = found == routes_.end() ? place_of(request.path) : found->second.place;
  Response response;
  if (auto refused = parts_.access.check(request, place, call.caller)) {
    response = std::move(*refused);
  } else if (found == routes_.end() || found->second.method != request.method) {
    response.status = 404;
  } else {
    response = co_await (this->*found->second.route)(call);
  }
  auto& count = found == routes_.end() ? unknown_ : found->second.counts[response.status / 100];
  count.fetch_add(1, std::memory_order_relaxed);
  co_return response;
}

Awaitable<std::shared_ptr<ReadOp>> Daemon::read(std::vector<Feed*> feeds, WorkerRef worker) {
  std::sort(feeds.begin(), feeds.end());
  feeds.erase(std::unique(feeds.begin(), feeds.end()), feeds.end());
  std::shared_ptr<ReadOp> op;
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        // Called on a reader's thread; the request goes on on its own.
        auto go_on = std::make_shared<decltype(handler)>(std::move(handler));
        op = std::make_shared<ReadOp>(
            std::move(feeds), [&context = worker.context, go_on](const auto&) mutable {
              asio::post(context, [go_on = std::move(go_on)] { std::move (*go_on)(); });
            });
        parts_.readers.submit(op);
      },
      asio::use_awaitable);
  co_return op;
}

}  // namespace zeus::zeusd
