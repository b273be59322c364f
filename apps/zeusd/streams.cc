#include "streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "net/asio.h"

namespace zeus::zeusd {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

/// The wall clock at an instant of the steady one.
std::int64_t unix_ms(Instant at) {
  const auto age = SteadyClock::now() - at;
  const auto wall = std::chrono::system_clock::now() -
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(age);
  return std::chrono::duration_cast<milliseconds>(wall.time_since_epoch()).count();
}

Duration period_of(unsigned hz) {
  return std::chrono::nanoseconds(1'000'000'000 / std::max(hz, 1U));
}

}  // namespace

struct Streams::Topic {
  Topic(asio::io_context& context, std::size_t its_index) : timer(context), index(its_index) {}

  // Fixed.
  asio::steady_timer timer;
  const std::size_t index;
  bool gpu = true;
  unsigned id = 0;
  std::vector<Feed*> feeds{};
  Channel main{}, dram{};
  bool has_dram = false;
  bool guarded = false;  ///< Not for all subscribers are all values.
  Duration period{};
  bool always = false;

  std::atomic<int> subscribers{0}, slow_subscribers{0};
  std::atomic<bool> fresh{false};  ///< Somebody has just subscribed.

  // Of the first worker's thread.
  bool polling = false;
  Instant next{};
  /// What was sent last, and when.
  struct Sent {
    std::optional<std::uint64_t> value{}, dram{};  ///< In mW.
    Instant at{};
    bool again = false;  ///< Somebody has just come, who has not got it.

    /// Whether it is to be sent; then it is noted as sent.
    bool due(const std::optional<std::uint64_t>& v, const std::optional<std::uint64_t>& d,
             Instant now, milliseconds repeat) {
      if (!v || (v == value && d == dram && !again && now - at < repeat)) return false;
      *this = {v, d, now, false};
      return true;
    }
  } sent{}, sent_slow{};
  Value before{}, dram_before{};  ///< Of counters.
  Guard::Told told{};             ///< What slow subscribers know.

  std::optional<std::uint64_t> dram_mw(const Value& from, const Value& to) const {
    return has_dram ? power_mw(dram, from, to) : std::nullopt;
  }
  std::string event(std::int64_t ms, const Sent& what) const;
};

struct Streams::Desk {
  explicit Desk(asio::io_context& context, std::size_t topics) : timer(context), by_topic(topics) {}
  asio::steady_timer timer;
  std::vector<std::vector<Subscription*>> by_topic;
  std::vector<Subscription*> all;
  bool beating = false;

  void beat(milliseconds every);
};

class Streams::Subscription final : public zeus::net::Stream {
 public:
  Subscription(Streams& streams, Desk& desk, std::vector<Topic*> topics, bool slow)
      : streams_(streams), desk_(desk), topics_(std::move(topics)), slow_(slow) {}
  ~Subscription() override {
    if (sink_ == nullptr) return;
    std::erase(desk_.all, this);
    for (Topic* t : topics_) {
      std::erase(desk_.by_topic[t->index], this);
      --t->subscribers;
      if (slow_) --t->slow_subscribers;
    }
    --streams_.subscribers_;
  }

  void open(zeus::net::EventSink& sink) override {
    sink_ = &sink;
    ++streams_.subscribers_;
    desk_.all.push_back(this);
    for (Topic* t : topics_) {
      desk_.by_topic[t->index].push_back(this);
      ++t->subscribers;
      if (slow_) ++t->slow_subscribers;
      streams_.wake(*t);
    }
    if (!desk_.beating) {
      desk_.beating = true;
      desk_.beat(streams_.options_.beat);
    }
  }
  bool slow() const { return slow_; }
  void send(std::size_t topic, const std::shared_ptr<const std::string>& chunk) {
    quiet_ = false;
    sink_->send(static_cast<std::uint32_t>(topic), chunk);
  }
  /// Says that it lives, where nothing else was said since the last time.
  void beat(const std::shared_ptr<const std::string>& chunk) {
    if (std::exchange(quiet_, true)) sink_->send(~std::uint32_t{0}, chunk);
  }

