#pragma once

#include <filesystem>
#include <string>

namespace zeus::rapl {

/// What /proc says about the processor and about where we run. Empty or 0 where it does not say.
struct Processor {
  std::string vendor;  ///< "GenuineIntel", "AuthenticAMD".
  std::string model;   ///< "AMD EPYC 7763 64-Core Processor".
  int family = 0;
  std::string kernel;  ///< "6.8.0-45-generic".
  bool guest = false;  ///< A hypervisor is below.
  bool wsl = false;
  bool container = false;
  bool arm = false;

  static Processor read(const std::filesystem::path& root);
};

/// Why there are no zones in `base`, and the way out. `present`: the folder itself is there.
std::string why_absent(const Processor& cpu, const std::filesystem::path& base, bool present);

/// The mounts that show a container the host's zones, in words for docker.
std::string mounts();

}  // namespace zeus::rapl
