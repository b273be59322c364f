#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "measure/sensor_set.h"
#include "zeus/sensor.h"

namespace zeus {

/// Waits for sensors to publish, so that a window can be told from one publication to another
/// (specification of accuracy, 5.1 and 5.3, bracketed). Counters are polled closely until each has
/// ticked; power is left to the sampler, and only given the time to settle.
class Aligner {
 public:
  /// Of `sensors`, those that publish seldom enough to be waited for.
  explicit Aligner(const std::vector<Sensor>& sensors);

  using Lead = std::array<Tick, 2>;
  using Tail = std::array<Tick, 3>;

  /// Returns just after the last counter has ticked: at once, where it is the only one, else after
  /// each has ticked twice. `out` is parallel to the sensors; slots of others stay empty.
  void before(const Clock& clock, std::span<Reading> scratch, std::span<Lead> out) const noexcept;
  /// Returns when each has ticked three times, or should have.
  void after(const Clock& clock, std::span<Reading> scratch, std::span<Tail> out) const noexcept;

 private:
  template <std::size_t N>
  void watch(const Clock& clock, std::span<Reading> scratch, std::span<std::array<Tick, N>> out,
             std::size_t need, bool newest) const noexcept;

  static constexpr std::size_t kMost = 64;  ///< Counters that are waited for.
  std::vector<std::size_t> index_;          ///< Of each counter in the sensors.
  SensorSet counters_;
  Duration update_{}, distance_{}, quiet_{}, settle_{};
};

}  // namespace zeus
