#include "sim/session.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>

#include "base/files.h"
#include "sim/follow.h"
#include "sim/powercap.h"

namespace zeus::sim {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";
constexpr std::chrono::hours kKept{24};

// Folder of the object file (library or program) that this code is in.
fs::path own_folder() {
  Dl_info info{};
  static const char here = 0;
  if (::dladdr(&here, &info) == 0) return {};
  std::error_code ec;
  fs::path file = fs::canonical(info.dli_fname, ec);
  if (ec) file = fs::read_symlink("/proc/self/exe", ec);  // A program run by its bare name.
  return file.parent_path();
}

// Where sim/ and scenarios/ lie: beside the library, or in lib/ above a program.
fs::path data_folder() {
  std::error_code ec;
  fs::path at = own_folder();
  for (int level = 0; level < 5 && !at.empty(); ++level, at = at.parent_path()) {
    for (const char* below : {"zeus", "lib/zeus", ZEUS_SIM_LIBDIR "/zeus"}) {
      if (fs::is_directory(at / below / "scenarios", ec)) return at / below;
    }
  }
  return {};
}

// The folder of all sessions of this user, which nobody else can write to.
Result<fs::path> sessions_folder(bool make) {
  const char* const chosen = ::secure_getenv("TMPDIR");
  std::vector<fs::path> places;
  // Paths travel in 512 bytes.
  if (chosen != nullptr && *chosen == '/' && std::string_view(chosen).size() < 300) {
    places.emplace_back(chosen);
  }
  places.emplace_back("/tmp");
  Error last;
  for (const fs::path& place : places) {
    const fs::path folder = place / ("zeus-sim-" + std::to_string(::geteuid()));
    if (make) ::mkdir(folder.c_str(), 0700);
    struct stat info {};
    if (::lstat(folder.c_str(), &info) != 0) {
      last = file_error("create", folder, errno);
    } else if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 0077) != 0) {
      last = {Errc::denied, 0,
              folder.string() + " is not a private folder of this user; remove it"};
    } else {
      return folder;
    }
  }
  return last;
}

// Held by its owner until it dies. Descriptor, or -1.
int take_lock(const fs::path& file, int flags) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  if (fd < 0) return -1;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

// One process at a time makes or removes sessions, so that none is taken for dead while it is born.
class Births {
 public:
  explicit Births(const fs::path& sessions)
      : fd_(::open((sessions / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    ::flock(fd_.get(), LOCK_EX);
  }

 private:
  Fd fd_;
};

void remove_parts(const fs::path& folder) {
  unmount(folder / "root/sys/class/powercap");
  std::error_code ec;
  fs::remove_all(folder / "root", ec);
  fs::remove_all(folder / "lib", ec);
}

// What is kept for questions about the truth: a day, and not more than the youngest hundred.
void collect(const fs::path& sessions) {
  constexpr std::size_t kMost = 100;
  std::error_code ec;
  std::vector<std::pair<fs::file_time_type, fs::path>> ended;
  for (const std::string& name : zeus::list(sessions)) {
    const fs::path folder = sessions / name;
    if (!fs::is_directory(folder, ec)) continue;
    const Fd lock(take_lock(folder / "lock", 0));
    if (lock.get() < 0 && fs::exists(folder / "lock", ec)) continue;  // It lives.
    if (fs::exists(folder / "root", ec) || fs::exists(folder / "lib", ec)) remove_parts(folder);
    ended.emplace_back(fs::last_write_time(folder, ec), folder);
  }
  std::sort(ended.rbegin(), ended.rend());
  const auto oldest = fs::file_time_type::clock::now() - kKept;
  for (std::size_t i = 0; i < ended.size(); ++i) {
    if (i >= kMost || ended[i].first < oldest) fs::remove_all(ended[i].second, ec);
  }
}

Result<fs::path> make_folder(const fs::path& sessions, const std::string& name) {
  static std::atomic<unsigned> number{0};
  std::string plain = name.substr(0, 40);
  for (char& c : plain) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  }
  while (true) {
    const fs::path folder = sessions / (plain + "-" + std::to_string(::getpid()) + "-" +
                                        std::to_string(number.fetch_add(1)));
    if (::mkdir(folder.c_str(), 0700) == 0) return folder;
    if (errno != EEXIST) return file_error("create", folder, errno);
  }
}

Result<fs::path> scenario_file(const std::string& what) {
  if (what.find('/') != std::string::npos || what.ends_with(".toml")) return fs::path(what);
  std::string names;
  for (const BuiltIn& b : list()) {
    if (b.name == what) return b.file;
    names += (names.empty() ? "" : ", ") + b.name;
  }
  return Error{Errc::absent, 0,
               "there is no simulated machine `" + what + "`; known are " +
                   (names.empty() ? "none: the folder zeus/scenarios is not installed" : names) +
                   ", or give the path of a scenario file"};
}

}  // namespace

