#pragma once

// A session: a simulated machine while it runs. It is a folder that its owner creates and any
// number of processes use; README.md says what lies in it.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "sim/machine.h"
#include "zeus/domain.h"
#include "zeus/result.h"

namespace zeus::sim {

struct BuiltIn {
  std::string name, description;
  std::filesystem::path file;
};

/// The scenarios that come with Zeus, by name.
std::vector<BuiltIn> list();

struct DeviceEntry {
  enum class Kind { gpu, zone };
  Kind kind;
  std::size_t device;  ///< Its number in the session.
  std::string id;      ///< "gpu0", or the path of the zone
  std::string uuid;    ///< Empty for zones.
  std::string name;    ///< The model, or the domain: "package-0".
};

class FileServer;
class Follower;

class Session {
 public:
  /// Starts a session of a built-in scenario or a scenario file. A folder of a session is joined.
  static Result<std::unique_ptr<Session>> create(const std::string& what);
  /// Uses the session of that folder, running or ended; owns nothing.
  static Result<std::unique_ptr<Session>> join(const std::filesystem::path& folder);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::filesystem::path& folder() const noexcept { return folder_; }
  const Scenario& scenario() const noexcept { return machine_.scenario(); }
  /// Prefix of the simulated /sys; empty where the scenario has no files.
  std::filesystem::path root() const;
  /// Folder of the vendor libraries; empty where it has none.
  std::filesystem::path libraries() const;
  /// "fuse", "plain" or "none".
  const std::string& files() const noexcept { return files_; }
  Machine& machine() noexcept { return machine_; }

  std::vector<DeviceEntry> devices() const;
  /// By "gpu0", "0", UUID or PCI address; by the path of a zone or the name of its domain.
  Result<std::size_t> find(std::string_view id) const;
  /// Joules that the device truly used between two instants of CLOCK_MONOTONIC, in nanoseconds.
  Result<double> energy_j(std::string_view id, Ns t0, Ns t1) const;
  Result<double> energy_j(std::size_t device, Ns t0, Ns t1) const;
  /// The same of the module or the memory of a GPU: what their sensor makes of the GPU's own, which
  /// is all that a scenario knows of them.
  Result<double> energy_j(std::size_t gpu, Scope scope, Ns t0, Ns t1) const;

  /// For tests. A fault set here is seen by every process; `calls` names what it strikes.
  Result<std::size_t> fault(const Fault& fault);
  void remove_fault(std::size_t slot) { machine_.state().remove_fault(slot); }
  /// Makes the counter of a device show this number, in mJ (GPU) or uJ (zone).
  void set_counter(std::size_t device, std::uint64_t value);
  /// Lets the counter follow the truth again.
  void release_counter(std::size_t device);
  /// How often a symbol, a family of them, or "all", has been called by anybody.
  std::uint64_t calls(std::string_view name) const;

  /// Ends the session, if this process owns it: unmounts, removes the library and the files. What
  /// it takes to ask for the truth stays.
  void close();

 private:
  Session(std::filesystem::path folder, Machine machine);
  Status start();

  std::filesystem::path folder_;
  Machine machine_;
  std::string files_ = "none";
  int lock_ = -1;
  int owner_ = 0;  // pid; 0: joined
  std::unique_ptr<FileServer> server_;
  std::unique_ptr<Follower> follower_;
};

/// Unmounts and removes what sessions left whose owner is dead. `create` does it too.
void collect_garbage();

/// In a child, before exec: from here on this process sees the machine of the session. Prepends its
/// libraries to LD_LIBRARY_PATH and, where the scenario has zones, mounts its files over
/// /sys/class/powercap in a private mount namespace. Sets ZEUS_SIM_SESSION.
Status enter(const Session& session);

}  // namespace zeus::sim
