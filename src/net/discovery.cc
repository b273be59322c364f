#include "net/discovery.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace zeus::net {
namespace {

using nlohmann::json;

/// Takes values out of a document, and remembers the first that is not what it must be.
class Reader {
 public:
  bool failed() const noexcept { return !fault_.empty(); }
  Error error() const {
    return {Errc::malformed, 0,
            "cannot read the answer to GET /discover: " + fault_ +
                "; is it zeusd that listens at this address?"};
  }
  void fail(const std::string& where, const char* what) {
    if (!failed()) fault_ = where + " is no " + what;
  }

  /// Null where the key is missing; so it is where `optional` and the value is null.
  const json* member(const json& object, const char* key, bool optional = false) {
    const auto it = object.find(key);
    return it == object.end() || (optional && it->is_null()) ? nullptr : &*it;
  }

  std::uint16_t id(const json& value, const std::string& where) {
    if (value.is_number_unsigned() &&
        value.get<std::uint64_t>() <= std::numeric_limits<std::uint16_t>::max()) {
      return value.get<std::uint16_t>();
    }
    fail(where, "number from 0 to 65535");
    return 0;
  }
  int integer(const json& value, const std::string& where) {
    const auto n = value.is_number_integer() ? value.get<std::int64_t>() : -1;
    if (n < 0 || n > std::numeric_limits<int>::max()) fail(where, "whole number");
    return failed() ? 0 : static_cast<int>(n);
  }
  bool boolean(const json& value, const std::string& where) {
    if (!value.is_boolean()) fail(where, "true or false");
    return value.is_boolean() && value.get<bool>();
  }
  std::string text(const json& value, const std::string& where) {
    if (!value.is_string()) fail(where, "text");
    return value.is_string() ? value.get<std::string>() : std::string();
  }

  /// One T of each element of the array; none where it is missing.
  template <class F>
  auto array(const json* value, const std::string& where, F&& element) {
    std::vector<decltype(element(*value, where))> out;
    if (value == nullptr) return out;
    if (!value->is_array()) fail(where, "array");
    for (std::size_t i = 0; value->is_array() && i < value->size() && !failed(); ++i) {
      out.push_back(element((*value)[i], where + '[' + std::to_string(i) + ']'));
    }
    return out;
  }

  /// A member that must be there; null, where it is not.
  const json& required(const json& object, const char* key, const std::string& where) {
    static const json kNull;
    if (!object.is_object()) {
      fail(where, "object");
      return kNull;
    }
    const json* found = member(object, key);
    return found == nullptr ? kNull : *found;
  }

 private:
  std::string fault_;
};

Discovery::Gpu read_gpu(Reader& r, const json& from, const std::string& where) {
  Discovery::Gpu gpu;
  gpu.id = r.id(r.required(from, "id", where), where + ".id");
  if (r.failed()) return gpu;
  gpu.name = r.text(r.required(from, "name", where), where + ".name");
  if (const json* pci = r.member(from, "pci_address", true)) {
    gpu.pci_address = r.text(*pci, where + ".pci_address");
  }
  if (const json* energy = r.member(from, "cumulative_energy_available", true)) {
    gpu.cumulative_energy_available = r.boolean(*energy, where + ".cumulative_energy_available");
  }
  if (const json* uuid = r.member(from, "uuid", true)) gpu.uuid = r.text(*uuid, where + ".uuid");
  return gpu;
}

Discovery::Cpu read_cpu(Reader& r, const json& from, const std::string& where) {
  Discovery::Cpu cpu;
  cpu.id = r.id(r.required(from, "id", where), where + ".id");
  if (r.failed()) return cpu;
  cpu.dram_available =
      r.boolean(r.required(from, "dram_available", where), where + ".dram_available");
  return cpu;
}

/// The devices as objects, or as the bare numbers of versions before 0.5.
void read_devices(Reader& r, const json& from, Discovery& out) {
  if (const json* gpus = r.member(from, "gpus")) {
    out.gpus = r.array(gpus, "gpus",
                       [&](const auto& v, const auto& where) { return read_gpu(r, v, where); });
  } else if (const json* ids = r.member(from, "gpu_ids")) {
    out.gpus = r.array(ids, "gpu_ids", [&](const auto& v, const auto& where) {
      return Discovery::Gpu{.id = r.id(v, where)};
    });
  } else {
    r.fail("gpus", "array");
  }
  if (const json* cpus = r.member(from, "cpus")) {
    out.cpus = r.array(cpus, "cpus",
                       [&](const auto& v, const auto& where) { return read_cpu(r, v, where); });
    return;
  }
  out.cpus = r.array(r.member(from, "cpu_ids"), "cpu_ids", [&](const auto& v, const auto& where) {
    return Discovery::Cpu{.id = r.id(v, where)};
  });
  const auto dram = r.array(r.member(from, "dram_available"), "dram_available",
                            [&](const auto& v, const auto& where) { return r.boolean(v, where); });
  if (!dram.empty() && dram.size() != out.cpus.size()) {
    r.fail("dram_available", "array of one value a CPU");
    return;
  }
  for (std::size_t i = 0; i < dram.size(); ++i) out.cpus[i].dram_available = dram[i];
}

void read_groups(Reader& r, const json& from, Discovery& out) {
  const json* groups = r.member(from, "enabled_api_groups");
  if (groups == nullptr) out.enabled_api_groups.assign(kGroups.begin(), kGroups.end());
  for (const std::string& name :
       r.array(groups, "enabled_api_groups",
               [&](const auto&v, const auto&where) { return r.text(v, where); })) {
    if (const auto group = group_named(name)) out.enabled_api_groups.push_back(*group);
  }
  if (const json* auth = r.member(from, "auth_required")) {
    out.auth_required = r.boolean(*auth, "auth_required");
  }
}

/// What only our daemon says.
void read_extras(Reader& r, const json& from, Discovery& out) {
  if (const json* v = r.member(from, "version", true)) out.version = r.text(*v, "version");
  if (const json* v = r.member(from, "protocol", true)) out.protocol = r.integer(*v, "protocol");
  if (const json* v = r.member(from, "instance", true)) out.instance = r.text(*v, "instance");
  out.features = r.array(r.member(from, "features", true), "features",
                         [&](const auto& v, const auto& where) { return r.text(v, where); });
  if (const json* v = r.member(from, "simulation", true)) {
    out.simulation = r.text(r.required(*v, "scenario", "simulation"), "simulation.scenario");
  }
}

template <class Devices>
bool all_different(const Devices& devices) {
  std::vector<std::uint16_t> ids;
  for (const auto& d : devices) ids.push_back(d.id);
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) == ids.end();
}

}  // namespace

