#include "fleet_host.h"

#include <algorithm>
#include <utility>

namespace zeus::cli {
namespace {

using Kind = DeviceInfo::Kind;
using net::Group;
using net::StreamFollower;
using zeusd::Route;

double power_of(const net::PowerSample& s) { return s.watts + s.dram_watts.value_or(0); }

bool connected(StreamFollower::State state) {
  return state == StreamFollower::State::live || state == StreamFollower::State::stale;
}

}  // namespace

FleetHost::FleetHost(net::asio::io_context& io, const net::Endpoint& endpoint, std::string token,
                     Duration interval)
    : io_(io),
      endpoint_(endpoint),
      token_(std::move(token)),
      interval_(interval),
      connection_(io, endpoint),
      pause_(io) {}

void FleetHost::start() {
  gpu_stream_ = follow(Kind::gpu);
  // A token that cannot be sent is told by the stream.
  if (!connection_.prepare(token_, {})) return;
  net::asio::co_spawn(io_, count(shared_from_this()), net::asio::detached);
}

void FleetHost::stop() {
  over_ = true;
  connection_.close();
  pause_.cancel();
  gpu_stream_.reset();
  cpu_stream_.reset();
}

std::unique_ptr<StreamFollower> FleetHost::follow(Kind kind) {
  StreamFollower::Options options;
  options.kind = kind;
  options.token = token_;
  return std::make_unique<StreamFollower>(
      io_, endpoint_, std::move(options), [this](const net::PowerSample& s) {
        (s.kind == Kind::gpu ? gpus_ : cpus_)[s.id].power_w = power_of(s);
      });
}

/// A daemon that was started anew may count other devices by the same numbers.
void FleetHost::learn(const net::Discovery& discovery) {
  if (known_ && known_->gpus == discovery.gpus && known_->cpus == discovery.cpus) return;
  for (Devices* devices : {&gpus_, &cpus_}) {
    for (auto& [id, device] : *devices) {
      device.counter.forget();
      device.dram.forget();
    }
  }
  known_ = discovery;
  if (!cpu_stream_ && discovery.enables(Group::cpu_read) && !discovery.cpus.empty()) {
    cpu_stream_ = follow(Kind::cpu);
  }
}

net::asio::awaitable<void> FleetHost::count(std::shared_ptr<FleetHost> /*alive*/) {
  while (!over_) {
    const auto health = gpu_stream_->health();
    if (health.discovery) learn(*health.discovery);
    if (known_) {
      std::vector<std::uint16_t> gpus, cpus;
      for (const auto& g : known_->gpus) {
        if (g.cumulative_energy_available.value_or(true)) gpus.push_back(g.id);
      }
      for (const auto& c : known_->cpus) cpus.push_back(c.id);
      if (known_->enables(Group::gpu_read)) co_await read(Route::gpu_energy, gpus);
      if (!over_ && known_->enables(Group::cpu_read)) co_await read(Route::cpu_energy, cpus);
    }
    if (over_) co_return;
    pause_.expires_after(known_ ? interval_
                                : std::min<Duration>(interval_, std::chrono::milliseconds(100)));
    net::error_code ec;
    co_await pause_.async_wait(net::asio::redirect_error(net::asio::use_awaitable, ec));
  }
}

net::asio::awaitable<void> FleetHost::read(Route route, std::vector<std::uint16_t> ids) {
  if (ids.empty()) co_return;
  const bool partial = known_->has("partial");
  const std::string target = zeusd::target_of(route, ids, partial);
  const auto answer = co_await connection_.get(target, std::chrono::seconds(5));
  if (!answer || answer->status != 200) co_return;
  std::vector<Reading> readings(ids.size() * zeusd::slots_of(route));
  if (zeusd::parse_answer(route, answer->body, ids, readings) != Errc::ok) co_return;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Device& device = (route == Route::cpu_energy ? cpus_ : gpus_)[ids[i]];
    const std::size_t first = i * zeusd::slots_of(route);
    if (readings[first].error == Errc::ok) device.counter.read(readings[first].raw);
    if (route != Route::cpu_energy || readings[first + 1].error != Errc::ok) continue;
    device.dram.read(readings[first + 1].raw);
  }
}

StreamFollower::Health FleetHost::health() const {
  auto gpu = gpu_stream_->health();
  if (connected(gpu.state) || !cpu_stream_) return gpu;
  auto cpu = cpu_stream_->health();
  return connected(cpu.state) ? cpu : gpu;
}

bool FleetHost::reached() const { return known_.has_value(); }

std::vector<FleetHost::Row> FleetHost::rows() const {
  std::vector<Row> out;
  const auto add = [&](Kind kind, const Devices& devices, const StreamFollower* stream,
                       double scale) {
    const bool now = stream != nullptr && connected(stream->health().state);
    for (const auto& [id, device] : devices) {
      Row row{.kind = kind, .id = id};
      if (now) row.power_w = device.power_w;
      if (const auto own = device.counter.total()) {
        row.energy_j = static_cast<double>(*own + device.dram.total().value_or(0)) * scale;
      }
      row.reset = device.counter.reset() || device.dram.reset();
      out.push_back(row);
    }
  };
  add(Kind::gpu, gpus_, gpu_stream_.get(), 1e-3);
  add(Kind::cpu, cpus_, cpu_stream_.get(), 1e-6);
  return out;
}

}  // namespace zeus::cli