 private:
  Streams& streams_;
  Desk& desk_;
  std::vector<Topic*> topics_;
  bool slow_, quiet_ = true;
  zeus::net::EventSink* sink_ = nullptr;
};

void Streams::Desk::beat(milliseconds every) {
  timer.expires_after(every);
  timer.async_wait([this, every](boost::system::error_code ec) {
    if (ec) return;
    beating = !all.empty();
    if (!beating) return;
    const auto chunk =
        zeus::net::chunk(fmt::format(": heartbeat {}\n\n", unix_ms(SteadyClock::now())));
    for (Subscription* s : all) s->beat(chunk);
    beat(every);
  });
}

Streams::Streams(const Node& node, Readers& readers, Guard& guard, zeus::net::Server& server,
                 Options options)
    : readers_(readers), guard_(guard), server_(server), options_(options) {
  asio::io_context& first = server_.context(0);
  const auto add = [&](bool gpu, unsigned id, const Channel& main, unsigned hz) -> Topic& {
    Topic& t = *topics_.emplace_back(std::make_unique<Topic>(first, topics_.size()));
    t.gpu = gpu;
    t.id = id;
    t.main = main;
    t.feeds = {main.feed};
    t.period = period_of(hz);
    t.always = options_.always;
    return t;
  };
  for (const Gpu& g : node.gpus()) {
    if (g.power) add(true, g.id, *g.power, options_.gpu_hz);
  }
  for (const Cpu& c : node.cpus()) {
    Topic& t = add(false, c.id, *c.package, options_.cpu_hz);
    t.guarded = c.guarded;
    if (!c.dram) continue;
    t.has_dram = true;
    t.dram = *c.dram;
    if (t.dram.feed != t.main.feed) t.feeds.push_back(t.dram.feed);
  }
  for (std::size_t i = 0; i < server_.workers(); ++i) {
    desks_.push_back(std::make_unique<Desk>(server_.context(i), topics_.size()));
  }
}

Streams::~Streams() = default;

std::size_t Streams::subscribers() const noexcept { return subscribers_.load(); }

std::unique_ptr<zeus::net::Stream> Streams::gpus(const std::vector<unsigned>& ids,
                                                 std::size_t worker) {
  std::vector<Topic*> topics;
  for (const auto& t : topics_) {
    if (t->gpu && std::find(ids.begin(), ids.end(), t->id) != ids.end()) topics.push_back(t.get());
  }
  return subscribe(std::move(topics), worker, false);
}

std::unique_ptr<zeus::net::Stream> Streams::cpus(const std::vector<unsigned>& ids,
                                                 std::size_t worker, bool slow) {
  std::vector<Topic*> topics;
  for (const auto& t : topics_) {
    if (!t->gpu && std::find(ids.begin(), ids.end(), t->id) != ids.end()) topics.push_back(t.get());
  }
  return subscribe(std::move(topics), worker, slow);
}

std::unique_ptr<zeus::net::Stream> Streams::subscribe(std::vector<Topic*> topics,
                                                      std::size_t worker, bool slow) {
  return std::make_unique<Subscription>(*this, *desks_[worker], std::move(topics), slow);
}

void Streams::start() {
  for (const auto& t : topics_) {
    if (t->always) wake(*t);
  }
}

void Streams::wake(Topic& topic) {
  if (topic.fresh.exchange(true)) return;
  asio::post(server_.context(0), [this, &topic] {
    if (std::exchange(topic.polling, true)) return;
    topic.next = SteadyClock::now();
    topic.sent = topic.sent_slow = {};
    topic.before = topic.dram_before = {};
    topic.told = {};
    poll(topic);
  });
}

void Streams::poll(Topic& topic) {
  readers_.submit(
      std::make_shared<ReadOp>(topic.feeds, [this, &topic](const std::shared_ptr<ReadOp>& op) {
        asio::post(server_.context(0), [this, &topic, op] { take(topic, *op); });
      }));
}

std::optional<std::uint64_t> power_mw(const Channel& channel, const Value& before,
                                      const Value& now) {
  if (!before.ok() || !now.ok() || now.at <= before.at || now.count < before.count) {
    return std::nullopt;
  }
  const double joules = static_cast<double>(now.count - before.count) * channel.info.scale;
  const double seconds = std::chrono::duration<double>(now.at - before.at).count();
  return static_cast<std::uint64_t>(joules / seconds * 1e3);
}

std::string Streams::Topic::event(std::int64_t ms, const Sent& what) const {
  if (gpu) {
    return fmt::format("data: {{\"timestamp_ms\":{},\"gpu_id\":{},\"power_mw\":{}}}\n\n", ms, id,
                       *what.value);
  }
  return fmt::format("data: {{\"timestamp_ms\":{},\"cpu_id\":{},\"cpu_mw\":{},\"dram_mw\":{}}}\n\n",
                     ms, id, *what.value,
                     what.dram ? fmt::to_string(*what.dram) : std::string("null"));
}

void Streams::take(Topic& topic, const ReadOp& op) {
  const Value now = op.value(topic.main.feed, topic.main.slot);
  const Instant at = SteadyClock::now();
  if (now.ok() && topic.fresh.exchange(false)) topic.sent.again = topic.sent_slow.again = true;
  if (topic.gpu) {
    const auto value = now.ok() ? std::optional(topic.main.on_wire(now)) : std::nullopt;
    if (topic.sent.due(value, std::nullopt, at, options_.repeat)) {
      publish(topic, topic.event(unix_ms(now.at), topic.sent), To::all);
    }
  } else {
    const Value other = topic.has_dram ? op.value(topic.dram.feed, topic.dram.slot) : Value{};
    if (topic.sent.due(power_mw(topic.main, topic.before, now),
                       topic.dram_mw(topic.dram_before, other), at, options_.repeat)) {
      publish(topic, topic.event(unix_ms(now.at), topic.sent), topic.guarded ? To::fast : To::all);
    }
    if (now.ok()) topic.before = now;
    if (other.ok()) topic.dram_before = other;
    if (topic.guarded && topic.slow_subscribers.load() > 0) {
      take_slow(topic, guard_.tell(topic.id, {now, other}, at), at);
    }
  }
  if (!topic.always && topic.subscribers.load() == 0) {
    topic.polling = false;
    topic.fresh = false;
    if (topic.subscribers.load() > 0) wake(topic);  // Who came just now.
    return;
  }
  topic.next += topic.period;
  const Instant late = SteadyClock::now();
  if (topic.next <= late) {
    const auto missed = (late - topic.next) / topic.period + 1;
    missed_ += static_cast<std::uint64_t>(missed);
    topic.next += missed * topic.period;
  }
  topic.timer.expires_at(topic.next);
  topic.timer.async_wait([this, &topic](boost::system::error_code ec) {
    if (!ec) poll(topic);
  });
}

void Streams::take_slow(Topic& topic, const Guard::Told& told, Instant at) {
  if (topic.sent_slow.due(power_mw(topic.main, topic.told.package, told.package),
                          topic.dram_mw(topic.told.dram, told.dram), at, options_.repeat)) {
    publish(topic, topic.event(unix_ms(told.package.at), topic.sent_slow), To::slow);
  }
  if (told.package.ok()) topic.told.package = told.package;
  if (told.dram.ok()) topic.told.dram = told.dram;
}

void Streams::publish(Topic& topic, std::string text, To whom) {
  if (topic.subscribers.load() == 0) return;
  const auto chunk = zeus::net::chunk(text);
  for (std::size_t i = 0; i < desks_.size(); ++i) {
    asio::post(server_.context(i), [&desk = *desks_[i], &topic, chunk, whom] {
      // A sink that fails here ends its connection, and with it the subscription, a little later.
      for (Subscription* s : desk.by_topic[topic.index]) {
        if (whom == To::all || s->slow() == (whom == To::slow)) s->send(topic.index, chunk);
      }
    });
  }
}

}  // namespace zeus::zeusd
