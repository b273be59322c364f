#pragma once

// What libzeus and libzeus_sim.so say to each other. The library knows nothing else about
// simulated machines: it loads libzeus_sim.so when an address begins with "sim:".

#include <cstddef>

namespace zeus::simulation {

/// A simulated machine while it runs.
struct Opened {
  void* handle;
  char root[512];       ///< Prefix of its /sys; empty where the scenario has no files.
  char libraries[512];  ///< Folder of its vendor libraries; empty where it has none.
  char scenario[128];   ///< "h100x8".
  char session[512];    ///< Folder of its state.
  char files[16];       ///< How /sys is served: "fuse", "plain" or "none".
};

/// `what`: a built-in name, a scenario file, or the folder of a running session, which is joined.
/// Answers 0, or a zeus::Errc with one sentence in `error`.
using Open = int(const char* what, Opened* out, char* error, std::size_t length);
/// Ends the session (a joined one is left alone). Does nothing in a forked child.
using Close = void(void* handle);

inline constexpr const char* kOpen = "zeus_sim_open";
inline constexpr const char* kClose = "zeus_sim_close";
inline constexpr const char* kLibrary = "libzeus_sim.so";

}  // namespace zeus::simulation
