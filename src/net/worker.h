#pragma once

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "net/asio.h"
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
  bool idle = true;  ///< Between requests.
};
using TrackedList = boost::intrusive::list<Tracked, boost::intrusive::constant_time_size<false>>;

/// Counters that all workers share.
struct Counters {
  std::atomic<std::uint64_t> accepted{0}, refused{0}, open{0}, skipped{0};
};

struct Worker {
  Worker(const Server::Options& its_options, Handler& its_handler, Counters& its_counters,
         std::size_t its_index)
      : options(its_options), handler(its_handler), counters(its_counters), index(its_index) {}

  const Server::Options& options;
  Handler& handler;
  Counters& counters;
  const std::size_t index;
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  asio::steady_timer ticker{context};
  TrackedList connections;
  Seconds now = 0;
  std::string date;  ///< The header line, with its end.
  bool stopping = false;
  std::thread thread;

  void tick();  ///< Every second: the clock, the date, and connections that waited too long.
};

}  // namespace zeus::net
