#include "backends/nvml/processes.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "zeus/processes.h"

namespace zeus::nvml {
namespace {

using std::chrono::microseconds;

class Processes final : public ProcessSource {
 public:
  Processes(SessionPtr session, unsigned index, const DeviceInfo& info)
      : session_(std::move(session)),
        index_(index),
        subject_(info.id),
        partitioned_(info.partitioned) {}

  Result<std::vector<ProcessUse>> since(microseconds mark) override {
    const auto after =
        static_cast<unsigned long long>(std::max<microseconds::rep>(mark.count(), 0));
    std::vector<abi::ProcessUtilization> samples;
    const auto r = list(samples, [&](abi::Device d, unsigned* n, abi::ProcessUtilization* out) {
      return api().process_utilization(d, out, n, after);
    });
    std::vector<ProcessUse> uses;
    if (r == abi::kNotFound) return uses;  // Nobody has used it since.
    if (r != abi::kSuccess) return failed("nvmlDeviceGetProcessUtilization", r);
    for (const abi::ProcessUtilization& s : samples) {
      // Drivers leave slots of the list as they found them: too old, or beyond the possible.
      if (s.pid == 0 || s.timestamp_us <= after || s.sm > 100) continue;
      uses.push_back({static_cast<int>(s.pid),
                      microseconds(static_cast<microseconds::rep>(s.timestamp_us)), s.sm * 1e-2});
    }
    return uses;
  }

  Result<std::vector<int>> resident() override {
    std::vector<abi::ProcessInfo> infos;
    const auto r = list(infos, [&](abi::Device d, unsigned* n, abi::ProcessInfo* out) {
      return api().processes(d, n, out);
    });
    if (r != abi::kSuccess) return failed("nvmlDeviceGetComputeRunningProcesses", r);
    std::vector<int> pids;
    for (const abi::ProcessInfo& p : infos) pids.push_back(static_cast<int>(p.pid));
    return pids;
  }

 private:
  const Api& api() const { return session_->api; }

  /// A list of which the driver first says the length, and which may have grown when it is asked
  /// for.
  template <class T, class F>
  abi::Return list(std::vector<T>& out, F&& ask) {
    constexpr int kTries = 4;
    for (int i = 0; i < kTries; ++i) {
      auto count = static_cast<unsigned>(out.size());
      const auto r = session_->call(index_, [&](abi::Device d) {
        return ask(d, &count, out.empty() ? nullptr : out.data());
      });
      if (r != abi::kInsufficientSize) {
        out.resize(r == abi::kSuccess ? std::min<std::size_t>(count, out.size()) : 0);
        return r;
      }
      out.assign(count + 8, {});
    }
    return abi::kInsufficientSize;
  }

  Error failed(const char* call, abi::Return r) const {
    if (r == abi::kNotSupported && partitioned_) {
      return {Errc::unsupported, r, "NVML gives no process utilisation while MIG is on"};
    }
    return api().failed(call, subject_, r);
  }

  SessionPtr session_;
  unsigned index_;
  std::string subject_;
  bool partitioned_;
};

}  // namespace

void add_processes(const SessionPtr& session, unsigned index, Device& device, Machine& part) {
  if (!session->api.process_utilization || !session->api.processes) return;
  auto source = std::make_shared<Processes>(session, index, device.info);
  device.processes = source.get();
  part.owned.push_back(std::move(source));
}

}  // namespace zeus::nvml
