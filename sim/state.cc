#include "sim/state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <new>

#include "base/files.h"

namespace zeus::sim {

namespace {

constexpr std::uint64_t kMagic = 0x6d69732d7375657a;  // "zeus-sim"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kLongLog = 1 << 20, kShortLog = 1 << 12;
// Entries this close to being overwritten are no longer read.
constexpr std::uint64_t kMargin = 64;

Ns monotonic() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

struct State::Header {
  std::atomic<std::uint64_t> magic;  // Written last.
  std::uint32_t version;
  std::uint32_t devices;
  Ns epoch;
  pthread_mutex_t mutex;
  std::atomic<std::uint64_t> calls[128];
  std::atomic<std::uint64_t> hits[128 + kFaults];
  std::atomic<std::uint32_t> faults;
  std::atomic<bool> fault_set[kFaults];
  Fault fault[kFaults];
};

// Rows of devices follow the header; their logs follow the rows.
namespace {
constexpr std::size_t kRows = 65536;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
}  // namespace

State::Header& State::header() const noexcept {
  static_assert(sizeof(Header) <= kRows);
  return *std::launder(reinterpret_cast<Header*>(base_));
}

Result<State> State::create(const std::filesystem::path& file, const Scenario& scenario) {
  const Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0) return file_error("create", file, errno);
  const std::size_t devices = scenario.gpus.size() + scenario.zones.size();
  const auto power = [&](std::size_t i) -> const Power& {
    return i < scenario.gpus.size() ? scenario.gpus[i].power
                                    : scenario.zones[i - scenario.gpus.size()].power;
  };
  std::size_t size = kRows + devices * sizeof(DeviceState);
  size = (size + 4095) / 4096 * 4096;
  const std::size_t logs = size;
  for (std::size_t i = 0; i < devices; ++i) {
    size += (power(i).follow ? kLongLog : kShortLog) * sizeof(Segment);
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return file_error("grow", file, errno);
  void* const map = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) return file_error("map", file, errno);
  ::madvise(map, size, MADV_RANDOM);  // Mostly holes: reading ahead would fill them with zeros.

  State state(static_cast<std::byte*>(map), size);
  Header& h = *new (map) Header{};
  h.version = kVersion;
  h.devices = static_cast<std::uint32_t>(devices);
  pthread_mutexattr_t shared;
  pthread_mutexattr_init(&shared);
  pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&h.mutex, &shared);
  pthread_mutexattr_destroy(&shared);

  std::size_t offset = logs;
  for (std::size_t i = 0; i < devices; ++i) {
    auto* d = new (state.base_ + kRows + i * sizeof(DeviceState)) DeviceState{};
    d->capacity = power(i).follow ? kLongLog : kShortLog;
    d->offset = offset;
    offset += d->capacity * sizeof(Segment);
    double limit = kNoLimit;
    if (i < scenario.gpus.size()) {
      const Gpu& gpu = scenario.gpus[i];
      if (gpu.limit) limit = gpu.limit->standard;
      d->persistence = gpu.persistence;
    }
    state.publish(i, {0, 0, 0, limit});
  }
  h.epoch = monotonic();
  h.magic.store(kMagic, std::memory_order_release);
  return state;
}

Result<State> State::open(const std::filesystem::path& file, const Scenario& scenario) {
  const Fd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  struct stat info {};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0) return file_error("open", file, errno);
  const auto size = static_cast<std::size_t>(info.st_size);
  void* const map = size < kRows
                        ? MAP_FAILED
                        : ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) return file_error("map", file, size < kRows ? EINVAL : errno);
  State state(static_cast<std::byte*>(map), size);
  const Header& h = state.header();
  if (h.magic.load(std::memory_order_acquire) != kMagic || h.version != kVersion ||
      h.devices != scenario.gpus.size() + scenario.zones.size()) {
    return Error{Errc::malformed, 0,
                 file.string() + " is not the state of this scenario; start the session anew"};
  }
  return state;
}

State::~State() {
  if (base_ != nullptr) ::munmap(base_, size_);
}

Ns State::epoch() const noexcept { return header().epoch; }
Ns State::now() const noexcept { return monotonic() - header().epoch; }
std::size_t State::devices() const noexcept { return header().devices; }

DeviceState& State::device(std::size_t i) const noexcept {
  return *std::launder(reinterpret_cast<DeviceState*>(base_ + kRows + i * sizeof(DeviceState)));
}

Segment* State::log(std::size_t i) const noexcept {
  return std::launder(reinterpret_cast<Segment*>(base_ + device(i).offset));
}

Segment State::last(std::size_t i) const noexcept {
  const DeviceState& d = device(i);
  return log(i)[(d.written.load(std::memory_order_acquire) - 1) % d.capacity];
}

Segment State::at(std::size_t i, Ns t) const noexcept {
  const DeviceState& d = device(i);
  const Segment* const entries = log(i);
  const std::uint64_t written = d.written.load(std::memory_order_acquire);
  std::uint64_t low = written + kMargin > d.capacity ? written + kMargin - d.capacity : 0;
  std::uint64_t high = written - 1;  // Most questions are about now.
  if (entries[high % d.capacity].begin <= t) return entries[high % d.capacity];
  while (low < high) {
    const std::uint64_t middle = low + (high - low + 1) / 2;
    if (entries[middle % d.capacity].begin <= t) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return entries[low % d.capacity];
}

bool State::too_old(std::size_t i, Ns t) const noexcept {
  const DeviceState& d = device(i);
  const std::uint64_t written = d.written.load(std::memory_order_acquire);
  return written + kMargin > d.capacity && at(i, t).begin > t;
}

void State::publish(std::size_t i, const Segment& s) noexcept {
  DeviceState& d = device(i);
  const std::uint64_t n = d.written.load(std::memory_order_relaxed);
  log(i)[n % d.capacity] = s;
  d.written.store(n + 1, std::memory_order_release);
}

State::Lock::Lock(State& s) noexcept : state_(s) {
  // A holder that died has published all or nothing: what it left is sound.
  if (pthread_mutex_lock(&state_.header().mutex) == EOWNERDEAD) {
    pthread_mutex_consistent(&state_.header().mutex);
  }
}

State::Lock::~Lock() { pthread_mutex_unlock(&state_.header().mutex); }

void State::count(std::size_t call) const noexcept {
  header().calls[call].fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t State::calls(std::size_t call) const noexcept {
  return header().calls[call].load(std::memory_order_relaxed);
}

std::optional<std::size_t> State::add_fault(const Fault& fault) noexcept {
  const Lock lock(*this);
  Header& h = header();
  const std::uint32_t slot = h.faults.load(std::memory_order_relaxed);
  if (slot == kFaults) return std::nullopt;
  h.fault[slot] = fault;
  h.fault_set[slot].store(true, std::memory_order_relaxed);
  h.faults.store(slot + 1, std::memory_order_release);
  return slot;
}

void State::remove_fault(std::size_t slot) noexcept {
  header().fault_set[slot].store(false, std::memory_order_release);
}

std::size_t State::fault_count() const noexcept {
  return header().faults.load(std::memory_order_acquire);
}

const Fault* State::fault(std::size_t slot) const noexcept {
  const Header& h = header();
  return h.fault_set[slot].load(std::memory_order_acquire) ? &h.fault[slot] : nullptr;
}

std::uint64_t State::hit(std::size_t number) const noexcept {
  return header().hits[number].fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace zeus::sim