std::vector<BuiltIn> list() {
  std::vector<BuiltIn> out;
  const fs::path folder = data_folder() / "scenarios";
  for (const std::string& name : zeus::list(folder)) {
    const fs::path file = folder / name;
    if (file.extension() != ".toml") continue;
    Result<Scenario> s = read_scenario(file);
    out.push_back({file.stem().string(), s ? s->description : s.error().detail, file});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

Session::Session(fs::path folder, Machine machine)
    : folder_(std::move(folder)), machine_(std::move(machine)) {}

Result<std::unique_ptr<Session>> Session::create(const std::string& what) {
  std::error_code ec;
  if (fs::is_directory(what, ec)) return join(what);
  Result<fs::path> file = scenario_file(what);
  if (!file) return file.error();
  Result<Scenario> scenario = read_scenario(*file);
  if (!scenario) return scenario.error();
  Result<std::string> text = portable_text(*file);
  if (!text) return text.error();

  Result<fs::path> sessions = sessions_folder(true);
  if (!sessions) return sessions.error();
  const Births one_at_a_time(*sessions);
  collect(*sessions);
  Result<fs::path> folder = make_folder(*sessions, scenario->name);
  if (!folder) return folder.error();
  const int lock = take_lock(*folder / "lock", O_CREAT);
  std::ofstream(*folder / "scenario.toml") << *text;
  Result<State> state = State::create(*folder / "state", *scenario);
  if (!state) return state.error();
  std::unique_ptr<Session> session(
      new Session(*folder, Machine(*std::move(scenario), *std::move(state))));
  session->lock_ = lock;
  session->owner_ = ::getpid();
  if (Status started = session->start(); !started) return started.error();
  return session;
}

Status Session::start() {
  std::error_code ec;
  if (scenario().nvml) {
    const fs::path built = data_folder() / "sim" / (scenario().nvml->old ? "old" : "") / kLibrary;
    fs::create_directory(folder_ / "lib", ec);
    if (!fs::copy_file(built, folder_ / "lib" / kLibrary, ec)) {
      return file_error("copy", built, ec.value());
    }
  }
  if (!scenario().zones.empty()) {
    const fs::path powercap = folder_ / "root/sys/class/powercap";
    fs::create_directories(powercap, ec);
    if (ec) return file_error("create", powercap, ec.value());
    const char* const wanted = ::secure_getenv("ZEUS_SIM_FILES");
    const bool plain = wanted != nullptr && std::string_view(wanted) == "plain";
    Result<std::unique_ptr<FileServer>> server =
        plain ? serve_plain(machine_, powercap) : serve_fuse(machine_, powercap);
    files_ = server && !plain ? "fuse" : "plain";
    if (!server && !plain) server = serve_plain(machine_, powercap);
    if (!server) return server.error();
    server_ = *std::move(server);
  }
  if (scenario().follows()) follower_ = std::make_unique<Follower>(machine_);
  return ok();
}

Result<std::unique_ptr<Session>> Session::join(const fs::path& folder) {
  Result<Scenario> scenario = read_scenario(folder / "scenario.toml");
  if (!scenario) {
    return Error{Errc::absent, 0,
                 folder.string() + " is not the folder of a session: " + scenario.error().detail};
  }
  Result<State> state = State::open(folder / "state", *scenario);
  if (!state) return state.error();
  std::unique_ptr<Session> session(
      new Session(fs::absolute(folder), Machine(*std::move(scenario), *std::move(state))));
  std::error_code ec;
  const fs::path powercap = session->folder_ / "root/sys/class/powercap";
  if (fs::is_directory(powercap, ec)) {
    struct stat inside {
    }, outside{};
    const bool mounted = ::stat(powercap.c_str(), &inside) == 0 &&
                         ::stat(powercap.parent_path().c_str(), &outside) == 0 &&
                         inside.st_dev != outside.st_dev;
    session->files_ = mounted ? "fuse" : "plain";
  }
  return session;
}

Session::~Session() { close(); }

void Session::close() {
  if (owner_ == 0) return;
  if (owner_ !=
      ::getpid()) {  // A forked child: the threads are the parent's, and so are the files.
    static_cast<void>(server_.release());
    static_cast<void>(follower_.release());
    return;
  }
  owner_ = 0;
  follower_.reset();
  server_.reset();
  remove_parts(folder_);
  files_ = "none";
  ::close(lock_);
}

fs::path Session::root() const {
  std::error_code ec;
  return fs::is_directory(folder_ / "root", ec) ? folder_ / "root" : fs::path();
}

fs::path Session::libraries() const {
  std::error_code ec;
  return fs::is_directory(folder_ / "lib", ec) ? folder_ / "lib" : fs::path();
}

std::vector<DeviceEntry> Session::devices() const {
  std::vector<DeviceEntry> out;
  const Scenario& s = scenario();
  for (std::size_t i = 0; i < s.gpus.size(); ++i) {
    out.push_back(
        {DeviceEntry::Kind::gpu, i, "gpu" + std::to_string(i), s.gpus[i].uuid, s.gpus[i].model});
  }
  for (std::size_t i = 0; i < s.zones.size(); ++i) {
    out.push_back(
        {DeviceEntry::Kind::zone, machine_.zone_device(i), s.zones[i].path, "", s.zones[i].name});
  }
  return out;
}

Result<std::size_t> Session::find(std::string_view id) const {
  std::string known;
  std::vector<std::size_t> named;
  for (const DeviceEntry& d : devices()) {
    const bool gpu = d.kind == DeviceEntry::Kind::gpu;
    if (id == d.id ||
        (gpu && (id == d.id.substr(3) || id == d.uuid || id == scenario().gpus[d.device].pci))) {
      return d.device;
    }
    if (!gpu && id == d.name) named.push_back(d.device);
    known += (known.empty() ? "" : ", ") + d.id;
  }
  if (named.size() == 1) return named.front();
  return Error{Errc::absent, 0,
               (named.empty() ? "no device `" : "more than one device `") + std::string(id) +
                   "` in " + scenario().name + "; known are " + known};
}

Result<double> Session::energy_j(std::string_view id, Ns t0, Ns t1) const {
  Result<std::size_t> device = find(id);
  if (!device) return device.error();
  return energy_j(*device, t0, t1);
}

Result<double> Session::energy_j(std::size_t device, Ns t0, Ns t1) const {
  const State& s = machine_.state();
  if (device >= s.devices()) return Error{Errc::absent, 0, "no such device"};
  if (s.too_old(device, t0 - s.epoch())) {
    return Error{Errc::absent, 0, "the session no longer remembers its load at that time"};
  }
  return machine_.truth(device).joules(t0 - s.epoch(), t1 - s.epoch());
}

Result<double> Session::energy_j(std::size_t gpu, Scope scope, Ns t0, Ns t1) const {
  Result<double> own = energy_j(gpu, t0, t1);
  if (!own || gpu >= scenario().gpus.size() || scope == Scope::gpu) return own;
  const Gpu& g = scenario().gpus[gpu];
  const bool module = scope == Scope::module;
  if (const auto& power = module ? g.module_power : g.memory_power; power) {
    return power->gain * *own + power->offset * seconds(t1 - t0);
  }
  if (module && g.module_energy) return g.module_energy->gain * *own;
  return Error{Errc::absent, 0, "the scenario knows nothing of that scope"};
}

Result<std::size_t> Session::fault(const Fault& fault) {
  if (const auto slot = machine_.state().add_fault(fault)) return *slot;
  return Error{Errc::busy, 0, "a session holds 64 run-time faults; all are used"};
}

void Session::set_counter(std::size_t device, std::uint64_t value) {
  DeviceState& d = machine_.state().device(device);
  d.counter.store(value, std::memory_order_relaxed);
  d.by_hand.store(true, std::memory_order_release);
}

void Session::release_counter(std::size_t device) {
  machine_.state().device(device).by_hand.store(false);
}

std::uint64_t Session::calls(std::string_view name) const {
  const CallSet set = calls_named(name);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kCalls.size(); ++i) sum += set.has(i) ? machine_.state().calls(i) : 0;
  return sum;
}

void collect_garbage() {
  if (Result<fs::path> sessions = sessions_folder(false)) {
    const Births one_at_a_time(*sessions);
    collect(*sessions);
  }
}

}  // namespace zeus::sim
