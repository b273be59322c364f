#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "report/bench.h"
#include "report/run.h"

namespace zeus::report {

/// Keys stay in the order in which they are written: people read reports too.
using Json = nlohmann::ordered_json;

/// Numbers that could not be had are null; doubles come back bit for bit when read.
Json number(double value);

Json to_json(const Estimate& estimate);
Json to_json(const DomainResult& domain);
Json to_json(const Host& host);
Json to_json(const Selection& selection);
Json to_json(const DeviceInfo& device);
Json to_json(const Problem& problem);
Json to_json(const Exit& exit);
/// What measuring cost, beside `measured_s` seconds of windows whose edges took `edges`.
Json to_json(const Overhead& overhead, double measured_s, Duration edges);
/// What a report says of one window: "window", "total", "domains" and "edp_js".
Json result_json(const WindowResult& window);

/// The schema "zeus.run/1": docs/reference/run-json.md.
Json to_json(const Run& run);

/// The schema "zeus.bench/1": docs/reference/bench-json.md.
Json to_json(const Bench& bench, const Findings& findings);

/// Text that is valid JSON whatever bytes went in: what is no UTF-8 becomes U+FFFD.
std::string dump(const Json& json, bool pretty);

}  // namespace zeus::report
