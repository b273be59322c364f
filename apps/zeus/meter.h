#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "options.h"
#include "report/run.h"
#include "zeus/monitor.h"
#include "zeus/timeline.h"

namespace zeus::cli {

/// Measures windows on a machine of which nothing, something or everything can be measured. Where
/// nothing can, windows have a time alone, and `problems` says why.
class Meter {
 public:
  struct Options {
    Duration period = std::chrono::milliseconds(100);
    Monitor::Follow follow = Monitor::Follow::power;
    Monitor::Align align = Monitor::Align::none;
  };
  /// Called with every sample in turn; `sensor` is its sensor's place in the subject.
  using Visit = std::function<void(std::size_t sensor, const Sample&)>;

  Meter(Machine machine, Options options);

  const Machine& machine() const noexcept;
  std::vector<Problem> problems() const;
  bool measures() const noexcept { return monitor_.has_value(); }
  const Monitor& monitor() const noexcept { return *monitor_; }

  /// How long the sensors of the total need to forget what was before: the longest update, and the
  /// longest window of a running mean if that is longer. Zero where nothing is measured.
  struct Memory {
    Duration update{}, longest{};
  };
  Memory memory() const;

  void begin(const std::string& name);
  Instant begun() const noexcept { return begun_; }

  /// How long drain() may be put off at most.
  Duration patience() const noexcept;
  /// Takes in what the sampler has gathered, for the peaks, for `visit` and for recent().
  void drain(const Visit& visit = {});
  /// The id of the device that a sensor of the subject belongs to.
  const std::string& device(std::size_t sensor) const { return devices_[sensor]; }
  /// The place of a sensor in the subject.
  std::optional<std::size_t> sensor(std::string_view device, std::string_view name) const;
  /// The newest value of a sensor of the subject; NaN if there is none yet.
  double recent(std::size_t sensor) const noexcept;

  /// Since begin(), and since the last lap: the window goes on.
  struct Lap {
    report::WindowResult so_far, since_last;
  };
  Lap lap();

  report::WindowResult end(const Visit& visit = {});
  /// The record that end() has judged. Without a subject where nothing could be measured but time.
  const Measurement& record() const noexcept { return record_; }
  report::Overhead overhead();

 private:
  Measurement close();
  Machine machine_;  // Where there is no monitor.
  std::vector<Problem> problems_;
  Options options_;
  std::optional<Monitor> monitor_;
  std::optional<Timeline> timeline_;
  std::optional<Monitor::Window> window_;
  std::vector<std::string> devices_;  // Of each sensor of the subject.
  std::optional<Measurement> first_;  // The first lap, if there has been one.
  Measurement record_;
  report::Peaks peaks_, recent_;
  std::string name_;
  Instant begun_{}, ended_{};
  std::chrono::system_clock::time_point wall_;
  std::size_t lost_ = 0;
  bool fresh_ = true;  // Nothing has been drained of this window.
};

}  // namespace zeus::cli
