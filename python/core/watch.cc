#include <nanobind/ndarray.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork_guard.h"
#include "bind.h"
#include "measure/history.h"
#include "report/names.h"
#include "zeus/sampler.h"
#include "zeus/timeline.h"

namespace zeus::python {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The history of some levels (power, temperature), sampled on one thread of the core. Somebody has
/// to call drain() before the sampler's rings are full. A forked child begins anew.
class Watch {
  struct State {
    std::mutex mutex;
    std::vector<History> histories;
    std::unique_ptr<Sampler> sampler;
    std::unique_ptr<Timeline> timeline;
    std::size_t lost = 0;
    std::uint64_t generation = fork_generation();
  };

  const Sensor& find(const std::string& id, const std::string& name) const {
    const Device* device = machine_->find(id);
    if (device != nullptr) {
      for (const Sensor& s : device->sensors) {
        if (s.info.name == name) return s;
      }
    }
    throw Failure({Errc::unsupported, 0, "the device " + id + " has no sensor " + name});
  }

  std::unique_ptr<State> start() const {
    auto state = std::make_unique<State>();
    std::vector<Sensor> sensors;
    for (const Sensor& s : sensors_) {
      sensors.push_back(s);
      state->histories.emplace_back(s.info, period_, most_);
    }
    const Instant from = Clock::steady().now() - Duration(1);
    state->sampler =
        std::make_unique<Sampler>(sensors, Sampler::Options{period_, kRing, &Clock::steady()});
    state->timeline = std::make_unique<Timeline>(*state->sampler, from);
    (void)state->sampler->tick();  // So that there is a value from the beginning on.
    if (state->sampler->start() != Errc::ok) {
      throw Failure({Errc::busy, 0, "cannot sample: the system grants no thread; raise ulimit -u"});
    }
    return state;
  }

  State& here() {
    if (state_->generation != fork_generation()) {
      State* parents = state_.release();  // Its lock may be held, its thread is not here.
      state_ = stopped_ ? std::make_unique<State>() : start();
      if (stopped_) state_->histories = std::move(parents->histories);
    }
    return *state_;
  }

  static void take(State& state) {
    if (!state.timeline) return;
    state.lost += state.timeline->drain(
        [&](std::size_t sensor, const Sample& sample) { state.histories[sensor].add(sample); });
  }

  template <class F>
  auto with(std::size_t sensor, F&& f) {
    if (sensor >= sensors_.size()) throw nb::index_error("there is no such sensor in this watch");
    const nb::gil_scoped_release without;
    State& state = here();
    const std::lock_guard lock(state.mutex);
    take(state);
    return f(state.histories[sensor]);
  }

  MachinePtr machine_;
  Duration period_;
  std::size_t most_;
  std::vector<Sensor> sensors_;
  std::unique_ptr<State> state_;
  bool stopped_ = false;

 public:
  static constexpr std::size_t kRing = 4096;

  Watch(MachinePtr machine, const std::vector<std::pair<std::string, std::string>>& sensors,
        double period_s, std::size_t most)
      : machine_(std::move(machine)), period_(duration(period_s)), most_(most) {
    for (const auto& [device, name] : sensors) sensors_.push_back(find(device, name));
    const nb::gil_scoped_release without;
    state_ = start();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    // A forked child has no thread to wait for, and a lock that was held stays so.
    if (state_ && state_->generation != fork_generation()) (void)state_.release();
  }

  double period_s() const { return seconds(period_); }
  std::size_t size() const { return sensors_.size(); }
  bool stopped() const { return stopped_; }

  /// Takes in what the sampler collected. Returns how many samples had been overwritten so far.
  std::size_t drain() {
    const nb::gil_scoped_release without;
    State& state = here();
    const std::lock_guard lock(state.mutex);
    take(state);
    return state.lost;
  }

