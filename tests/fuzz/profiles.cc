#include <cmath>
#include <string>

#include "fuzz/fuzz.h"
#include "measure/calibration_file.h"
#include "measure/profile_table.h"

// Tables of sensors, as users write them, and logs of meters.

namespace {

using zeus::fuzz::require;

/// By hand, of one alternative: text that is left fits what is left of the pattern.
bool slowly(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    return slowly(pattern.substr(1), text) || (!text.empty() && slowly(pattern, text.substr(1)));
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         slowly(pattern.substr(1), text.substr(1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = zeus::fuzz::text_of(data, size);
  const auto rows = zeus::parse_profiles(text, "f");
  if (!rows) require(rows.error().detail.starts_with("f:"));

  zeus::ProfileBook book;
  require(book.add(text, "f").has_value() == rows.has_value());
  zeus::DeviceInfo device;
  device.backend = "nvml";
  device.model = "NVIDIA A100";
  device.facts = {{"driver", "535.54.03"}, {"architecture", "ampere"}};
  zeus::SensorInfo sensor;
  sensor.profile.id = "nvml:power";
  const zeus::SensorProfile p = book.refine(device, sensor);
  require(p.update.count() >= 0 && p.window.count() >= 0 && p.tau.count() >= 0);
  require(p.gain > 0 && std::isfinite(p.offset_w) && p.gain_u.value_or(0) >= 0);
  require(p.coverage.value_or(1) > 0 && p.coverage.value_or(1) <= 1);

  // What calibrate takes for its own it gives back, and takes again.
  const auto again = zeus::with_calibrations(text, {});
  if (again) require(zeus::with_calibrations(*again, {}).value() == *again);

  const auto meter = zeus::parse_meter(text, "m", 0, 0);
  if (meter) require(std::isfinite(meter->mean(meter->begin_s(), meter->end_s())));

  if (size < 24 && text.find('|') == std::string_view::npos) {
    const std::string_view pattern = text.substr(0, size / 2), word = text.substr(size / 2);
    require(zeus::fits(pattern, word) == slowly(pattern, word));
  }
  return 0;
}
