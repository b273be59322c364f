#include "meter.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace zeus::cli {
namespace {

std::string device_of(const Machine& machine, const SensorInfo& info) {
  for (const Device& d : machine.devices) {
    for (const Sensor& s : d.sensors) {
      if (s.info.domain == info.domain && s.info.name == info.name) return d.info.id;
    }
  }
  return to_string(info.domain);
}

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
}

}  // namespace

Meter::Meter(Machine machine, Options options)
    : machine_(machine), problems_(machine.problems), options_(options) {
  Monitor::Options o;
  o.period = options.period;
  o.follow = options.follow;
  o.align = options.align;
  auto monitor = Monitor::open(std::move(machine), o);
  if (!monitor) {
    // That nothing here tells energy, is what the other problems explain.
    const bool explained = monitor.error().code == Errc::absent && !problems_.empty();
    if (!explained) problems_.push_back({"zeus", monitor.error()});
    return;
  }
  monitor_.emplace(std::move(*monitor));
  for (const SensorInfo& s : monitor_->subject().sensors) {
    devices_.push_back(device_of(machine_, s));
  }
}

const Machine& Meter::machine() const noexcept { return machine_; }
std::vector<Problem> Meter::problems() const { return problems_; }

Meter::Memory Meter::memory() const {
  Memory out;
  if (!monitor_) return out;
  const Subject& subject = monitor_->subject();
  for (const DomainId root : subject.domains.roots()) {
    const SensorInfo* s = sensor_of(subject, root);
    if (s == nullptr) continue;
    out.update = std::max(out.update, s->profile.update);
    out.longest = std::max({out.longest, s->profile.update, s->profile.window});
  }
  return out;
}

void Meter::begin(const std::string& name) {
  name_ = name;
  first_.reset();
  begun_ = ended_ = {};
  wall_ = std::chrono::system_clock::now();
  begun_ = Clock::steady().now();
  if (!monitor_) return;
  peaks_.assign(devices_.size(), report::kNan);
  recent_ = peaks_;
  timeline_.reset();
  fresh_ = true;
  if (const Sampler* sampler = monitor_->sampler()) timeline_.emplace(*sampler, begun_);
  window_.emplace(monitor_->begin(name));
}

Duration Meter::patience() const noexcept {
  using std::chrono::seconds;
  if (!timeline_) return seconds(60);
  return std::clamp<Duration>(options_.period * 256, std::chrono::milliseconds(50), seconds(60));
}

void Meter::drain(const Visit& visit) {
  if (!timeline_) return;
  const auto& sampled = monitor_->sampled();
  const auto& sensors = monitor_->subject().sensors;
  const std::size_t lost = timeline_->drain([&](std::size_t k, const Sample& sample) {
    if (ended_ != Instant{} && sample.at() > ended_) return;
    const std::size_t i = sampled[k];
    report::note_peak(peaks_, i, sensors[i], sample);
    if (sample.ok()) recent_[i] = static_cast<double>(sample.raw()) * sensors[i].scale;
    if (visit) visit(i, sample);
  });
  // The tick that was under way when the window began is not in it, but looks lost.
  lost_ += std::exchange(fresh_, false) ? lost - std::min(lost, sampled.size()) : lost;
}

std::optional<std::size_t> Meter::sensor(std::string_view device, std::string_view name) const {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i] == device && monitor_->subject().sensors[i].name == name) return i;
  }
  return std::nullopt;
}

double Meter::recent(std::size_t sensor) const noexcept {
  return sensor < recent_.size() ? recent_[sensor] : report::kNan;
}

Measurement Meter::close() {
  Measurement out;
  (void)monitor_->end(std::move(*window_), out);
  return out;
}

Meter::Lap Meter::lap() {
  if (!monitor_) {
    const auto now = report::only_time(machine_, name_, begun_, Clock::steady().now(), wall_);
    return {now, now};
  }
  // The next part begins before this one ends: nothing falls between them.
  Monitor::Window next = monitor_->begin(name_);
  const Measurement last = close();
  window_.emplace(std::move(next));
  if (!first_) first_ = last;
  return {report::judge(machine_, report::joined(*first_, last), peaks_),
          report::judge(machine_, last, {})};
}

report::WindowResult Meter::end(const Visit& visit) {
  if (!monitor_) {
    record_ = {};
    record_.name = name_;
    record_.wall = wall_;
    record_.begin = begun_;
    record_.end = Clock::steady().now();
    return report::only_time(machine_, name_, begun_, record_.end, wall_);
  }
  record_ = close();
  window_.reset();
  if (first_) record_ = report::joined(*first_, record_);
  ended_ = record_.end;
  drain(visit);
  return report::judge(machine_, record_, peaks_);
}

report::Overhead Meter::overhead() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  report::Overhead out{.cpu_s = seconds(use.ru_utime) + seconds(use.ru_stime),
                       .period = {},
                       .effort = {},
                       .samples_lost = lost_};
  if (!monitor_) return out;
  if (const Sampler* sampler = monitor_->sampler()) {
    out.period = sampler->period();
    out.effort = sampler->effort();
  }
  return out;
}

}  // namespace zeus::cli
