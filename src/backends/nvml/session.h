#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "backends/nvml/api.h"
#include "base/fork_guard.h"
#include "device/backend.h"
#include "zeus/sensor.h"

namespace zeus::nvml {

/// When to try again what failed: at once, then after 100 ms, 200 ms ... 25 s.
class BackOff {
 public:
  bool due() const noexcept { return Clock::steady().now().time_since_epoch().count() >= next_; }
  bool armed() const noexcept { return tries_ != 0; }
  void tried() noexcept;
  void reset() noexcept;

 private:
  std::atomic<Duration::rep> next_{0};
  std::atomic<unsigned> tries_{0};
};

/// NVML between init and shutdown, anew in each forked child and after the driver was reloaded.
/// All sensors and knobs share it. GPUs are told apart by UUID, since numbers may move in a reload.
class Session final : public Driver {
 public:
  explicit Session(const Host& host) : api(host), simulated_(host.simulated) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() override { (void)shut_down(); }

  /// Opens NVML for the first time.
  Status start();

  Status release() override;
  Status acquire() override;

  unsigned count() const noexcept { return count_; }
  /// Null where the driver gave none; `why` then says its reason.
  abi::Device handle(unsigned index) const noexcept { return gpus_[index].handle.load(); }
  abi::Return why(unsigned index) const noexcept { return gpus_[index].why; }
  /// By which GPU `index` is to be found again.
  void set_uuid(unsigned index, const std::string& uuid) { gpus_[index].uuid = uuid; }

  /// Calls `f(handle)` and learns from what it answers. All calls but those of open() go this way.
  /// Never waits: where NVML is being opened anew by another thread, the answer is kNotReady.
  template <class F>
  abi::Return call(unsigned index, F&& f) noexcept {
    if (const auto r = ready(index); r != abi::kSuccess) return r;
    const abi::Return r = f(handle(index));
    if (r == abi::kSuccess) {
      works(index);
    } else {
      fails(index, r);
    }
    return r;
  }

  const Api api;

 private:
  struct Gpu {
    std::atomic<abi::Device> handle{nullptr};
    std::atomic<bool> lost{false};
    BackOff back_off;
    abi::Return why = abi::kSuccess;
    std::string uuid;
  };
  abi::Return ready(unsigned index) noexcept;
  void works(unsigned index) noexcept;
  void fails(unsigned index, abi::Return r) noexcept;
  abi::Return open_anew() noexcept;
  abi::Return shut_down() noexcept;
  template <class F>
  Errc alone(F&& f);
  Error cannot(const char* what, abi::Return r) const;
  abi::Return find(unsigned index) noexcept;

  const bool simulated_;
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};
  unsigned count_ = 0;
  std::unique_ptr<Gpu[]> gpus_;
  std::atomic<std::uint64_t> initialised_by_{kNobody};  // The fork generation that owes a shutdown.
  std::atomic<unsigned> unknowns_{0};                   // Answers of 999 with no success between.
  std::atomic<bool> released_{false};                   // On purpose: nobody opens it anew.
  BackOff back_off_;
  ForkGuard guard_;
};
using SessionPtr = std::shared_ptr<Session>;

}  // namespace zeus::nvml
