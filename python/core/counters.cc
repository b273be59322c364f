#include <algorithm>
#include <vector>

#include "bind.h"
#include "measure/track.h"
#include "report/names.h"
#include "zeus/sampler.h"

namespace zeus::python {
namespace {

/// Energy counters that never fall: their wraps are added up, since they are read often enough on
/// one thread of the core. Any thread may read; nothing is locked.
class Counters {
 public:
  Counters(MachinePtr machine, const std::vector<std::pair<std::string, std::string>>& sensors)
      : machine_(std::move(machine)) {
    for (const auto& [id, name] : sensors) sensors_.push_back(find(id, name));
    const nb::gil_scoped_release without;
    for (const Sensor& s : sensors_) wraps_ = wraps_ || s.info.wrap != 0;
    sampler_ = std::make_unique<Sampler>(sensors_, Sampler::Options{period(), 2, &Clock::steady()});
    (void)sampler_->tick();
    for (std::size_t i = 0; i < sensors_.size(); ++i) base_.push_back(sampler_->track(i).raw);
    keep_on();
  }

  /// Joules since the counter began, wraps included.
  double read(std::size_t index) {
    if (index >= sensors_.size()) throw nb::index_error("there is no such counter");
    const nb::gil_scoped_release without;
    keep_on();
    const Sensor& sensor = sensors_[index];
    Track track = sampler_->track(index);
    std::vector<Reading> readings(std::size_t{sensor.slot} + 1);
    const Errc e = sensor.source->read(readings);
    const Errc failed = e != Errc::ok ? e : readings.back().error;
    if (failed != Errc::ok) {
      throw Failure(
          {failed, 0,
           "cannot read the counter " + sensor.info.name + ": " + report::to_string(failed)});
    }
    if (!track.valid()) {
      throw Failure({Errc::lost, 0,
                     "the counter " + sensor.info.name +
                         " could not be read when it was opened; open it anew"});
    }
    follow(track, sensor.info, Sample(Clock::steady().now(), readings.back().raw), longest());
    return static_cast<double>(base_[index] + track.total) * sensor.info.scale;
  }

  std::size_t size() const { return sensors_.size(); }

 private:
  const Sensor& find(const std::string& id, const std::string& name) const {
    if (const Device* device = machine_->find(id)) {
      for (const Sensor& s : device->sensors) {
        if (s.info.name == name) return s;
      }
    }
    throw Failure({Errc::unsupported, 0, "the device " + id + " has no sensor " + name});
  }

  /// A quarter of the shortest time in which one could wrap.
  Duration longest() const {
    double least_s = 86'400;
    for (const Sensor& s : sensors_) {
      if (s.info.wrap == 0) continue;
      const double most_w =
          s.info.profile.power_max_w > 0 ? s.info.profile.power_max_w : kUnknownPowerW;
      least_s = std::min(least_s, static_cast<double>(s.info.wrap) * s.info.scale / most_w);
    }
    return duration(least_s);
  }
  Duration period() const { return std::clamp(longest() / 4, duration(0.05), duration(60)); }

  /// A forked child has no thread of its parent.
  void keep_on() {
    if (wraps_ && sampler_->start() != Errc::ok) {
      throw Failure({Errc::busy, 0,
                     "cannot keep a counter from wrapping unseen: the system grants "
                     "no thread; raise ulimit -u"});
    }
  }

  MachinePtr machine_;
  std::vector<Sensor> sensors_;
  std::vector<std::uint64_t> base_;
  std::unique_ptr<Sampler> sampler_;
  bool wraps_ = false;
};

}  // namespace

void bind_counters(nb::module_& m) {
  nb::class_<Counters>(m, "Counters", "Energy counters that never fall: wraps are added up.")
      .def(nb::init<MachinePtr, const std::vector<std::pair<std::string, std::string>>&>(),
           "machine"_a, "sensors"_a, "`sensors`: pairs of a device's id and a sensor's name.")
      .def("__len__", &Counters::size)
      .def("read", &Counters::read, "index"_a, "Joules since the counter began.");
}

}  // namespace zeus::python