  /// Ends the sampling. Everything stays to be asked for.
  void stop() {
    const nb::gil_scoped_release without;
    if (stopped_) return;
    State& state = here();
    const std::lock_guard lock(state.mutex);
    take(state);
    state.timeline.reset();
    state.sampler.reset();
    stopped_ = true;
  }

  std::tuple<double, double, double, double> integral(std::size_t sensor, double from, double to) {
    return with(sensor, [&](const History& h) {
      const auto e = h.integral(instant(from), instant(to));
      return std::tuple(e.value, e.u, e.covered_s, e.length_s);
    });
  }

  std::optional<double> at(std::size_t sensor, double t) {
    return with(sensor, [&](const History& h) { return h.at(instant(t)); });
  }

  /// The value that was read last and when; nothing before the first.
  std::optional<std::pair<double, double>> latest(std::size_t sensor) {
    return with(sensor, [](const History& h) -> std::optional<std::pair<double, double>> {
      if (h.size() == 0) return std::nullopt;
      return std::pair(seconds(h.last_good()), h.value(h.size() - 1));
    });
  }

  /// The last failure; empty where the last reading worked.
  std::pair<std::string, std::uint64_t> health(std::size_t sensor) {
    return with(sensor, [](const History& h) {
      return std::pair(std::string(h.why() == Errc::ok ? "" : report::to_string(h.why())),
                       h.failures());
    });
  }

  using Array = nb::ndarray<nb::memview, double, nb::ndim<2>, nb::c_contig>;
  /// Rows of (first reading, last reading, value) of the runs that touch [from, to].
  Array runs(std::size_t sensor, double from, double to) {
    struct Rows {
      std::vector<double> cells;
    };
    auto rows = std::make_unique<Rows>();
    with(sensor, [&](const History& h) {
      const Instant begin = instant(from), end = instant(to);
      for (std::size_t i = 0; i < h.size(); ++i) {
        const auto& run = h.run(i);
        if (run.last < begin || run.first > end) continue;
        rows->cells.insert(rows->cells.end(), {seconds(run.first), seconds(run.last), h.value(i)});
      }
      return 0;
    });
    Rows* raw = rows.release();
    const nb::capsule owner(raw, [](void* p) noexcept { delete static_cast<Rows*>(p); });
    return Array(raw->cells.data(), {raw->cells.size() / 3, 3}, owner);
  }
};

}  // namespace

void bind_watch(nb::module_& m) {
  nb::class_<Watch>(m, "Watch", nb::is_weak_referenceable(),
                    "The history of levels, sampled on a thread of the core.")
      .def(nb::init<MachinePtr, const std::vector<std::pair<std::string, std::string>>&, double,
                    std::size_t>(),
           "machine"_a, "sensors"_a, "period_s"_a, "most"_a = 0,
           "`sensors`: pairs of a device's id and a sensor's name. `most`: runs kept; 0: all.")
      .def_ro_static("ring", &Watch::kRing, "Samples of a sensor that wait to be drained.")
      .def_prop_ro("period_s", &Watch::period_s)
      .def_prop_ro("stopped", &Watch::stopped)
      .def("__len__", &Watch::size)
      .def("drain", &Watch::drain, "Takes in what was sampled; returns how many were lost so far.")
      .def("stop", &Watch::stop, "Ends the sampling; what there is can still be asked for.")
      .def("integral", &Watch::integral, "sensor"_a, "begin_s"_a, "end_s"_a,
           "(integral, u, covered_s, length_s) by time.monotonic(); NaN: nothing is covered.")
      .def("at", &Watch::at, "sensor"_a, "t_s"_a, "The value in force at a monotonic time.")
      .def("latest", &Watch::latest, "sensor"_a, "(monotonic time, value) of the last reading.")
      .def("health", &Watch::health, "sensor"_a,
           "(why the last reading failed or '', how many failed).")
      .def("runs", &Watch::runs, "sensor"_a, "begin_s"_a, "end_s"_a,
           "Rows of (first reading, last reading, value), one a run of equal readings.");
}

}  // namespace zeus::python
