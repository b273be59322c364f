#include "backends/nvml/session.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace zeus::nvml {
namespace {

/// The way out of a failed init.
const char* advice(abi::Return r) {
  switch (r) {
    case abi::kDriverNotLoaded:
      return "; the kernel driver is not loaded: modprobe nvidia, and dmesg says why if that fails";
    case abi::kLibraryNotFound:
      return "; the library is here without the rest of the driver: install the whole driver, or "
             "start the container with its GPUs (--gpus all)";
    case abi::kLibRmVersionMismatch:
      return "; the driver was updated while the old kernel module kept running: reload the module "
             "or reboot, and restart a container that mounts the old library";
    case abi::kNoPermission:
      return "; this user may not open /dev/nvidiactl: join the group that owns it";
    case abi::kUnknown:
      return "; in a container that has run for a while its right to the device files was taken "
             "away (systemctl daemon-reload does that): restart the container";
    default: return "";
  }
}

constexpr unsigned kUnknownsBeforeAnew = 4;
constexpr std::chrono::seconds kPatience(5);

}  // namespace

void BackOff::tried() noexcept {
  const unsigned n = std::min(tries_.fetch_add(1), 8U);
  const auto wait = std::chrono::nanoseconds(std::chrono::milliseconds(100)) * (1U << n);
  next_ = (Clock::steady().now().time_since_epoch() + wait).count();
}

void BackOff::reset() noexcept {
  tries_ = 0;
  next_ = 0;
}

Status Session::start() {
  if (!api.lib.loaded()) {
    if (simulated_ && api.lib.absent()) {
      return Error{Errc::absent, 0, "the scenario has no NVIDIA GPU"};
    }
    return Error{Errc::absent, 0,
                 api.lib.absent() ? "cannot load libnvidia-ml.so.1: no NVIDIA driver here, or the "
                                    "container was started without it"
                                  : "cannot load NVIDIA's library: " + api.lib.why() +
                                        "; install the NVIDIA driver anew"};
  }
  if (!api.lib.missing().empty()) {
    return Error{Errc::unsupported, 0,
                 "cannot use libnvidia-ml: it lacks " + api.lib.missing().front() +
                     "; update the NVIDIA driver"};
  }
  if (const auto r = api.init(); r != abi::kSuccess) return cannot("open NVML", r);
  initialised_by_ = fork_generation();
  if (const auto r = api.count(&count_); r != abi::kSuccess) return cannot("count the GPUs", r);
  gpus_ = std::make_unique<Gpu[]>(count_);
  for (unsigned i = 0; i < count_; ++i) gpus_[i].why = find(i);
  return ok();
}

Error Session::cannot(const char* what, abi::Return r) const {
  const bool nothing = r == abi::kDriverNotLoaded || r == abi::kLibraryNotFound;
  return {nothing ? Errc::absent : to_errc(r), r,
          std::string("cannot ") + what + ": " + api.words(r) + advice(r)};
}

abi::Return Session::find(unsigned index) noexcept {
  Gpu& gpu = gpus_[index];
  abi::Device handle = nullptr;
  const auto r = api.handle_by_uuid && !gpu.uuid.empty()
                     ? api.handle_by_uuid(gpu.uuid.c_str(), &handle)
                     : api.handle(index, &handle);
  gpu.handle = r == abi::kSuccess ? handle : nullptr;
  gpu.lost = r != abi::kSuccess;
  return r;
}

abi::Return Session::ready(unsigned index) noexcept {
  abi::Return opened = abi::kSuccess;
  const Errc e = guard_.enter([&]() noexcept {
    opened = open_anew();
    return to_errc(opened);
  });
  if (opened != abi::kSuccess) return opened;
  if (e != Errc::ok) return abi::kNotReady;  // Another thread is at it.

  Gpu& gpu = gpus_[index];
  if (!gpu.lost) return abi::kSuccess;
  if (!gpu.back_off.due()) return abi::kGpuIsLost;
  gpu.back_off.tried();
  return find(index);
}

void Session::works(unsigned index) noexcept {
  if (unknowns_ != 0) unknowns_ = 0;
  if (back_off_.armed()) back_off_.reset();
  if (gpus_[index].back_off.armed()) gpus_[index].back_off.reset();
}

void Session::fails(unsigned index, abi::Return r) noexcept {
  switch (r) {
    case abi::kGpuIsLost:
    case abi::kResetRequired:
      gpus_[index].lost = true;
      if (!gpus_[index].back_off.armed()) gpus_[index].back_off.tried();
      break;
    case abi::kUninitialized:
    case abi::kDriverNotLoaded:
    case abi::kLibRmVersionMismatch: guard_.close(); break;
    case abi::kUnknown:
      // One GPU, or one call, may answer this for reasons of its own. If nothing else is heard it
      // is the session that went bad.
      if (unknowns_.fetch_add(1) + 1 >= kUnknownsBeforeAnew) guard_.close();
      break;
    default: break;
  }
}

abi::Return Session::open_anew() noexcept {
  if (released_) return abi::kNotReady;
  if (!back_off_.due()) return abi::kUninitialized;
  back_off_.tried();
  (void)shut_down();
  if (const auto r = api.init(); r != abi::kSuccess) return r;
  initialised_by_ = fork_generation();
  unknowns_ = 0;
  for (unsigned i = 0; i < count_; ++i) (void)find(i);
  return abi::kSuccess;
}

abi::Return Session::shut_down() noexcept {
  // A parent's reference is not a child's to give back.
  const bool ours = initialised_by_.exchange(kNobody) == fork_generation();
  return ours ? api.shutdown() : abi::kSuccess;
}

/// Calls `f` where readers open NVML anew, so that none of them does so meanwhile. What was open
/// counts as closed before it. The result is that of `f`; busy where a reader does not come back.
template <class F>
Errc Session::alone(F&& f) {
  const Instant until = Clock::steady().now() + kPatience;
  while (true) {
    bool called = false;
    guard_.close();
    const Errc e = guard_.enter([&]() noexcept {
      called = true;
      return f();
    });
    if (called || Clock::steady().now() >= until) return e;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Status Session::release() {
  released_ = true;
  abi::Return closed = abi::kNotReady;
  (void)alone([&]() noexcept {
    closed = shut_down();
    return Errc::busy;  // It stays closed.
  });
  if (closed == abi::kSuccess) return ok();
  released_ = false;
  return cannot("let go of NVML", closed);
}

Status Session::acquire() {
  if (!released_) return ok();
  abi::Return opened = abi::kNotReady;
  (void)alone([&]() noexcept {
    released_ = false;
    back_off_.reset();
    opened = open_anew();
    return to_errc(opened);
  });
  released_ = false;
  return opened == abi::kSuccess ? ok() : Status(cannot("open NVML again", opened));
}

}  // namespace zeus::nvml
