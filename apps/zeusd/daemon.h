#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "access.h"
#include "control.h"
#include "guard.h"
#include "hold.h"
#include "leases.h"
#include "net/query.h"
#include "net/server.h"
#include "node.h"
#include "readers.h"
#include "streams.h"

namespace zeus::zeusd {

using zeus::net::Request;
using zeus::net::Response;
using zeus::net::WorkerRef;
namespace asio = boost::asio;
template <class T>
using Awaitable = asio::awaitable<T>;

/// One request on its way through the daemon.
struct Call {
  const Request& request;
  WorkerRef worker;
  Caller caller{};
};

/// What the daemon serves and how: the parts, and the table of routes over them.
class Daemon final : public zeus::net::Handler {
 public:
  struct Options {
    std::string version;
    unsigned cpu_hz = 10;
    std::string simulation{};     ///< The scenario, where the machine is not real.
    bool always_sampled = false;  ///< Power is polled all the time.
    std::function<bool()> healthy = [] { return true; };
  };
  struct Parts {
    const Node& node;
    Readers& readers;
    const Access& access;
    Guard& guard;
    zeus::net::Server* server = nullptr;  ///< Set once they are made.
    Leases* leases = nullptr;
    Control* control = nullptr;
    Streams* streams = nullptr;
    Hold* hold = nullptr;
  };
  Daemon(Options options, Parts parts);
  ~Daemon() override;
  Parts& parts() noexcept { return parts_; }

  Awaitable<Response> handle(const Request& request, WorkerRef worker) override;

  using Route = Awaitable<Response> (Daemon::*)(Call& call);
  struct Entry {
    zeus::net::Method method{};
    Place place{};
    Route route = nullptr;
    std::array<std::atomic<std::uint64_t>, 6> counts{};  ///< Answers by hundreds of the status.
  };
  const std::map<std::string, Entry, std::less<>>& routes() const noexcept { return routes_; }

 private:
  void add_node_routes();
  void add_gpu_routes();
  void add_cpu_routes();
  void add(zeus::net::Method method, std::string path, std::optional<Group> group, Route route,
           bool open = false);
  Place place_of(std::string_view path) const;

  // Devices.
  Awaitable<std::shared_ptr<ReadOp>> read(std::vector<Feed*> feeds, WorkerRef worker);
  zeus::Result<std::vector<const Gpu*>> chosen_gpus(const std::optional<std::string>& ids) const;
  zeus::Result<std::vector<const Cpu*>> chosen_cpus(const std::optional<std::string>& ids) const;

  Awaitable<Response> discover(Call& call);
  Awaitable<Response> time(Call& call);
  Awaitable<Response> whoami(Call& call);
  Awaitable<Response> healthz(Call& call);
  Awaitable<Response> metrics(Call& call);
  Awaitable<Response> lease_open(Call& call);
  Awaitable<Response> lease_renew(Call& call);
  Awaitable<Response> lease_release(Call& call);
  Awaitable<Response> lease_list(Call& call);

  Awaitable<Response> gpu_power(Call& call);
  Awaitable<Response> gpu_energy(Call& call);
  Awaitable<Response> gpu_power_limit(Call& call);
  Awaitable<Response> gpu_constraints(Call& call);
  Awaitable<Response> gpu_persistence(Call& call);
  Awaitable<Response> gpu_stream(Call& call);
  Awaitable<Response> gpu_release(Call& call);
  Awaitable<Response> gpu_acquire(Call& call);
  template <Operation kOperation>
  Awaitable<Response> gpu_write(Call& call);
  Awaitable<Response> write(Call& call, Write write, zeus::net::Query& query);
  Awaitable<Response> ready(Response response);
  Awaitable<Response> submit(Call& call, Write write, std::string ids, bool block);
  using Describe = void (*)(std::string& out, const Gpu& gpu, const ReadOp& op);
  /// What some GPUs say: a map by id, or why there is none.
  struct Gathered {
    std::optional<Response> refusal{};
    std::string map{}, errors{};  ///< `errors`: ",\"errors\":{...}" where the client takes a part.
  };
  Awaitable<Gathered> gather(Call& call, std::optional<Channel> Gpu::*channel,
                             std::string_view what, Describe describe);
  Awaitable<Response> gpu_values(Call& call, std::optional<Channel> Gpu::*channel,
                                 std::string_view what, Describe describe);

  Awaitable<Response> cpu_energy(Call& call);
  Awaitable<Response> cpu_power(Call& call);
  Awaitable<Response> cpu_stream(Call& call);
  bool guarded(const Call& call) const;
  Awaitable<std::vector<Guard::Told>> read_cpus(std::vector<const Cpu*> cpus, bool guard,
                                                WorkerRef worker);

  Options options_;
  Parts parts_;
  std::string instance_;
  std::int64_t started_unix_s_;
  std::shared_ptr<const std::string> discovery_;
  std::map<std::string, Entry, std::less<>> routes_;
  std::atomic<std::uint64_t> unknown_{0};
  std::atomic<std::uint64_t> torn_{0};  ///< Scrapes of which a part could not be read.
};

/// {"errors": {"1": "..."}} with the worst status.
class DeviceErrors {
 public:
  void add(unsigned id, unsigned status, std::string_view text);
  bool any() const noexcept { return !texts_.empty(); }
  unsigned status() const noexcept { return status_; }
  Response response() const;
  std::string json() const;  ///< {"1":"..."}

 private:
  unsigned status_ = 0;
  std::vector<std::pair<unsigned, std::string>> texts_;
};

/// Why a lease cannot be used: 404 where there is none, 429 where there are too many.
Response lease_refusal(const zeus::Error& error);
Response json(std::string body);
Response bad_query(const zeus::net::Query& query);
std::int64_t unix_ms_now();

}  // namespace zeus::zeusd
