#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "base/files.h"
#include "sim/session.h"

namespace zeus::sim {

namespace fs = std::filesystem;

namespace {

const fs::path kClass = "/sys/class";

Error cannot(const std::string& what, int e) {
  return {from_errno(e), e,
          "cannot show the simulated files to the command: " + what + ": " +
              std::generic_category().message(e) +
              "; run as root, allow user namespaces, or use a scenario without [[zone]]"};
}

Status private_mounts() {
  const uid_t uid = ::geteuid();
  const gid_t gid = ::getegid();
  if (::unshare(CLONE_NEWNS | (uid == 0 ? 0 : CLONE_NEWUSER)) != 0) {
    return cannot("a mount namespace of its own is refused", errno);
  }
  if (uid != 0) {
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream users("/proc/self/uid_map"), groups("/proc/self/gid_map");
    users << uid << ' ' << uid << " 1" << std::flush;
    groups << gid << ' ' << gid << " 1" << std::flush;
    if (!users || !groups) return cannot("the user cannot be mapped", errno);
  }
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) return ok();
  // In a chroot / need not be a mount. All that is mounted here lies below /sys.
  if (errno == EINVAL && ::mount("none", "/sys", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) {
    return ok();
  }
  return cannot("mounts cannot be made private", errno);
}

// /sys/class has no powercap on this machine, and nobody can make folders in sysfs: a file system
// of our own takes its place, with every folder of the real one mounted into it.
Status replace_class(const fs::path& powercap) {
  constexpr const char* kStage = "/sys/kernel";  // Any folder of sysfs will do for a moment.
  if (::mount("zeus-sim", kStage, "tmpfs", 0, "mode=755,size=1m") != 0) {
    return cannot("tmpfs is refused", errno);
  }
  for (const std::string& name : zeus::list(kClass)) {
    const fs::path from = kClass / name, to = fs::path(kStage) / name;
    ::mkdir(to.c_str(), 0755);
    if (::mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
      return cannot("mounting " + from.string(), errno);
    }
  }
  const fs::path place = fs::path(kStage) / "powercap";
  ::mkdir(place.c_str(), 0755);
  if (::mount(powercap.c_str(), place.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
    return cannot("mounting " + powercap.string(), errno);
  }
  if (::mount(kStage, kClass.c_str(), nullptr, MS_MOVE, nullptr) != 0) {
    return cannot("mounting over /sys/class", errno);
  }
  return ok();
}

}  // namespace

Status enter(const Session& session) {
  ::setenv("ZEUS_SIM_SESSION", session.folder().c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  if (const fs::path libraries = session.libraries(); !libraries.empty()) {
    const char* const before = std::getenv("LD_LIBRARY_PATH");  // NOLINT(concurrency-mt-unsafe)
    std::string path = libraries.string();
    if (before != nullptr && *before != '\0') path += ":" + std::string(before);
    ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  const fs::path root = session.root();
  if (root.empty()) return ok();
  const fs::path powercap = root / "sys/class/powercap";
  if (Status s = private_mounts(); !s) return s;
  std::error_code ec;
  if (!fs::is_directory(kClass / "powercap", ec)) return replace_class(powercap);
  if (::mount(powercap.c_str(), (kClass / "powercap").c_str(), nullptr, MS_BIND | MS_REC,
              nullptr) != 0) {
    return cannot("mounting over /sys/class/powercap", errno);
  }
  return ok();
}

}  // namespace zeus::sim
