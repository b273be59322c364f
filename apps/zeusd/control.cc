#include "control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "device/backend.h"

namespace zeus::zeusd {
namespace {

constexpr double kWattPerMw = 1e-3, kHertzPerMhz = 1e6;

Outcome outcome_of(const Status& done) {
  if (done) return {};
  const Error& e = done.error();
  return {status_of(e.code), e.code == Errc::invalid ? "Invalid request: " + e.detail : e.detail};
}

unsigned mhz(double hertz) { return static_cast<unsigned>(std::lround(hertz / kHertzPerMhz)); }
std::uint32_t mw(double watts) {
  return static_cast<std::uint32_t>(std::lround(watts / kWattPerMw));
}

/// "250000 mW", "210-1980 MHz", "unlocked", "on".
std::string words(const KnobInfo& knob, const Setting& s) {
  switch (knob.quantity) {
    case Quantity::power: return fmt::format("{} mW", mw(s.low));
    case Quantity::clock:
      return s.high == 0 ? "unlocked" : fmt::format("{}-{} MHz", mhz(s.low), mhz(s.high));
    default: return s.low != 0 ? "on" : "off";
  }
}

/// A knob whose value is read from the driver and set by the administrator's command.
class OverriddenKnob final : public Knob {
 public:
  OverriddenKnob(const KnobInfo& info, unsigned gpu, const DeviceInfo& device,
                 const Live<Overrides>& overrides, const std::atomic<bool>& abort)
      : native_(info.knob), name_(info.name), overrides_(overrides), abort_(abort) {
    values_.gpu_id = gpu;
    values_.uuid = device.id;
    values_.pci = device.pci;
  }

  Result<Setting> get() override {
    if (const auto now = native_->get(); !now || now->high != 0 || !is_clock()) return now;
    const std::lock_guard lock(mutex_);
    return set_;  // Drivers do not say where clocks are locked.
  }
  Status set(Setting to) override {
    const auto operation = operation_of(to);
    const auto overrides = overrides_.get();
    if (!overrides->has(operation)) return native_->set(to);
    OverrideValues values = values_;
    values.power_limit_mw = mw(to.low);
    values.min_clock_mhz = mhz(to.low);
    values.max_clock_mhz = mhz(to.high);
    values.enabled = to.low != 0;
    auto done = overrides->run(operation, values, abort_);
    if (done) {
      const std::lock_guard lock(mutex_);
      set_ = to;
    }
    return done;
  }

 private:
  bool is_clock() const { return name_ == "sm_clock" || name_ == "memory_clock"; }
  Operation operation_of(const Setting& to) const {
    if (name_ == "power_limit") return Operation::set_power_limit;
    if (name_ == "persistence") return Operation::set_persistence_mode;
    if (name_ == "sm_clock") {
      return to.high == 0 ? Operation::reset_gpu_locked_clocks : Operation::set_gpu_locked_clocks;
    }
    return to.high == 0 ? Operation::reset_mem_locked_clocks : Operation::set_mem_locked_clocks;
  }

