#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "backends/nvml/session.h"

namespace zeus::nvml {

/// The greatest raw values that can be honest where nothing narrower is known.
inline constexpr std::uint64_t kPowerEverMw = 20'000'000;
inline constexpr std::uint64_t kEnergyEverMj = (std::uint64_t{1} << 59) - 1;

/// What makes a raw value no reading at all: more than there can be, no power (nothing that answers
/// draws none), and the numbers by which NVIDIA's tools say "blank".
Errc judge(Quantity quantity, std::uint64_t raw, std::uint64_t most) noexcept;

/// One thing that nvmlDeviceGetFieldValues may tell, and the sensor it makes.
struct Field {
  const char* name;
  unsigned field, scope;
  Quantity quantity;
  Scope domain;
  std::uint64_t most;
};

/// The number in a field value; Errc::malformed for a type that holds none.
Reading to_reading(const abi::FieldValue& value) noexcept;

/// All fields of a GPU in one call.
class Fields final : public Source {
 public:
  static constexpr std::size_t kMost = 8;

  Fields(SessionPtr session, unsigned index, const std::vector<Field>& slots);
  Errc read(std::span<Reading> out) noexcept override;

 private:
  SessionPtr session_;
  unsigned index_;
  std::size_t size_;
  std::array<Field, kMost> slots_;
};

/// What the fields of one GPU can tell, found by asking for each of them once.
struct FieldsFound {
  std::vector<Field> slots;      ///< In the order of their slots, energies first.
  std::vector<Problem> refused;  ///< Fields that are there, but did not answer this time.
  bool module_only = false;      ///< Power answers for the module, not for the GPU alone.
};
FieldsFound find_fields(Session& session, unsigned index, std::uint64_t gpu_most_mw);

}  // namespace zeus::nvml
