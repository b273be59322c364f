#include "backends/nvml/identity.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "base/files.h"

namespace zeus::nvml {
namespace {

constexpr std::array<const char*, 14> kArchitectures = {
    "unknown", "unknown", "kepler", "maxwell",   "pascal", "volta",   "turing",
    "ampere",  "ada",     "hopper", "blackwell", "dla",    "unknown", "rubin"};

using Text = std::array<char, abi::kUuidLength + 1>;

std::string version(const Optional<abi::GetSystemString>& get) {
  Text text{};
  return get && get(text.data(), abi::kVersionLength) == abi::kSuccess ? text.data() : "";
}

abi::Return get_text(Session& s, unsigned index, const Required<abi::GetString>& get,
                     std::string& out) {
  Text text{};
  const auto r =
      s.call(index, [&](abi::Device d) { return get(d, text.data(), abi::kUuidLength); });
  if (r == abi::kSuccess) out = text.data();
  return r;
}

void add_fact(Facts& facts, const char* name, std::string value) {
  if (!value.empty()) facts.emplace_back(name, std::move(value));
}

void get_pci(Session& s, unsigned index, DeviceInfo& info) {
  if (!s.api.pci) return;
  abi::PciInfo pci{};
  const auto r = s.call(index, [&](abi::Device d) { return s.api.pci(d, &pci); });
  if (r != abi::kSuccess) return;
  pci.bus_id[sizeof pci.bus_id - 1] = '\0';
  pci.bus_id_legacy[sizeof pci.bus_id_legacy - 1] = '\0';
  info.pci = normal_pci(pci.bus_id[0] != '\0' ? pci.bus_id : pci.bus_id_legacy);
}

void get_partitions(Session& s, unsigned index, DeviceInfo& info) {
  const Api& api = s.api;
  if (!api.mig_mode || !api.mig_count || !api.mig_child) return;
  unsigned now = 0, pending = 0, count = 0;
  if (s.call(index, [&](abi::Device d) { return api.mig_mode(d, &now, &pending); }) !=
          abi::kSuccess ||
      now != abi::kEnabled) {
    return;
  }
  info.partitioned = true;
  (void)s.call(index, [&](abi::Device d) { return api.mig_count(d, &count); });
  for (unsigned i = 0; i < count; ++i) {
    Text text{};
    const auto r = s.call(index, [&](abi::Device d) {
      abi::Device child = nullptr;
      const auto found = api.mig_child(d, i, &child);  // Numbers have gaps.
      return found == abi::kSuccess ? api.uuid(child, text.data(), abi::kUuidLength) : found;
    });
    if (r == abi::kSuccess) info.partitions.emplace_back(text.data());
  }
}

void get_facts(Session& s, unsigned index, DeviceInfo& info) {
  const Api& api = s.api;
  unsigned arch = 0;
  if (api.architecture &&
      s.call(index, [&](abi::Device d) { return api.architecture(d, &arch); }) == abi::kSuccess) {
    add_fact(info.facts, "architecture",
             arch < kArchitectures.size() ? kArchitectures[arch] : "unknown");
  }
  int major = 0, minor = 0;
  if (api.compute && s.call(index, [&](abi::Device d) { return api.compute(d, &major, &minor); }) ==
                         abi::kSuccess) {
    add_fact(info.facts, "compute", std::to_string(major) + '.' + std::to_string(minor));
  }
}

}  // namespace

std::string normal_pci(std::string_view address) {
  // Few domains need more than four digits, and only those are written with them.
  if (address.find(':') == 8 && address.starts_with("0000")) address.remove_prefix(4);
  std::string text(address);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

DeviceInfo identify(Session& session, unsigned index, const Facts& system) {
  DeviceInfo info;
  info.kind = DeviceInfo::Kind::gpu;
  info.backend = "nvml";
  info.index = static_cast<std::uint16_t>(index);
  abi::Return r = session.why(index);
  if (r == abi::kSuccess) {
    get_pci(session, index, info);
    r = get_text(session, index, session.api.uuid, info.id);
  }
  if (r != abi::kSuccess) {
    info.lost = true;
    return info;
  }
  session.set_uuid(index, info.id);
  (void)get_text(session, index, session.api.name, info.model);
  info.facts = system;
  get_partitions(session, index, info);
  get_facts(session, index, info);
  return info;
}

std::optional<Simulation> simulation(const Api& api) {
  const char* folder = api.sim_session ? api.sim_session() : nullptr;
  if (folder == nullptr) return std::nullopt;
  // A session's folder is named "SCENARIO-PID-NUMBER".
  std::string scenario = std::filesystem::path(folder).filename().string();
  for (int part = 0; part < 2; ++part) scenario = scenario.substr(0, scenario.rfind('-'));
  return Simulation{std::move(scenario), folder, "none"};
}

Facts system_facts(const Api& api) {
  Facts facts;
  if (const auto simulated = simulation(api)) add_fact(facts, "simulated", simulated->scenario);
  add_fact(facts, "driver", version(api.driver_version));
  add_fact(facts, "nvml", version(api.nvml_version));
  int cuda = 0;  // 12040 is 12.4.
  if (api.cuda_version && api.cuda_version(&cuda) == abi::kSuccess) {
    add_fact(facts, "cuda", std::to_string(cuda / 1000) + '.' + std::to_string(cuda % 1000 / 10));
  }
  return facts;
}

void find_lost(const Host& host, std::vector<Device>& devices) {
  std::vector<std::string> unclaimed;
  for (const std::string& name : list(host.root / "proc/driver/nvidia/gpus")) {
    std::string pci = normal_pci(name);
    if (std::none_of(devices.begin(), devices.end(),
                     [&](const Device& d) { return d.info.pci == pci; })) {
      unclaimed.push_back(std::move(pci));
    }
  }
  std::sort(unclaimed.begin(), unclaimed.end());
  const auto nameless = [](const Device& d) { return d.info.lost && d.info.pci.empty(); };
  const bool sure =
      std::count_if(devices.begin(), devices.end(), nameless) == std::ssize(unclaimed);
  for (auto pci = unclaimed.begin(); Device & d : devices) {
    if (sure && nameless(d)) d.info.pci = *pci++;
    if (d.info.lost && d.info.id.empty()) {
      d.info.id = d.info.pci.empty() ? "nvml-" + std::to_string(d.info.index) : d.info.pci;
    }
  }
}

}  // namespace zeus::nvml
