#include "backends/nvml/knobs.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

namespace zeus::nvml {
namespace {

/// What all knobs of a GPU share: the way to it, and words for what fails.
class GpuKnob : public Knob {
 public:
  GpuKnob(SessionPtr session, unsigned index, std::string subject)
      : session_(std::move(session)), index_(index), subject_(std::move(subject)) {}

 protected:
  template <class F>
  Status call(const char* name, F&& f) {
    const auto r = session_->call(index_, std::forward<F>(f));
    if (r == abi::kSuccess) return ok();
    Error error = session_->api.failed(name, subject_, r);
    if (error.code == Errc::denied) error.detail += "; run as root or through zeusd";
    return error;
  }
  const Api& api() const { return session_->api; }
  Session& session() const { return *session_; }
  unsigned index() const { return index_; }
  const std::string& subject() const { return subject_; }

 private:
  SessionPtr session_;
  unsigned index_;
  std::string subject_;
};

/// A value that NVML gets and sets as one unsigned number.
class Plain final : public GpuKnob {
 public:
  struct Calls {
    const char *get_name, *set_name;
    Optional<abi::GetUnsigned> Api::*get;
    Optional<abi::SetUnsigned> Api::*set;
    double scale;  ///< One raw unit in SI.
  };
  static constexpr Calls kLimit{"nvmlDeviceGetPowerManagementLimit",
                                "nvmlDeviceSetPowerManagementLimit", &Api::limit, &Api::set_limit,
                                1e-3};
  static constexpr Calls kPersistence{"nvmlDeviceGetPersistenceMode",
                                      "nvmlDeviceSetPersistenceMode", &Api::persistence,
                                      &Api::set_persistence, 1};

  Plain(const SessionPtr& session, unsigned index, const std::string& subject, const Calls& calls)
      : GpuKnob(session, index, subject), calls_(calls) {}

  Result<Setting> get() override {
    const auto raw = get_raw();
    if (!raw) return raw.error();
    return Setting(*raw * calls_.scale);
  }

  Status set(Setting setting) override {
    const auto raw = static_cast<unsigned>(std::lround(setting.low / calls_.scale));
    auto done = call(calls_.set_name, [&](abi::Device d) { return (api().*calls_.set)(d, raw); });
    if (!done) return done;
    const auto now = get_raw();
    if (!now) return now.error();
    if (*now == raw) return ok();
    return Error{Errc::malformed, 0,
                 std::string(calls_.set_name) + " on " + subject() + " was accepted for " +
                     std::to_string(raw) + ", but it reads back as " + std::to_string(*now)};
  }

 private:
  Result<unsigned> get_raw() {
    unsigned raw = 0;
    auto done = call(calls_.get_name, [&](abi::Device d) { return (api().*calls_.get)(d, &raw); });
    if (!done) return done.error();
    return raw;
  }
  Calls calls_;
};

/// A list of clocks in MHz, of which NVML first says the length.
template <class F>
Result<std::vector<unsigned>> clocks(Session& session, unsigned index, const char* name, F&& ask) {
  unsigned count = 0;
  auto r = session.call(index, [&](abi::Device d) { return ask(d, &count, nullptr); });
  std::vector<unsigned> mhz(r == abi::kSuccess || r == abi::kInsufficientSize ? count : 0);
  if (!mhz.empty()) {
    r = session.call(index, [&](abi::Device d) { return ask(d, &count, mhz.data()); });
    mhz.resize(std::min<std::size_t>(count, mhz.size()));
  }
  if (r != abi::kSuccess) return session.api.failed(name, "GPU " + std::to_string(index), r);
  return mhz;
}

Result<std::vector<unsigned>> memory_clocks(Session& session, unsigned index) {
  return clocks(session, index, "nvmlDeviceGetSupportedMemoryClocks",
                [&](abi::Device d, unsigned* n, unsigned* mhz) {
                  return session.api.memory_clocks(d, n, mhz);
                });
}

Result<std::vector<unsigned>> sm_clocks(Session& session, unsigned index, unsigned memory_mhz) {
  return clocks(session, index, "nvmlDeviceGetSupportedGraphicsClocks",
                [&](abi::Device d, unsigned* n, unsigned* mhz) {
                  return session.api.sm_clocks(d, memory_mhz, n, mhz);
                });
}

unsigned highest(const std::vector<unsigned>& mhz) {
  return mhz.empty() ? 0 : *std::max_element(mhz.begin(), mhz.end());
}

/// Locked clocks. NVML cannot say whether and where clocks are locked, so that this knob knows only
/// what its own process did: 0 until then.
class ClockLock final : public GpuKnob {
 public:
  struct Calls {
    const char *lock_name, *unlock_name;
    Optional<abi::SetRange> Api::*lock;
    Optional<abi::Reset> Api::*unlock;
    bool memory;
  };
  static constexpr Calls kSm{"nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks",
                             &Api::lock_sm_clock, &Api::unlock_sm_clock, false};
  static constexpr Calls kMemory{"nvmlDeviceSetMemoryLockedClocks",
                                 "nvmlDeviceResetMemoryLockedClocks", &Api::lock_memory_clock,
                                 &Api::unlock_memory_clock, true};

