#pragma once

#include <vector>

#include "zeus/device.h"
#include "zeus/measurement.h"

namespace zeus::check {

/// Reads sensors fast, one call for all that share a source, and keeps everything.
class Poller {
 public:
  /// What one stretch of polling gave.
  struct Record {
    std::vector<std::vector<Sample>> samples;  ///< Parallel to sensors().
    std::vector<std::vector<double>> calls_s;  ///< How long they took; parallel to calls().
  };
  /// One vendor call.
  struct Call {
    Source* source;
    std::size_t slots;                 ///< How many of its slots are asked for.
    std::vector<std::size_t> sensors;  ///< Those that it yields.
  };

  /// The energy and power sensors of `device`, which must outlive this.
  explicit Poller(const Device& device);

  const std::vector<const Sensor*>& sensors() const noexcept { return sensors_; }
  const std::vector<Call>& calls() const noexcept { return calls_; }

  /// Polls until `end`, about every millisecond or as fast as the calls allow, and adds to
  /// `record`.
  void poll(Instant end, Record& record) const;
  Record poll(Instant end) const {
    Record record;
    poll(end, record);
    return record;
  }
  /// Seconds that each read of the first `slots` slots of that source took, one after the other for
  /// half a second and at most 1000 of them; a source may answer sooner for fewer sensors.
  static std::vector<double> time(const Call& call, std::size_t slots);

 private:
  std::vector<const Sensor*> sensors_;
  std::vector<Call> calls_;
};

}  // namespace zeus::check
