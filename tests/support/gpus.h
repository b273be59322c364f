#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "zeus/device.h"

namespace zeus::test {

/// A GPU as a backend lists it, with an energy counter that nobody reads.
inline Device gpu(std::uint16_t index, const std::string& id, const std::string& model = "H100",
                  std::vector<std::string> partitions = {}) {
  DeviceInfo info;
  info.kind = DeviceInfo::Kind::gpu;
  info.backend = "nvml";
  info.model = model;
  info.id = id;
  info.index = index;
  info.pci = "0000:" + std::to_string(index) + "1:00.0";
  info.partitioned = !partitions.empty();
  info.partitions = std::move(partitions);
  SensorInfo energy;
  energy.name = "energy";
  energy.quantity = Quantity::energy;
  energy.domain = {Scope::gpu, index};
  return {std::move(info), {{energy, nullptr, 0}}, {}};
}

/// Four of a kind: the UUIDs are made up, two of them begin alike.
inline Machine four_gpus() {
  Machine machine;
  machine.devices = {gpu(0, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"),
                     gpu(1, "GPU-11111111-0000-4000-8000-000000000001"),
                     gpu(2, "GPU-11112222-0000-4000-8000-000000000002"),
                     gpu(3, "GPU-33333333-0000-4000-8000-000000000003")};
  return machine;
}

}  // namespace zeus::test
