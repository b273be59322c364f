#pragma once

// What libzeus and libzeus_remote.so say to each other. The library knows nothing else of networks:
// it loads libzeus_remote.so when an address begins with "zeusd:".

#include <string>

#include "zeus/device.h"

namespace zeus::remote {

/// What both were built from and how. It is compared first: only then do both lay out the objects
/// alike that the second function hands over. So it holds whether libzeus is a shared library or a
/// part of a program; each has its own copy of the little code that both need, and memory that one
/// allocates and the other frees is that of the one C++ runtime.
using Build = const char*();
/// Opens the machine of the daemon at `where`; without its tree of domains.
using Open = void(const std::string& where, const std::string& token, Result<Machine>& out);

inline constexpr const char* kBuild = "zeus_remote_build";
inline constexpr const char* kOpen = "zeus_remote_open";
inline constexpr const char* kLibrary = "libzeus_remote.so";

}  // namespace zeus::remote
