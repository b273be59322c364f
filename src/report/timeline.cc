#include "report/timeline.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/run.h"
#include "report/table.h"

namespace zeus::report {
Result<TimelineFormat> timeline_format(std::string_view file) {
  if (file.ends_with(".csv")) return TimelineFormat::csv;
  if (file.ends_with(".jsonl")) return TimelineFormat::jsonl;
  return Error{Errc::invalid, 0,
               fmt::format("cannot tell the format of the timeline \"{}\": its name must end in "
                           ".csv or .jsonl",
                           file)};
}

std::string timeline_header(TimelineFormat format) {
  return format == TimelineFormat::csv ? "seconds,monotonic_ns,device,sensor,value,unit,error\n"
                                       : "";
}

std::string timeline_row(TimelineFormat format, Instant begin, std::string_view device,
                         const SensorInfo& sensor, const Sample& sample) {
  const auto ns = sample.at().time_since_epoch().count();
  const double seconds = std::chrono::duration<double>(sample.at() - begin).count();
  const double value = static_cast<double>(sample.raw()) * sensor.scale;
  if (format == TimelineFormat::csv) {
    return fmt::format("{:.9f},{},{},{},{},{},{}\n", seconds, ns, csv_field(device),
                       csv_field(sensor.name), sample.ok() ? fmt::format("{}", value) : "",
                       unit(sensor.quantity), sample.ok() ? "" : to_string(sample.error()));
  }
  const auto quoted = [](std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  return fmt::format(
      R"({{"seconds":{:.9f},"monotonic_ns":{},"device":{},"sensor":{},"value":{},"unit":"{}","error":{}}})"
      "\n",
      seconds, ns, quoted(device), quoted(sensor.name),
      sample.ok() ? fmt::format("{}", value) : "null", unit(sensor.quantity),
      sample.ok() ? "null" : quoted(to_string(sample.error())));
}

}  // namespace zeus::report
