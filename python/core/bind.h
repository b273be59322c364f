#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "zeus/device.h"
#include "zeus/result.h"
#include "zeus/sensor.h"

// What the files of the extension share.

namespace zeus::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: for "name"_a only.

using MachinePtr = std::shared_ptr<const Machine>;

/// The value, or raises zeus._core.Error.
template <class T>
T get(Result<T> result) {
  return std::move(result).value();
}
inline void check(Status status) { (void)std::move(status).value(); }

inline double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
inline double seconds(Instant t) { return seconds(t.time_since_epoch()); }
inline Duration duration(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}
inline Instant instant(double s) { return Instant(duration(s)); }

void bind_errors(nb::module_& m);
void bind_machine(nb::module_& m);
void bind_monitor(nb::module_& m);
void bind_watch(nb::module_& m);
void bind_counters(nb::module_& m);
void bind_history(nb::module_& m);

}  // namespace zeus::python
