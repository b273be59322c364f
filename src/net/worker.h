#pragma once

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "net/asio.h"
#include "net/peer.h"
#include "net/server.h"

namespace zeus::net {

/// Seconds of the steady clock, as coarse as deadlines of connections need them.
using Seconds = std::int64_t;

/// What a worker knows of one of its connections.
class Tracked : public boost::intrusive::list_base_hook<
                    boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  virtual ~Tracked() = default;
  virtual void expire(Seconds now) = 0;  ///< Its deadline has passed.
  virtual void finish() = 0;             ///< The server stops: ends when it can.
  virtual void cut() = 0;                ///< Now.

  Seconds deadline = 0;
  bool idle = true;     ///< Between requests.
  bool active = false;  ///< It has asked something since the last tick.
};
using TrackedList = boost::intrusive::list<Tracked, boost::intrusive::constant_time_size<false>>;

/// Counters that all workers share.
struct Counters {
  std::atomic<std::uint64_t> accepted{0}, refused{0}, open{0}, skipped{0};
};

/// A connection on its way to a worker.
struct Arrival {
  Fd fd;
  int family;
  Peer peer;
  Seats::Seat seat;
  std::shared_ptr<asio::ssl::context> tls;
  std::string read{};   ///< What an earlier worker has read of its next request.
  bool served = false;  ///< It has been answered before.
};

struct Worker;

/// All workers, as one of them sees them.
class Crew {
 public:
  virtual Worker* free() = 0;  ///< The first that keeps up; null where all are busy.
  virtual void hand_over(Arrival arrival, Worker& to) = 0;

 protected:
  ~Crew() = default;
};

struct Worker {
  Worker(const Server::Options& its_options, Handler& its_handler, Counters& its_counters,
         Crew& its_crew, std::size_t its_index)
      : options(its_options),
        handler(its_handler),
        counters(its_counters),
        crew(its_crew),
        index(its_index) {}

  const Server::Options& options;
  Handler& handler;
  Counters& counters;
  Crew& crew;
  const std::size_t index;
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  asio::steady_timer ticker{context};
  TrackedList connections;
  Seconds now = 0;
  std::string date;  ///< The header line, with its end.
  bool stopping = false;
  std::thread thread;

  std::atomic<bool> busy{false};  ///< For most of the last second: others are to help.
  std::size_t to_give = 0;        ///< Connections that it gives away before the next tick.

  void run();   ///< Serves until the loop is stopped.
  void tick();  ///< Every second: the clock, the date, and connections that waited too long.

 private:
  void gauge(std::size_t active);
  std::chrono::nanoseconds used_{};  ///< Of the processor, by its thread, at the last tick.
  std::chrono::steady_clock::time_point ticked_{};
};

}  // namespace zeus::net