  Knob* native_;
  std::string name_;
  const Live<Overrides>& overrides_;
  const std::atomic<bool>& abort_;
  OverrideValues values_{};
  std::mutex mutex_;
  Setting set_{};
};

/// Says the range in the words of the wire, before anything is tried.
Status check(const Gpu& gpu, const KnobInfo& knob, const Setting& to) {
  if (to == Setting(knob.standard) ||
      (to.low >= knob.min && to.high <= knob.max && to.low <= to.high)) {
    return ok();
  }
  if (knob.quantity == Quantity::power) {
    return Error{Errc::invalid, 0,
                 fmt::format("power limit {} mW of GPU {} is out of range {}-{} mW", mw(to.low),
                             gpu.id, mw(knob.min), mw(knob.max))};
  }
  return Error{Errc::invalid, 0,
               fmt::format("clocks {}-{} MHz of GPU {} are out of range {}-{} MHz", mhz(to.low),
                           mhz(to.high), gpu.id, mhz(knob.min), mhz(knob.max))};
}

}  // namespace

unsigned status_of(Errc code) noexcept {
  switch (code) {
    case Errc::ok: return 200;
    case Errc::invalid:
    case Errc::unsupported: return 400;
    case Errc::denied: return 403;
    case Errc::busy: return 409;
    default: return 500;
  }
}

Control::Control(const Node& node, Leases& leases, Options options)
    : node_(node), leases_(leases), options_(std::move(options)), machine_(node.machine()) {
  for (const Gpu& gpu : node.gpus()) {
    auto& lane = *lanes_.emplace_back(std::make_unique<Lane>());
    lane.gpu = &gpu;
    if (options_.overrides == nullptr) continue;
    for (Device& d : machine_.devices) {
      if (d.info.id != gpu.device->info.id) continue;
      for (KnobInfo& k : d.knobs) {
        auto knob =
            std::make_shared<OverriddenKnob>(k, gpu.id, d.info, *options_.overrides, lane.abort);
        k.knob = knob.get();
        machine_.owned.push_back(std::move(knob));
      }
    }
  }
}

Control::~Control() { stop(std::chrono::milliseconds(0)); }

Control::Lane* Control::lane(unsigned gpu) {
  const auto it = std::find_if(lanes_.begin(), lanes_.end(),
                               [gpu](const auto& l) { return l->gpu->id == gpu; });
  return it == lanes_.end() ? nullptr : it->get();
}

std::vector<Problem> Control::recover() {
  std::vector<Problem> problems;
  const auto deadline = Leases::Clock::now() + options_.adoption;
  for (const Orphan& orphan : orphans(options_.journal)) {
    if (Leases::id_of(orphan.owner).empty()) continue;
    for (const auto& lane : lanes_) {
      if (lane->gpu->device->info.id != orphan.device) continue;
      auto lease = zeus::Lease::adopt(machine_, orphan.device, orphan.knob, options_.journal);
      if (!lease) {
        problems.push_back({orphan.device, lease.error()});
        continue;
      }
      Setting now = orphan.former;
      for (const KnobInfo& k : lane->gpu->device->knobs) {
        const auto read = k.name == orphan.knob ? k.knob->get() : Result<Setting>(now);
        if (read) now = *read;
      }
      lane->held.emplace(orphan.knob, Held{std::move(*lease), Leases::id_of(orphan.owner), now});
      leases_.adopt(orphan.owner, lane->gpu->id, deadline);
    }
  }
  for (Problem& p : restore_orphans(machine_, options_.journal)) problems.push_back(std::move(p));
  return problems;
}

void Control::settle_strays() {
  for (const auto& l : lanes_) {
    const std::lock_guard lock(l->mutex);
    if (!l->running && !(l->urgent.empty() && l->queue.empty())) start(*l);
  }
  for (const Orphan& orphan : orphans(options_.journal)) {
    for (const auto& l : lanes_) {
      if (l->gpu->device->info.id != orphan.device) continue;
      // One at a time: a GPU may hang, or be gone for good.
      if (l->settling.exchange(true)) continue;
      post(
          *l,
          [this, &lane = *l, orphan](bool) {
            settle(lane, orphan);
            lane.settling = false;
          },
          true);
    }
  }
}

void Control::settle(Lane& lane, const Orphan& orphan) {
  auto lease = zeus::Lease::adopt(machine_, orphan.device, orphan.knob, options_.journal);
  if (!lease) return;  // Somebody was quicker.
  Audit audit{"zeusd", orphan.device, "restore " + orphan.knob, {}, {}, {}, {}};
  for (const KnobInfo& k : lane.gpu->device->knobs) {
    if (k.name == orphan.knob) audit.to = words(k, orphan.former);
  }
  audit.outcome = outcome_of(lease->release());
  if (audit.outcome.status == 200) ++restored_;
  // Where this fails it is tried again, every few seconds: that is told once.
  if (audit.outcome.status != 200 && std::exchange(lane.told, true)) return;
  lane.told = audit.outcome.status != 200;
  if (options_.audit) options_.audit(audit);
}

void Control::post(Lane& lane, std::function<void(bool)> job, bool urgent) {
  const std::lock_guard lock(lane.mutex);
  push(lane, std::move(job), urgent);
}

void Control::push(Lane& lane, std::function<void(bool)> job, bool urgent) {
  if (lane.ended) return job(true);
  (urgent ? lane.urgent : lane.queue).push_back(std::move(job));
  if (!lane.running) start(lane);
  lane.wake.notify_one();
}

void Control::start(Lane& lane) {
  try {
    lane.thread = std::thread([this, &lane] { run(lane); });
    lane.running = true;
  } catch (const std::system_error&) {
    // No thread is to be had just now: settle_strays() asks again.
  }
}

void Control::run(Lane& lane) {
  std::unique_lock lock(lane.mutex);
  while (true) {
    lane.wake.wait(
        lock, [&lane] { return lane.stopping || !lane.urgent.empty() || !lane.queue.empty(); });
    if (lane.urgent.empty() && lane.queue.empty()) break;
    auto& from = lane.urgent.empty() ? lane.queue : lane.urgent;
    const bool refuse = lane.stopping && lane.urgent.empty();
    lane.busy = true;
    lane.writing = lane.urgent.empty() && !refuse;
    const auto job = std::move(from.front());
    from.pop_front();
    lock.unlock();
    job(refuse);
    lock.lock();
    lane.busy = lane.writing = lane.abort = false;
    lane.quiet.notify_all();
  }
  lock.unlock();
  for (auto& [knob, held] : lane.held) (void)held.lease.release();
  lane.held.clear();
  lock.lock();
  lane.ended = true;
  lane.wake.notify_all();
}

Outcome Control::submit(unsigned gpu, Write write, std::function<void(Outcome)> done) {
  const Outcome stopping{503, "the daemon is stopping"};
  Lane* const l = lane(gpu);
  const std::lock_guard lock(l->mutex);
  if (l->stopping) return stopping;
  if (!l->paused.empty()) return {503, l->paused};
  if (l->queue.size() >= kQueue) {
    return {429, fmt::format("the queue of GPU {} is full; try again later", gpu)};
  }
  push(
      *l,
      [this, l, stopping, write = std::move(write), done = std::move(done)](bool refuse) {
        done(refuse ? stopping : execute(*l, write));
      },
      false);
  return {};
}

bool Control::pause(const std::string& why, std::chrono::milliseconds limit) {
  for (const auto& l : lanes_) {
    const std::lock_guard lock(l->mutex);
    l->paused = why;
  }
  const auto until = std::chrono::steady_clock::now() + limit;
  return std::all_of(lanes_.begin(), lanes_.end(), [until](const auto& l) {
    std::unique_lock lock(l->mutex);
    return l->quiet.wait_until(lock, until,
                               [&l] { return !l->busy && l->urgent.empty() && l->queue.empty(); });
  });
}

void Control::resume() {
  for (const auto& l : lanes_) {
    const std::lock_guard lock(l->mutex);
    l->paused.clear();
  }
}

Outcome Control::execute(Lane& lane, const Write& write) {
  const Gpu& gpu = *lane.gpu;
  if (options_.ready) {
    if (const auto ready = options_.ready(); !ready) return {503, ready.error().detail};
  }
  Audit audit{
      write.who, gpu.device->info.id, std::string(to_string(write.operation)), {}, {}, write.lease,
      {}};
  const Setting clocks(write.min_clock_mhz * kHertzPerMhz, write.max_clock_mhz * kHertzPerMhz);
  switch (write.operation) {
    case Operation::set_power_limit:
      audit.outcome = turn(lane, write, gpu.power_limit, write.power_limit_mw * kWattPerMw, audit);
      break;
    case Operation::set_persistence_mode:
      audit.outcome = turn(lane, write, gpu.persistence, write.enabled ? 1 : 0, audit);
      break;
    case Operation::set_gpu_locked_clocks:
      audit.outcome = turn(lane, write, gpu.sm_clock, clocks, audit);
      break;
    case Operation::set_mem_locked_clocks:
      audit.outcome = turn(lane, write, gpu.memory_clock, clocks, audit);
      break;
    case Operation::reset_gpu_locked_clocks:
      audit.outcome = turn(lane, write, gpu.sm_clock, 0, audit);
      break;
    case Operation::reset_mem_locked_clocks:
      audit.outcome = turn(lane, write, gpu.memory_clock, 0, audit);
      break;
    case Operation::reset_locked_clocks: audit.outcome = reset_clocks(lane, write, audit); break;
  }
  if (options_.audit) options_.audit(audit);
  return audit.outcome;
}

Outcome Control::turn(Lane& lane, const Write& write, const KnobInfo* knob, Setting to,
                      Audit& audit) {
  if (knob == nullptr && lane.gpu->device->info.lost) {
    return {500,
            fmt::format("GPU {} is lost: it did not answer when the daemon began", lane.gpu->id)};
  }
  if (knob == nullptr) {
    return {400, fmt::format("GPU {} cannot do this: its driver offers no such knob, or not to "
                             "this daemon",
                             lane.gpu->id)};
  }
  audit.to = words(*knob, to);
  if (const auto fits = check(*lane.gpu, *knob, to); !fits) return outcome_of(fits);
  const auto held = lane.held.find(knob->name);
  if (held != lane.held.end()) {
    audit.from = words(*knob, held->second.setting);
    if (held->second.id != write.lease) {
      return {409, fmt::format("{} of GPU {} is held by the lease of another client until that "
                               "ends",
                               knob->name, lane.gpu->id)};
    }
    const auto turned = held->second.lease.turn(to);
    if (turned) held->second.setting = to;
    return outcome_of(turned);
  }
  // Who touches a GPU first is told of by ended() afterwards: what is turned now is put back then.
  if (!write.lease.empty() && !leases_.touch(write.lease, lane.gpu->id)) {
    return {409, "the lease has ended meanwhile; nothing was changed"};
  }
  auto lease = take(lane, *knob, to, leases_.owner(write.lease));
  if (!lease) return outcome_of(lease.error());
  audit.from = words(*knob, lease->former());
  if (write.lease.empty()) {
    if (auto kept = lease->keep(); !kept) return outcome_of(kept);
  } else {
    lane.held.emplace(knob->name, Held{std::move(*lease), write.lease, to});
  }
  return {};
}

Result<zeus::Lease> Control::take(Lane& lane, const KnobInfo& knob, Setting to,
                                  std::string_view owner) {
  constexpr int kTries = 4;
  for (int i = 1;; ++i) {
    auto lease = zeus::Lease::take(machine_, lane.gpu->device->info.id, knob.name, to,
                                   options_.journal, owner);
    // Whoever looks through the journals holds each for a moment.
    if (lease || lease.error().code != Errc::busy || i == kTries) return lease;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Both, the second even where the first fails; the first error is reported.
Outcome Control::reset_clocks(Lane& lane, const Write& write, Audit& audit) {
  const Gpu& gpu = *lane.gpu;
  const auto overrides = options_.overrides != nullptr ? options_.overrides->get() : nullptr;
  if (overrides != nullptr && overrides->has(Operation::reset_locked_clocks)) {
    for (const char* name : {"sm_clock", "memory_clock"}) {
      const auto held = lane.held.find(name);
      if (held != lane.held.end() && held->second.id != write.lease) {
        return {409,
                fmt::format("{} of GPU {} is held by the lease of another client", name, gpu.id)};
      }
    }
    OverrideValues values{};
    values.gpu_id = gpu.id;
    values.uuid = gpu.device->info.id;
    values.pci = gpu.pci;
    return outcome_of(overrides->run(Operation::reset_locked_clocks, values, lane.abort));
  }
  if (gpu.sm_clock == nullptr && gpu.memory_clock == nullptr) {
    return turn(lane, write, nullptr, 0, audit);
  }
  Outcome first;
  for (const KnobInfo* knob : {gpu.sm_clock, gpu.memory_clock}) {
    if (knob == nullptr) continue;
    const Outcome o = turn(lane, write, knob, 0, audit);
    if (first.status == 200) first = o;
  }
  return first;
}

Outcome Control::put_back(Lane& lane, const std::string& lease) {
  Outcome worst;
  for (auto it = lane.held.begin(); it != lane.held.end();) {
    if (it->second.id != lease) {
      ++it;
      continue;
    }
    const KnobInfo* knob = nullptr;
    for (const KnobInfo& k : lane.gpu->device->knobs) {
      if (k.name == it->first) knob = &k;
    }
    Audit audit{"zeusd", lane.gpu->device->info.id, "restore " + it->first, {}, {}, lease, {}};
    if (knob != nullptr) {
      audit.from = words(*knob, it->second.setting);
      audit.to = words(*knob, it->second.lease.former());
    }
    // Where this fails the journal stays, and settle_strays() tries again.
    audit.outcome = outcome_of(it->second.lease.release());
    if (options_.audit) options_.audit(audit);
    if (audit.outcome.status > worst.status) worst = audit.outcome;
    it = lane.held.erase(it);
  }
  return worst;
}

void Control::ended(const std::string& lease, const std::set<unsigned>& gpus,
                    std::function<void(std::vector<Outcome>)> done) {
  struct Join {
    std::mutex mutex;
    std::vector<Outcome> outcomes;
    std::size_t left = 0;
    std::function<void(std::vector<Outcome>)> done;
  };
  auto join = std::make_shared<Join>();
  join->left = gpus.size();
  join->done = std::move(done);
  if (gpus.empty() && join->done) join->done({});
  for (const unsigned gpu : gpus) {
    Lane* const l = lane(gpu);
    post(
        *l,
        [this, l, lease, join](bool) {
          Outcome outcome = put_back(*l, lease);
          std::vector<Outcome> all;
          {
            const std::lock_guard lock(join->mutex);
            join->outcomes.push_back(std::move(outcome));
            if (--join->left > 0) return;
            all = std::move(join->outcomes);
          }
          if (join->done) join->done(std::move(all));
        },
        true);
  }
}

void Control::abandoned(const std::string& lease, const std::set<unsigned>& gpus) {
  if (gpus.empty()) return;  // It never set anything.
  ended(lease, gpus, [this](const std::vector<Outcome>& outcomes) {
    const bool all = std::all_of(outcomes.begin(), outcomes.end(),
                                 [](const Outcome& o) { return o.status == 200; });
    if (all) ++restored_;
  });
}

bool Control::stop(std::chrono::milliseconds limit) {
  for (const auto& l : lanes_) {
    const std::lock_guard lock(l->mutex);
    l->stopping = true;
    l->abort = l->writing;  // What is put back is let be.
    l->wake.notify_all();
    // Where it never ran, it has what it adopted to put back.
    if (!l->running && !l->held.empty()) start(*l);
  }
  const auto until = std::chrono::steady_clock::now() + limit;
  bool all = true;
  for (const auto& l : lanes_) {
    std::unique_lock lock(l->mutex);
    if (!l->running) {
      l->ended = true;
      all &= l->held.empty();  // What no thread put back is in the journal.
      continue;
    }
    const bool ended = l->wake.wait_until(lock, until, [&l] { return l->ended; });
    lock.unlock();
    if (!l->thread.joinable()) continue;
    if (ended) {
      l->thread.join();
    } else {
      l->thread.detach();
      all = false;
    }
  }
  return all;
}

}  // namespace zeus::zeusd
