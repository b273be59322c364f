#pragma once

#include <span>
#include <vector>

#include "measure/comb.h"
#include "measure/step_trace.h"
#include "zeus/sensor.h"

namespace zeus {

/// A new value of a sensor and when it was published. Of a counter the mean power since the
/// publication before; only those are told that follow each other by one update.
struct Publication {
  double t_s = 0;    ///< After the origin.
  double t_u_s = 0;  ///< Its standard uncertainty, by the two polls that it lies between.
  double power_w = 0;
};

/// The publications behind polls of a sensor whose comb is known. Each is put on the comb of its
/// neighbours where that lies in its bracket.
ZEUS_API std::vector<Publication> publications(const SensorInfo& sensor,
                                               std::span<const Sample> polls, const Comb& comb,
                                               Instant origin);

/// The readings of a sensor over time: of a counter the power between its publications.
ZEUS_API StepTrace readings(const SensorInfo& sensor, std::span<const Sample> polls,
                            Instant origin);

}  // namespace zeus
