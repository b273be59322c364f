#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/zeusd/answers.h"
#include "net/async_connection.h"
#include "net/stream_client.h"

namespace zeus::cli {

/// A counter of energy that is read now and then. What it counted while nobody could read it is
/// known once it can be read again; a fall means that it began anew, and only that stretch is lost.
class Joules {
 public:
  void read(std::uint64_t raw) noexcept {
    if (last_ && raw >= *last_) total_ += raw - *last_;
    if (last_ && raw < *last_) reset_ = true;
    last_ = raw;
  }
  /// Another device has its place now.
  void forget() noexcept { last_.reset(); }
  std::optional<std::uint64_t> total() const noexcept {
    return last_ ? std::optional(total_) : std::nullopt;
  }
  bool reset() const noexcept { return reset_; }

 private:
  std::optional<std::uint64_t> last_;
  std::uint64_t total_ = 0;
  bool reset_ = false;
};

/// One daemon of a fleet: its streams of power, and its counters of energy, which are asked for
/// once an interval on a connection of their own. Lives on the thread of its io_context.
class FleetHost : public std::enable_shared_from_this<FleetHost> {
 public:
  /// What is known of a device; NaN and nothing where it is not.
  struct Row {
    DeviceInfo::Kind kind{};
    std::uint16_t id = 0;
    double power_w = std::numeric_limits<double>::quiet_NaN();
    std::optional<double> energy_j{};
    bool reset = false;  ///< Its counter began anew meanwhile: some energy is missing.
  };

  FleetHost(net::asio::io_context& io, const net::Endpoint& endpoint, std::string token,
            Duration interval);
  void start();
  void stop();

  std::string name() const { return endpoint_.text(); }
  /// Of the stream of GPUs, or of CPUs where the daemon serves those alone.
  net::StreamFollower::Health health() const;
  bool reached() const;
  /// GPUs, then CPUs, their DRAM included. Powers are of now: there is none of a daemon that is
  /// gone.
  std::vector<Row> rows() const;

 private:
  struct Device {
    Joules counter, dram;
    double power_w = std::numeric_limits<double>::quiet_NaN();
  };
  using Devices = std::map<std::uint16_t, Device>;

  std::unique_ptr<net::StreamFollower> follow(DeviceInfo::Kind kind);
  void learn(const net::Discovery& discovery);
  net::asio::awaitable<void> count(std::shared_ptr<FleetHost> alive);
  net::asio::awaitable<void> read(zeusd::Route route, std::vector<std::uint16_t> ids);

  net::asio::io_context& io_;
  net::Endpoint endpoint_;
  std::string token_;
  Duration interval_;
  net::AsyncConnection connection_;
  net::asio::steady_timer pause_;
  std::unique_ptr<net::StreamFollower> gpu_stream_, cpu_stream_;
  std::optional<net::Discovery> known_;
  Devices gpus_, cpus_;
  bool over_ = false;
};

}  // namespace zeus::cli