bool Discovery::enables(Group group) const noexcept {
  return std::find(enabled_api_groups.begin(), enabled_api_groups.end(), group) !=
         enabled_api_groups.end();
}

bool Discovery::has(std::string_view feature) const noexcept {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

Result<Discovery> parse_discovery(std::string_view text) {
  Reader r;
  Discovery out;
  const json from = json::parse(text, nullptr, false);
  if (!from.is_object()) {
    r.fail("it", "JSON object");
    return r.error();
  }
  read_devices(r, from, out);
  read_groups(r, from, out);
  read_extras(r, from, out);
  if (!all_different(out.gpus)) r.fail("gpus", "list of different devices");
  if (!all_different(out.cpus)) r.fail("cpus", "list of different devices");
  if (r.failed()) return r.error();
  return out;
}

std::string to_json(const Discovery& d) {
  using nlohmann::ordered_json;
  auto gpus = ordered_json::array(), gpu_ids = ordered_json::array();
  for (const Discovery::Gpu& g : d.gpus) {
    ordered_json gpu = {{"id", g.id},
                        {"name", g.name},
                        {"pci_address", g.pci_address},
                        {"cumulative_energy_available", g.cumulative_energy_available == true}};
    if (!g.uuid.empty()) gpu["uuid"] = g.uuid;
    gpus.push_back(std::move(gpu));
    gpu_ids.push_back(g.id);
  }
  auto cpus = ordered_json::array(), cpu_ids = ordered_json::array(), dram = ordered_json::array();
  for (const Discovery::Cpu& c : d.cpus) {
    cpus.push_back({{"id", c.id}, {"dram_available", c.dram_available}});
    cpu_ids.push_back(c.id);
    dram.push_back(c.dram_available);
  }
  auto groups = ordered_json::array();
  for (const Group g : d.enabled_api_groups) groups.push_back(to_string(g));
  ordered_json simulation;
  if (d.simulation) simulation = {{"scenario", *d.simulation}};
  const ordered_json out = {{"gpus", std::move(gpus)},
                            {"cpus", std::move(cpus)},
                            {"enabled_api_groups", std::move(groups)},
                            {"auth_required", d.auth_required},
                            {"gpu_ids", std::move(gpu_ids)},
                            {"cpu_ids", std::move(cpu_ids)},
                            {"dram_available", std::move(dram)},
                            {"version", d.version},
                            {"protocol", d.protocol.value_or(kProtocol)},
                            {"instance", d.instance},
                            {"features", d.features},
                            {"simulation", std::move(simulation)}};
  // A name that a driver gave need not be UTF-8.
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace zeus::net
