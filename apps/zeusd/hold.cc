#include "hold.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "device/backend.h"

namespace zeus::zeusd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

/// What is under way in a driver has this long to end.
constexpr seconds kPatience(5);

Outcome failed(const Error& e) { return {status_of(e.code), e.detail}; }

}  // namespace

Hold::Hold(const Node& node, Readers& readers, Control& control, const Leases& leases,
           std::function<void(const Audit&)> audit)
    : drivers_(node.machine().drivers),
      feeds_(node.gpu_feeds()),
      readers_(readers),
      control_(control),
      leases_(leases),
      audit_(std::move(audit)) {}

Hold::~Hold() { stop(kPatience); }

void Hold::release(seconds length, std::string who, Done done) {
  post({length, std::move(who), std::move(done)});
}

void Hold::acquire(std::string who, Done done) { post({{}, std::move(who), std::move(done)}); }

void Hold::post(Order order) {
  std::unique_lock lock(mutex_);
  if (!stopping_ && !running_) {
    try {
      thread_ = std::thread([this] { run(); });
      running_ = true;
    } catch (const std::system_error&) {
      // No thread is to be had just now, which is said below.
    }
  }
  if (!running_ || stopping_) {
    lock.unlock();
    return order.done({503, "the daemon is stopping, or has no thread left for this"});
  }
  orders_.push_back(std::move(order));
  wake_.notify_one();
}

void Hold::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto called = [this] { return stopping_ || !orders_.empty(); };
    if (!away_) {
      wake_.wait(lock, called);
    } else {
      wake_.wait_until(lock, until_, called);
    }
    Order order{{}, "zeusd", {}};  // The time is over.
    if (!orders_.empty()) {
      order = std::move(orders_.front());
      orders_.pop_front();
    } else if (stopping_) {
      break;
    }
    const bool refuse = stopping_;
    lock.unlock();
    const Outcome outcome = refuse ? Outcome{503, "the daemon is stopping"} : carry_out(order);
    if (order.done) order.done(outcome);
    lock.lock();
  }
  running_ = false;
  ended_.notify_all();
}

Outcome Hold::carry_out(const Order& order) {
  Audit audit{order.who, "all", order.length ? "release" : "acquire", {}, {}, {}, {}};
  audit.outcome = order.length ? let_go(*order.length) : take();
  if (order.length && audit.outcome.status == 200) audit.to = until();
  if (audit_) audit_(audit);
  return audit.outcome;
}

Outcome Hold::let_go(seconds length) {
  if (drivers_.empty()) return {400, "there is no GPU here whose driver could be let go of"};
  if (away_) {
    set_until(length);
    return {};
  }
  set_until(length);
  const auto give_up = [this](Outcome why) {
    go_on();
    return why;
  };
  // First what writes, then what reads: nothing is in a driver when it is closed.
  if (!control_.pause(words(), kPatience)) {
    return give_up({409, "a write to a GPU does not end; nothing was let go of"});
  }
  for (const Leases::Info& lease : leases_.list()) {
    if (lease.gpus.empty()) continue;
    return give_up(
        {409, fmt::format("GPU {} is set under a lease of {}{}; end that first, so that its former "
                          "value is put back",
                          *lease.gpus.begin(), lease.who.empty() ? "nobody by name" : lease.who,
                          lease.pid == 0 ? "" : fmt::format(" (pid {})", lease.pid))});
  }
  away_ = true;
  if (!readers_.pause(feeds_, kPatience)) {
    return give_up({409, "a reading of a GPU does not end; nothing was let go of"});
  }
  for (Driver* const driver : drivers_) {
    const auto released = driver->release();
    if (released) continue;
    for (Driver* const d : drivers_) (void)d->acquire();
    return give_up(failed(released.error()));
  }
  return {};
}

Outcome Hold::take() {
  if (!away_) return {};
  Outcome outcome;
  for (Driver* const driver : drivers_) {
    const auto taken = driver->acquire();
    if (!taken) outcome = {500, taken.error().detail + "; it is tried again with every reading"};
  }
  go_on();
  return outcome;
}

void Hold::set_until(seconds length) {
  const std::lock_guard lock(mutex_);
  until_ = SteadyClock::now() + length;
  wall_ = std::chrono::system_clock::now() + length;
}

void Hold::go_on() {
  readers_.resume(feeds_);
  control_.resume();
  away_ = false;
}

std::string Hold::until() const {
  const std::lock_guard lock(mutex_);
  return fmt::format("until {:%FT%TZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(wall_)));
}

std::string Hold::words() const {
  return "the GPUs are let go of " + until() +
         ", so that their driver can be reset; POST /gpu/acquire ends that sooner";
}

std::optional<std::int64_t> Hold::until_ms() const {
  if (!away_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return std::chrono::duration_cast<milliseconds>(wall_.time_since_epoch()).count();
}

std::optional<zeus::net::Response> Hold::refusal() const {
  if (!away_) return std::nullopt;
  auto response = zeus::net::refusal(503, words());
  const std::lock_guard lock(mutex_);
  const auto left = std::chrono::ceil<seconds>(until_ - SteadyClock::now()).count();
  response.headers = fmt::format("retry-after: {}\r\n", std::max<std::int64_t>(left, 1));
  return response;
}

bool Hold::stop(milliseconds limit) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
  const bool ended = ended_.wait_for(lock, limit, [this] { return !running_; });
  lock.unlock();
  if (!thread_.joinable()) return true;
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
  return ended;
}

}  // namespace zeus::zeusd
