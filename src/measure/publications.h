#pragma once

#include <array>
#include <cstddef>

#include "measure/comb.h"
#include "measure/view.h"

namespace zeus::estimators {

/// What a power sensor published around a window, told from polls that lie closer together than
/// its updates. Fixed memory, on the stack.
struct Publications {
  /// The greatest number that is looked at; a longer window is integrated as it was sampled.
  static constexpr std::size_t kMost = 1024;

  explicit Publications(const View& view) noexcept;

  /// All that follows holds only where each publication can be told from the next: polled at half
  /// the update period or closer, every poll of the window kept, the instants known.
  bool resolved = false;
  bool mismatch = false;   ///< The period is not that of the profile.
  bool sharp = false;      ///< It changes faster than the running mean of its profile could.
  double period_s = 0;     ///< Told from the readings if it can be, else from the profile.
  double window_s = 0;     ///< Over which a reading is a mean; 0: none, or unknown.
  double instant_u_s = 0;  ///< Standard uncertainty of each instant.

  struct Value {
    double end_s;  ///< End of the averaging interval, in seconds after the begin of the window.
    double watts;  ///< As read: gain and offset included.
    bool seen;     ///< Read at all; else it is the value before it.
  };
  std::array<Value, kMost> values;
  std::size_t count = 0, missed = 0;
};

/// Of what power a device is capable, and what was seen of it, in watts.
struct Range {
  explicit Range(const View& view) noexcept;
  double device_low = 0, device_high = 0;  ///< Of the profile, gain and offset applied.
  bool known = false;                      ///< The greatest power is known.
  double seen_low = 0, seen_high = 0;
  double device() const { return device_high - device_low; }
  double seen() const { return seen_high - seen_low; }
};

}  // namespace zeus::estimators
