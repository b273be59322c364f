#include "sim/powercap.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/files.h"
#include "sim/worker.h"

namespace zeus::sim {

namespace fs = std::filesystem;

std::vector<Entry> powercap_tree(const Scenario& scenario) {
  std::vector<Entry> out;
  std::set<std::string> made;
  const auto folder = [&](const std::string& path) {
    if (made.insert(path).second) out.push_back({Entry::Kind::folder, path, "", 0755, -1, false});
  };
  for (std::size_t i = 0; i < scenario.zones.size(); ++i) {
    const Zone& z = scenario.zones[i];
    const int zone = static_cast<int>(i);
    const std::string type = z.path.substr(0, z.path.find(':'));
    if (!made.contains(type)) {
      folder(type);
      out.push_back({Entry::Kind::file, type + "/enabled", "1\n", 0644, zone, false});
    }
    std::string path = type;  // "intel-rapl:0:2" lies in "intel-rapl:0", which lies in its type.
    for (std::size_t colon = z.path.find(':'); colon != std::string::npos;) {
      colon = z.path.find(':', colon + 1);
      folder(path += "/" + z.path.substr(0, colon));
    }
    out.push_back({Entry::Kind::link, z.path, path, 0777, zone, false});
    const auto file = [&](const char* name, std::string text, unsigned mode) {
      out.push_back({Entry::Kind::file, path + "/" + name, std::move(text), mode, zone, false});
    };
    file("name", z.name + "\n", 0444);
    file("enabled", z.enabled ? "1\n" : "0\n", 0644);
    if (z.has_range) file("max_energy_range_uj", std::to_string(z.range_uj) + "\n", 0444);
    file("energy_uj", "", z.mode);
    out.back().energy = true;
  }
  return out;
}

Answer read_entry(const Machine& machine, const Entry& entry) {
  const Verdict v =
      machine.consult(call("file:read"), Fault::Target::zone, entry.zone, entry.name().c_str());
  if (v.code != 0) return {v.code, ""};
  if (v.text != nullptr) return {0, std::string(v.text) + "\n"};
  if (v.value) return {0, std::to_string(*v.value) + "\n"};
  if (!entry.energy) return {0, entry.text};
  const auto zone = static_cast<std::size_t>(entry.zone);
  return {0, std::to_string(machine.zone_counter(zone, machine.state().now())) + "\n"};
}

namespace {

class PlainFiles final : public FileServer {
 public:
  PlainFiles(const Machine& machine, const fs::path& folder) : machine_(machine), folder_(folder) {}

  Status make() {
    for (const Entry& e : powercap_tree(machine_.scenario())) {
      const fs::path path = folder_ / e.path;
      std::error_code ec;
      if (e.kind == Entry::Kind::folder) {
        fs::create_directories(path, ec);
      } else if (e.kind == Entry::Kind::link) {
        fs::create_symlink(e.text, path, ec);
      } else {
        Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (fd.get() < 0 || ::fchmod(fd.get(), e.mode) != 0) {
          return file_error("create", path, errno);
        }
        files_.push_back({e, std::move(fd), ""});
        write(files_.back());
      }
      if (ec) return file_error("create", path, ec.value());
    }
    worker_.emplace(std::chrono::milliseconds(10), [this] {
      for (File& f : files_) write(f);
    });
    return ok();
  }

 private:
  struct File {
    Entry entry;
    Fd fd;
    std::string shown;
  };

  void write(File& f) {
    constexpr std::size_t kWidth = 24;  // More than any number needs.
    Answer a = read_entry(machine_, f.entry);
    if (f.entry.energy && a.error == 0 && a.text.size() < kWidth) a.text.resize(kWidth, '\n');
    if (a.text == f.shown) return;
    // In place, so that a reader sees the old number or the new one, whole.
    if (::pwrite(f.fd.get(), a.text.data(), a.text.size(), 0) < 0) return;
    if (a.text.size() != f.shown.size() &&
        ::ftruncate(f.fd.get(), static_cast<off_t>(a.text.size())) != 0) {
      return;
    }
    f.shown = std::move(a.text);
  }

  const Machine& machine_;
  fs::path folder_;
  std::vector<File> files_;
  std::optional<Worker> worker_;
};

}  // namespace

Result<std::unique_ptr<FileServer>> serve_plain(const Machine& machine, const fs::path& folder) {
  auto server = std::make_unique<PlainFiles>(machine, folder);
  if (Status made = server->make(); !made) return made.error();
  return std::unique_ptr<FileServer>(std::move(server));
}

}  // namespace zeus::sim
