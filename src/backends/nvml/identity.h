#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "backends/nvml/session.h"

namespace zeus::nvml {

/// NVML's "00000000:C1:00.0" as the rest of the world writes it: "0000:c1:00.0".
std::string normal_pci(std::string_view address);

using Facts = decltype(DeviceInfo::facts);

/// Set where the library is a simulated one, by whatever way it came to be loaded.
std::optional<Simulation> simulation(const Api& api);

/// What is the same for all GPUs: "driver", "nvml", "cuda", and "simulated" where it is so.
Facts system_facts(const Api& api);

/// Who GPU `index` is. Anything that it does not tell stays empty; a GPU that tells not even its
/// UUID is `lost`. Facts: those of the system, "architecture", "compute".
DeviceInfo identify(Session& session, unsigned index, const Facts& system);

/// Fills in the PCI addresses of lost GPUs, as far as the kernel driver's list of GPUs leaves no
/// doubt: those that no living GPU has, in order.
void find_lost(const Host& host, std::vector<Device>& devices);

}  // namespace zeus::nvml
