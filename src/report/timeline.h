#pragma once

#include <string>
#include <string_view>

#include "zeus/measurement.h"

namespace zeus::report {

enum class TimelineFormat : unsigned char { csv, jsonl };

/// By the suffix of a file's name: ".csv", ".jsonl". Errc::invalid for any other.
Result<TimelineFormat> timeline_format(std::string_view file);

/// One line at the top of a file; empty for JSON lines.
std::string timeline_header(TimelineFormat format);

/// One sample as one line: seconds since `begin`, monotonic nanoseconds, sensor, device, value in
/// SI with its unit, and the word of the error where it could not be read.
std::string timeline_row(TimelineFormat format, Instant begin, std::string_view device,
                         const SensorInfo& sensor, const Sample& sample);

}  // namespace zeus::report
