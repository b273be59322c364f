#include "bench/node.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace zeus::bench {
namespace {

namespace abi = nvml::abi;

template <class F>
F* symbol(void* library, const char* name) {
  auto* f = reinterpret_cast<F*>(dlsym(library, name));
  if (f == nullptr) throw std::runtime_error(std::string("the simulated library lacks ") + name);
  return f;
}

std::filesystem::path scenario(const std::string& latency) {
  std::ifstream in(ZEUS_BENCH_DIR "/node.toml");
  std::stringstream text;
  text << in.rdbuf();
  std::string toml = text.str();
  if (toml.empty()) throw std::runtime_error("cannot read bench/node.toml");
  const std::string word = "\"LATENCY\"";
  toml.replace(toml.find(word), word.size(), '"' + latency + '"');
  std::string name = (std::filesystem::temp_directory_path() / "zeus-bench-XXXXXX.toml").string();
  const int fd = ::mkstemps(name.data(), 5);
  if (fd < 0) throw std::runtime_error("cannot write " + name);
  ::close(fd);
  std::ofstream(name) << toml;
  return name;
}

}  // namespace

Node::Node(const std::string& latency) : file_(scenario(latency)) {
  // Plain files: the cost of FUSE is no part of either side.
  ::setenv("ZEUS_SIM_FILES", "plain", 1);
  const auto address = Address::parse("sim:" + file_.string());
  auto machine = open(*address);
  if (!machine) throw std::runtime_error(machine.error().detail);
  machine_ = std::move(*machine);

  const std::filesystem::path session = machine_.simulation->session;
  void* library = ::dlopen((session / "lib/libnvidia-ml.so.1").c_str(), RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  symbol<abi::Init>(library, "nvmlInit_v2")();
  energy_ = symbol<abi::GetEnergy>(library, "nvmlDeviceGetTotalEnergyConsumption");
  fields_ = symbol<abi::GetFields>(library, "nvmlDeviceGetFieldValues");
  unsigned count = 0;
  symbol<abi::GetCount>(library, "nvmlDeviceGetCount_v2")(&count);
  gpus_.resize(count);
  auto* handle = symbol<abi::GetHandle>(library, "nvmlDeviceGetHandleByIndex_v2");
  for (unsigned i = 0; i < count; ++i) handle(i, &gpus_[i]);
  for (const char* zone : {"intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1", "intel-rapl:1:0"}) {
    const auto path = session / "root/sys/class/powercap" / zone / "energy_uj";
    zones_.push_back(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (zones_.back() < 0) throw std::runtime_error("cannot open " + path.string());
  }
}

Node::~Node() {
  for (const int fd : zones_) ::close(fd);
  std::filesystem::remove(file_);
}

void Node::read_bare() const {
  unsigned long long mj = 0;
  for (const auto gpu : gpus_) energy_(gpu, &mj);
  char text[32];
  for (const int fd : zones_) (void)!::pread(fd, text, sizeof text, 0);
}

void Node::read_bare_levels() const {
  for (const auto gpu : gpus_) {
    std::array<abi::FieldValue, 3> values{};
    values[0].field = abi::kFieldTotalEnergy;
    values[1].field = abi::kFieldPowerInstant;
    values[2].field = abi::kFieldPowerAverage;
    fields_(gpu, values.size(), values.data());
  }
  char text[32];
  for (const int fd : zones_) (void)!::pread(fd, text, sizeof text, 0);
}

double now_ns(int clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace zeus::bench
