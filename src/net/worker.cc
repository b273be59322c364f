#include "net/worker.h"

#include <fmt/format.h>
#include <time.h>

#include <utility>

namespace zeus::net {
namespace {

using std::chrono::steady_clock;

Seconds steady_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now().time_since_epoch())
      .count();
}

/// "date: Mon, 30 Nov 2026 16:13:47 GMT\r\n", whatever the locale.
std::string date_line() {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  ::gmtime_r(&now, &t);
  return fmt::format("date: {}, {:02} {} {} {:02}:{:02}:{:02} GMT\r\n", kDays[t.tm_wday], t.tm_mday,
                     kMonths[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

std::chrono::nanoseconds thread_time() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

}  // namespace

void Worker::tick() {
  ticker.expires_after(std::chrono::seconds(1));
  ticker.async_wait([this](boost::system::error_code ec) {
    if (!ec) tick();
  });
  now = steady_seconds();
  date = date_line();
  std::size_t active = 0;
  for (auto it = connections.begin(); it != connections.end();) {
    Tracked& c = *it++;  // It may leave the list.
    active += std::exchange(c.active, false);
    if (c.deadline < now) c.expire(now);
  }
  gauge(active);
}

/// What counts is the time of the processor: where others hold that, one more thread of ours would
/// only be one more to wait for it.
void Worker::gauge(std::size_t active) {
  const auto used = thread_time();
  const auto at = steady_clock::now();
  busy = std::chrono::duration<double>(used - used_) >
         std::chrono::duration<double>(at - ticked_) * options.busy;
  used_ = used;
  ticked_ = at;
  // A quarter of those who ask at a time, so that the load settles and does not swing.
  to_give = busy && active > 1 ? (active + 3) / 4 : 0;
}

void Worker::run() {
  while (true) {
    try {
      context.run();
      return;
    } catch (const std::exception&) {
      // Memory or descriptors were short: whatever needed them is gone, and the others go on.
    }
  }
}

}  // namespace zeus::net
