#include "backends/nvml/fields.h"

#include <algorithm>
#include <span>

namespace zeus::nvml {
namespace {

constexpr std::uint64_t kBlank = 140737488355328;  // 2^47: blank; with 1 to 3 more, why.
constexpr unsigned kScopeNone = 99;                // Means nothing to any driver.

Reading whole(std::int64_t value) noexcept {
  if (value < 0) return {.error = Errc::malformed};
  return {.raw = static_cast<std::uint64_t>(value)};
}

/// The answers of one call; the call's own failure where there is none.
class Probe {
 public:
  explicit Probe(Session& session, unsigned index) {
    for (std::size_t i = 0; i < kAsked.size(); ++i) {
      values_[i].field = kAsked[i].first;
      values_[i].scope = kAsked[i].second;
      values_[i].result = abi::kNotSupported;  // Until the driver says otherwise.
    }
    whole_ = session.call(index, [&](abi::Device d) {
      return session.api.fields(d, static_cast<int>(values_.size()), values_.data());
    });
  }

  abi::Return whole() const { return whole_; }
  const abi::FieldValue& at(unsigned field, unsigned scope) const {
    return *std::find_if(values_.begin(), values_.end(), [=](const abi::FieldValue& v) {
      return v.field == field && v.scope == scope;
    });
  }
  bool answers(unsigned field, unsigned scope) const {
    const auto& v = at(field, scope);
    // A driver from before there were scopes answers the GPU's value whatever is asked.
    if (scope != abi::kScopeGpu && at(field, kScopeNone).result == abi::kSuccess) return false;
    return whole_ == abi::kSuccess && v.result == abi::kSuccess && to_reading(v).error == Errc::ok;
  }

 private:
  static constexpr auto kAsked = std::to_array<std::pair<unsigned, unsigned>>({
      {abi::kFieldTotalEnergy, abi::kScopeGpu},
      {abi::kFieldEnergy, abi::kScopeGpu},
      {abi::kFieldEnergy, abi::kScopeModule},
      {abi::kFieldEnergy, kScopeNone},
      {abi::kFieldPowerInstant, abi::kScopeGpu},
      {abi::kFieldPowerInstant, abi::kScopeModule},
      {abi::kFieldPowerInstant, kScopeNone},
      {abi::kFieldPowerAverage, abi::kScopeGpu},
      {abi::kFieldPowerAverage, abi::kScopeModule},
      {abi::kFieldPowerAverage, abi::kScopeMemory},
      {abi::kFieldPowerAverage, kScopeNone},
  });
  std::array<abi::FieldValue, kAsked.size()> values_{};
  abi::Return whole_;
};

/// Whether the field counts what the counter's own call counts: seconds apart at the most.
bool agrees(Session& session, unsigned index, const abi::FieldValue& field) {
  if (!session.api.energy) return true;
  unsigned long long mj = 0;
  const auto r = session.call(index, [&](abi::Device d) { return session.api.energy(d, &mj); });
  if (r != abi::kSuccess) return true;
  constexpr std::uint64_t kClose = 100'000'000;  // 100 kJ: 5 s of 20 kW.
  const std::uint64_t a = to_reading(field).raw, b = mj;
  return (a > b ? a - b : b - a) < kClose;
}

}  // namespace

Errc judge(Quantity quantity, std::uint64_t raw, std::uint64_t most) noexcept {
  if (quantity == Quantity::power && raw == 0) return Errc::busy;
  const bool blank = quantity == Quantity::energy && (raw & ~std::uint64_t{3}) == kBlank;
  return raw > most || blank ? Errc::malformed : Errc::ok;
}

Reading to_reading(const abi::FieldValue& v) noexcept {
  if (v.result != abi::kSuccess) return {.error = to_errc(v.result)};
  switch (v.type) {
    case abi::kUnsigned: return {.raw = v.value.u32};
    case abi::kUnsignedLong: return {.raw = v.value.ul};
    case abi::kUnsignedLongLong: return {.raw = v.value.u64};
    case abi::kSignedLongLong: return whole(v.value.i64);
    case abi::kSigned: return whole(v.value.i32);
    default: return {.error = Errc::malformed};
  }
}

Fields::Fields(SessionPtr session, unsigned index, const std::vector<Field>& slots)
    : session_(std::move(session)), index_(index), size_(std::min(slots.size(), kMost)), slots_{} {
  std::copy_n(slots.begin(), size_, slots_.begin());
}

Errc Fields::read(std::span<Reading> out) noexcept {
  std::array<abi::FieldValue, kMost> values{};
  const std::size_t n = std::min(out.size(), size_);
  for (std::size_t i = 0; i < n; ++i) {
    values[i].field = slots_[i].field;
    values[i].scope = slots_[i].scope;
  }
  const auto r = session_->call(index_, [&](abi::Device d) noexcept -> abi::Return {
    const auto asked = session_->api.fields(d, static_cast<int>(n), values.data());
    if (asked != abi::kSuccess) return asked;
    // A lost GPU may be told in every slot of a call that succeeds.
    const auto first = values[0].result;
    const bool same = std::all_of(values.begin(), values.begin() + static_cast<int>(n),
                                  [first](const auto& v) { return v.result == first; });
    return same ? first : abi::kSuccess;
  });
  if (r != abi::kSuccess) return to_errc(r);
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = to_reading(values[i]);
    if (out[i].error != Errc::ok) continue;
    out[i].error = judge(slots_[i].quantity, out[i].raw, slots_[i].most);
  }
  return Errc::ok;
}

