#pragma once

#include <sys/types.h>

#include <memory>

#include "sim/machine.h"
#include "sim/worker.h"

namespace zeus::sim {

/// CPU time that a process and all that descend from it have used, in nanoseconds. Children that
/// were reaped count through their parents; a process that left the tree no longer counts.
Ns tree_cpu_time(pid_t root);

/// Keeps the load of the devices that follow up with the CPU use of this process's tree.
class Follower {
 public:
  explicit Follower(Machine& machine);

 private:
  void tick();

  Machine& machine_;
  pid_t root_;
  Ns before_, cpu_before_;
  Worker worker_;
};

}  // namespace zeus::sim
