#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "zeus/device.h"
#include "zeus/export.h"
#include "zeus/result.h"
#include "zeus/sensor.h"

namespace zeus {

/// What is known about sensors, as tables: the one that is compiled in, a user's own, and what
/// `zeus calibrate` wrote. docs/reference/profiles.md has the format.
///
/// Of all rows that fit a sensor, each fact comes from the most specific one that states it: a row
/// that names the very device before one for its model, its compute capability, its architecture
/// and one for the field alone; then one of a later file; then one for fewer drivers; then a later
/// row. How a sensor averages (kind, window, delay, tau, coverage) comes from one row as a whole,
/// and so does its gain.
class ZEUS_API ProfileBook {
 public:
  /// The table that is compiled in.
  static const ProfileBook& builtin() noexcept;

  ProfileBook();  ///< A copy of builtin().

  /// Adds a file's rows. Errc::invalid names `name`, the line, and what is wrong with it.
  Status add(std::string_view csv, std::string_view name);

  /// builtin(), then the file that ZEUS_PROFILES names or $XDG_CONFIG_HOME/zeus/profiles.csv
  /// (~/.config), then calibrations_path(). A file that is not there is no error, unless
  /// ZEUS_PROFILES names it; one that cannot be read or understood is.
  static Result<ProfileBook> load(const Environment& environment);

  /// $XDG_STATE_HOME/zeus/calibrations.csv, by default in ~/.local/state; empty where there is
  /// neither variable nor HOME.
  static std::string calibrations_path(const Environment& environment);

  /// The profile of a sensor with what the tables know. What they do not say stays what the
  /// backend said.
  SensorProfile refine(const DeviceInfo& device, const SensorInfo& sensor) const;

 private:
  struct Page;
  explicit ProfileBook(std::shared_ptr<const Page> first);
  std::vector<std::shared_ptr<const Page>> pages_;
};

/// Refines the profiles of all sensors that have no source yet: the first book that knows a sensor
/// has the last word.
ZEUS_API void apply(const ProfileBook& book, Machine& machine);

}  // namespace zeus
