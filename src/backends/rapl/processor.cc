#include "backends/rapl/processor.h"

#include <charconv>
#include <string_view>
#include <system_error>

#include "base/files.h"

namespace zeus::rapl {
namespace {

/// The value of "key : value" in the first block of /proc/cpuinfo.
std::string_view field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const auto colon = line.find(':');
    if (colon != std::string_view::npos && line.starts_with(key) &&
        line.substr(key.size(), colon - key.size()).find_first_not_of(" \t") ==
            std::string_view::npos) {
      const auto value = line.substr(colon + 1);
      return value.substr(std::min(value.find_first_not_of(" \t"), value.size()));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

bool has_word(std::string_view words, std::string_view word) {
  return (' ' + std::string(words) + ' ').find(' ' + std::string(word) + ' ') != std::string::npos;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

Processor Processor::read(const std::filesystem::path& root) {
  Processor cpu;
  const std::string info = read_text(root / "proc/cpuinfo");
  cpu.vendor = field(info, "vendor_id");
  cpu.model = field(info, "model name");
  cpu.arm = cpu.vendor.empty() && !field(info, "CPU implementer").empty();
  const auto family = field(info, "cpu family");
  (void)std::from_chars(family.data(), family.data() + family.size(), cpu.family);
  cpu.guest = has_word(field(info, "flags"), "hypervisor");

  const std::string version = read_text(root / "proc/version");  // "Linux version 6.8.0 (...".
  constexpr std::string_view kBefore = "Linux version ";
  if (version.starts_with(kBefore)) {
    cpu.kernel = version.substr(kBefore.size(), version.find(' ', kBefore.size()) - kBefore.size());
  }
  cpu.wsl = contains(version, "microsoft") || contains(version, "Microsoft");
  std::error_code ec;
  cpu.container = std::filesystem::exists(root / ".dockerenv", ec) ||
                  std::filesystem::exists(root / "run/.containerenv", ec);
  return cpu;
}

std::string mounts() {
  return "-v /sys/class/powercap:/zeus_sys/class/powercap:ro "
         "-v /sys/devices/virtual/powercap:/zeus_sys/devices/virtual/powercap:ro";
}

std::string why_absent(const Processor& cpu, const std::filesystem::path& base, bool present) {
  const std::string what =
      present ? base.string() + " has no RAPL zone: " : "there is no " + base.string() + ": ";
  if (cpu.wsl) return what + "the kernel of WSL has none; measure on Windows or on a real Linux";
  if (cpu.arm) return what + "Arm processors have no RAPL; their sensors are found elsewhere";
  if (cpu.container && !present) {
    return what + "this container does not see it; start it with " + mounts();
  }
  if (cpu.guest) {
    return what +
           "this is a virtual machine, and its host does not hand RAPL down; measure on the "
           "host";
  }
  const std::string modules = "modprobe intel_rapl_msr";
  if (!present)
    return what + "the kernel has no powercap, or its module is not loaded; try " + modules;
  if (cpu.vendor.empty())
    return what + "the kernel has no driver for this processor; try " + modules;
  return what + "kernel " + (cpu.kernel.empty() ? "(unknown)" : cpu.kernel) +
         " has no driver loaded for this processor (" + cpu.vendor + " family " +
         std::to_string(cpu.family) + "); try " + modules + ", or a newer kernel";
}

}  // namespace zeus::rapl
