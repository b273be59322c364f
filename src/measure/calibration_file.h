#pragma once

// What a calibration reads and writes, as text.

#include <span>
#include <string>
#include <string_view>

#include "measure/calibration.h"
#include "zeus/device.h"
#include "zeus/export.h"

namespace zeus {

/// A meter's log: a column t_s or t_ms and a column power_w. Times become seconds after
/// `origin_unix_s`; those of the log count from `start_unix_s`, 0 where they are unix times.
/// The error names `name`, the line, and what is wrong.
ZEUS_API Result<StepTrace> parse_meter(std::string_view csv, std::string_view name,
                                       double start_unix_s, double origin_unix_s);

/// The row of calibrations.csv for what was found of a sensor.
ZEUS_API std::string calibration_row(const DeviceInfo& device, const SensorInfo& sensor,
                                     const Calibration& found, std::string_view source);

/// The text of calibrations.csv with `rows` in place of those of the same device, driver and field;
/// with `forget`, without all rows of that device. Errc::invalid where `text` is another table.
ZEUS_API Result<std::string> with_calibrations(std::string_view text,
                                               std::span<const std::string> rows,
                                               std::span<const std::string> forget = {});

}  // namespace zeus