FieldsFound find_fields(Session& session, unsigned index, std::uint64_t gpu_most_mw) {
  FieldsFound found;
  if (!session.api.fields) return found;
  const Probe probe(session, index);
  const auto refused = [&](const char* name, abi::Return r) {
    const Errc e = to_errc(r);
    if (e == Errc::ok || e == Errc::unsupported || e == Errc::invalid) return;
    found.refused.push_back({name, {e, r, session.api.words(r)}});
  };
  if (probe.whole() != abi::kSuccess) {
    refused("fields", probe.whole());
    return found;
  }

  const bool gpu = probe.answers(abi::kFieldPowerInstant, abi::kScopeGpu) ||
                   probe.answers(abi::kFieldPowerAverage, abi::kScopeGpu);
  const bool module = probe.answers(abi::kFieldPowerInstant, abi::kScopeModule) ||
                      probe.answers(abi::kFieldPowerAverage, abi::kScopeModule);
  found.module_only = module && !gpu;
  const auto offer = [&](Field f) {
    if (probe.answers(f.field, f.scope)) {
      found.slots.push_back(f);
    } else {
      refused(f.name, probe.at(f.field, f.scope).result);
    }
  };

  if (probe.answers(abi::kFieldEnergy, abi::kScopeModule)) {
    found.slots.push_back({"module_energy", abi::kFieldEnergy, abi::kScopeModule, Quantity::energy,
                           Scope::module, kEnergyEverMj});
  }
  for (const unsigned field : {abi::kFieldTotalEnergy, abi::kFieldEnergy}) {
    if (!probe.answers(field, abi::kScopeGpu) ||
        !agrees(session, index, probe.at(field, abi::kScopeGpu))) {
      continue;
    }
    // Where only the module's power is known, this counter is the module's too.
    if (!found.module_only) {
      found.slots.insert(found.slots.begin(), {"energy", field, abi::kScopeGpu, Quantity::energy,
                                               Scope::gpu, kEnergyEverMj});
    } else if (found.slots.empty()) {
      found.slots.push_back(
          {"module_energy", field, abi::kScopeGpu, Quantity::energy, Scope::module, kEnergyEverMj});
    }
    break;
  }
  offer({"power_instant", abi::kFieldPowerInstant, abi::kScopeGpu, Quantity::power, Scope::gpu,
         gpu_most_mw});
  offer({"power_average", abi::kFieldPowerAverage, abi::kScopeGpu, Quantity::power, Scope::gpu,
         gpu_most_mw});
  // Boards without a sensor for their memory answer 0 W for it.
  if (to_reading(probe.at(abi::kFieldPowerAverage, abi::kScopeMemory)).raw != 0) {
    offer({"memory_power_average", abi::kFieldPowerAverage, abi::kScopeMemory, Quantity::power,
           Scope::memory, gpu_most_mw});
  }
  offer({"module_power_instant", abi::kFieldPowerInstant, abi::kScopeModule, Quantity::power,
         Scope::module, kPowerEverMw});
  offer({"module_power_average", abi::kFieldPowerAverage, abi::kScopeModule, Quantity::power,
         Scope::module, kPowerEverMw});
  return found;
}

}  // namespace zeus::nvml
