#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "readers.h"
#include "zeus/device.h"

namespace zeus::zeusd {

/// A sensor as the wire has it.
struct Channel {
  Feed* feed = nullptr;
  unsigned slot = 0;
  double scale = 0;  ///< One raw unit in the unit of the wire: mW, mJ or uJ.
  SensorInfo info{};

  /// A level, or a counter as it reads, wraps added.
  std::uint64_t on_wire(const Value& value) const noexcept;
};

struct Gpu {
  unsigned id = 0;
  const Device* device = nullptr;
  std::string pci{};  ///< "0000:41:00.0".
  std::optional<Channel> power{}, energy{};
  std::optional<Channel> limit{}, persistent{};  ///< What knobs are set to: mW, and 0 or 1.
  const KnobInfo *power_limit = nullptr, *persistence = nullptr, *sm_clock = nullptr,
                 *memory_clock = nullptr;
};

struct Cpu {
  unsigned id = 0;
  const Device* device = nullptr;
  std::optional<Channel> package{}, dram{};
  bool guarded = true;  ///< Its counters are not for everybody to read in the file system.
};

/// The machine as clients see it: devices by the numbers of the wire. Fixed once made.
class Node {
 public:
  /// `readers` must outlive it. Devices that do not answer stay listed.
  Node(Machine machine, Readers& readers, bool gpus, bool cpus);

  const Machine& machine() const noexcept { return machine_; }
  const std::vector<Gpu>& gpus() const noexcept { return gpus_; }
  const std::vector<Cpu>& cpus() const noexcept { return cpus_; }
  /// All that is read of GPUs, each once.
  std::vector<Feed*> gpu_feeds() const;
  const Gpu* gpu(unsigned id) const noexcept;
  const Cpu* cpu(unsigned id) const noexcept;

 private:
  void add_gpu(const Device& device, Readers& readers);
  void add_cpu(const Device& device, Readers& readers);
  std::optional<Channel> read_knob(const Device& device, const KnobInfo* knob, double scale,
                                   Readers& readers);

  Machine machine_;
  std::vector<std::unique_ptr<Source>> knobs_;  ///< Knobs, read as sensors are.
  std::vector<Gpu> gpus_;
  std::vector<Cpu> cpus_;
};

}  // namespace zeus::zeusd
