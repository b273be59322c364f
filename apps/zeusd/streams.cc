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

constexpr milliseconds kSlowPeriod(100);

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
  bool guarded = false;  ///< At most ten values a second for some.
  Duration period{};
  bool always = false;

  std::atomic<int> subscribers{0};
  std::atomic<bool> fresh{false};  ///< Somebody has just subscribed.

  // Of the first worker's thread.
  bool polling = false;
  bool slow_wait = false;  ///< Of some that are slow: for a value that others have, or a first one.
  Instant next{}, sent{}, sent_slow{};
  std::optional<std::uint64_t> value{}, dram_value{};  ///< As sent last, in mW.
  Value before{}, dram_before{};                       ///< Of counters.
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

Streams::Streams(const Node& node, Readers& readers, zeus::net::Server& server, Options options)
    : readers_(readers), server_(server), options_(options) {
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
    topic.value.reset();
    topic.dram_value.reset();
    topic.before = {};
    topic.dram_before = {};
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

void Streams::take(Topic& topic, const ReadOp& op) {
  const Value now = op.value(topic.main.feed, topic.main.slot);
  std::optional<std::uint64_t> value, dram;
  if (topic.gpu) {
    if (now.ok()) value = topic.main.on_wire(now);
  } else {
    value = power_mw(topic.main, topic.before, now);
    if (now.ok()) topic.before = now;
    if (topic.has_dram) {
      const Value other = op.value(topic.dram.feed, topic.dram.slot);
      dram = power_mw(topic.dram, topic.dram_before, other);
      if (other.ok()) topic.dram_before = other;
    }
  }
  if (value) {
    const Instant at = SteadyClock::now();
    const bool fresh = topic.fresh.exchange(false);
    const bool due = fresh || at - topic.sent >= options_.repeat;
    topic.slow_wait |= fresh;
    // Whoever may have ten values a second gets no more by subscribing again and again.
    const bool everybody = !topic.guarded || at - topic.sent_slow >= kSlowPeriod;
    if (due || value != topic.value || dram != topic.dram_value || (topic.slow_wait && everybody)) {
      const auto ms = unix_ms(now.at);
      if (everybody) topic.sent_slow = at;
      topic.slow_wait = !everybody;
      topic.sent = at;
      topic.value = value;
      topic.dram_value = dram;
      publish(topic,
              topic.gpu ? fmt::format("data: {{\"timestamp_ms\":{},\"gpu_id\":{},\"power_mw\":{}}}"
                                      "\n\n",
                                      ms, topic.id, *value)
                        : fmt::format("data: {{\"timestamp_ms\":{},\"cpu_id\":{},\"cpu_mw\":{},"
                                      "\"dram_mw\":{}}}\n\n",
                                      ms, topic.id, *value,
                                      dram ? fmt::to_string(*dram) : std::string("null")),
              everybody);
    }
  }
  if (!topic.always && topic.subscribers.load() == 0) {
    topic.polling = false;
    topic.fresh = false;
    if (topic.subscribers.load() > 0) wake(topic);  // Who came just now.
    return;
  }
  topic.next += topic.period;
  const Instant at = SteadyClock::now();
  if (topic.next <= at) {
    const auto missed = (at - topic.next) / topic.period + 1;
    missed_ += static_cast<std::uint64_t>(missed);
    topic.next += missed * topic.period;
  }
  topic.timer.expires_at(topic.next);
  topic.timer.async_wait([this, &topic](boost::system::error_code ec) {
    if (!ec) poll(topic);
  });
}

void Streams::publish(Topic& topic, std::string text, bool everybody) {
  if (topic.subscribers.load() == 0) return;
  const auto chunk = zeus::net::chunk(text);
  for (std::size_t i = 0; i < desks_.size(); ++i) {
    asio::post(server_.context(i), [&desk = *desks_[i], &topic, chunk, everybody] {
      // A sink that fails here ends its connection, and with it the subscription, a little later.
      for (Subscription* s : desk.by_topic[topic.index]) {
        if (everybody || !s->slow()) s->send(topic.index, chunk);
      }
    });
  }
}

}  // namespace zeus::zeusd