  ClockLock(const SessionPtr& session, unsigned index, const std::string& subject,
            const Calls& calls)
      : GpuKnob(session, index, subject), calls_(calls) {}

  Result<Setting> get() override {
    const std::lock_guard lock(mutex_);
    return locked_;
  }

  Status set(Setting hertz) override {
    const auto mhz = [](double f) { return static_cast<unsigned>(std::lround(f * 1e-6)); };
    const unsigned low = mhz(hertz.low), high = mhz(hertz.high);
    auto done = high == 0 ? call(calls_.unlock_name,
                                 [&](abi::Device d) { return (api().*calls_.unlock)(d); })
                          : call(calls_.lock_name,
                                 [&](abi::Device d) { return (api().*calls_.lock)(d, low, high); });
    if (done) {
      const std::lock_guard lock(mutex_);
      locked_ = {low * 1e6, high * 1e6};
    }
    return done;
  }

  Result<std::vector<double>> choices(double memory_hz) override {
    auto mhz = memory_clocks(session(), index());
    if (mhz && !calls_.memory) {
      mhz = sm_clocks(
          session(), index(),
          memory_hz > 0 ? static_cast<unsigned>(std::lround(memory_hz * 1e-6)) : highest(*mhz));
    }
    if (!mhz) return mhz.error();
    std::vector<double> hertz(mhz->size());
    std::transform(mhz->begin(), mhz->end(), hertz.begin(), [](unsigned f) { return f * 1e6; });
    return hertz;
  }

 private:
  Calls calls_;
  std::mutex mutex_;
  Setting locked_;
};

}  // namespace

LimitRange limit_range(Session& session, unsigned index) {
  const Api& api = session.api;
  LimitRange range;
  if (!api.limit_range || session.call(index, [&](abi::Device d) {
        return api.limit_range(d, &range.min, &range.max);
      }) != abi::kSuccess) {
    return {};
  }
  range.standard = range.max;
  if (api.default_limit) {
    unsigned standard = 0;
    const auto r =
        session.call(index, [&](abi::Device d) { return api.default_limit(d, &standard); });
    if (r == abi::kSuccess) range.standard = standard;
  }
  return range;
}

void add_knobs(const SessionPtr& session, unsigned index, const LimitRange& limits, Device& device,
               Machine& part) {
  const Api& api = session->api;
  const std::string& gpu = device.info.id;
  const auto add = [&](KnobInfo info, auto knob) {
    info.knob = knob.get();
    device.knobs.push_back(std::move(info));
    part.owned.push_back(std::move(knob));
  };
  // One that fails for now is there all the same, and says why when it is asked.
  const auto works = [](Knob& knob) {
    const auto now = knob.get();
    return now || (now.error().code != Errc::unsupported && now.error().code != Errc::invalid);
  };

  if (limits.max != 0 && api.limit && api.set_limit) {
    auto knob = std::make_shared<Plain>(session, index, gpu, Plain::kLimit);
    if (works(*knob)) {
      add({"power_limit", Quantity::power, limits.min * 1e-3, limits.max * 1e-3,
           limits.standard * 1e-3},
          std::move(knob));
    }
  }
  if (api.memory_clocks && api.sm_clocks) {
    const auto memory = memory_clocks(*session, index);
    const unsigned top = memory ? highest(*memory) : 0;
    const auto sm = sm_clocks(*session, index, top);
    const auto add_lock = [&](const char* name, const Result<std::vector<unsigned>>& found,
                              const ClockLock::Calls& calls) {
      if (!found || found->empty() || !(api.*calls.lock) || !(api.*calls.unlock)) return;
      const auto [low, high] = std::minmax_element(found->begin(), found->end());
      add({name, Quantity::clock, *low * 1e6, *high * 1e6, 0, nullptr, true},
          std::make_shared<ClockLock>(session, index, gpu, calls));
    };
    if (top != 0) add_lock("sm_clock", sm, ClockLock::kSm);
    add_lock("memory_clock", memory, ClockLock::kMemory);
  }
  if (api.persistence && api.set_persistence) {
    auto knob = std::make_shared<Plain>(session, index, gpu, Plain::kPersistence);
    if (works(*knob)) add({"persistence", Quantity::state, 0, 1, 0}, std::move(knob));
  }
}

}  // namespace zeus::nvml
