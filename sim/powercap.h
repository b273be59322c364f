#pragma once

// The files of /sys/class/powercap, and the two ways in which they are served.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "sim/machine.h"
#include "zeus/result.h"

namespace zeus::sim {

/// One name of the tree.
struct Entry {
  enum class Kind { folder, link, file };
  Kind kind;
  std::string path;  ///< Below powercap/: "intel-rapl/intel-rapl:0/energy_uj"
  std::string text;  ///< Of a file that never changes, or where a link points.
  unsigned mode = 0444;
  int zone = -1;        ///< Whose file it is.
  bool energy = false;  ///< energy_uj

  std::string name() const { return path.substr(path.rfind('/') + 1); }
};

/// Folders before what lies in them. Zones nest as the kernel nests them, under a control type
/// ("intel-rapl"); each also has a link at the top, by its flat name.
std::vector<Entry> powercap_tree(const Scenario& scenario);

/// What a read of the file answers now: an errno, or its text.
struct Answer {
  int error = 0;
  std::string text;
};
Answer read_entry(const Machine& machine, const Entry& entry);

/// Keeps the tree readable while it lives.
class FileServer {
 public:
  virtual ~FileServer() = default;
};

/// Files written every 10 ms. A number keeps its width: what follows it are newlines. An error that
/// a plain file cannot have shows as an empty file.
Result<std::unique_ptr<FileServer>> serve_plain(const Machine& machine,
                                                const std::filesystem::path& folder);
/// A file system of our own: each read is answered at its instant, errors and permissions are real.
Result<std::unique_ptr<FileServer>> serve_fuse(const Machine& machine,
                                               const std::filesystem::path& folder);
/// Takes away what a dead server left mounted there, if anything.
void unmount(const std::filesystem::path& folder);

}  // namespace zeus::sim
