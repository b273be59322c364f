#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "access.h"

namespace zeus::zeusd {

/// What `zeusd serve` was told.
struct ServeOptions {
  std::string host = "local:";
  bool allow_simulated = false, compat = false;

  bool uds = true, tcp = false;
  std::filesystem::path socket_path{zeus::net::kSocketPath};
  unsigned socket_permissions = 0660;
  std::optional<unsigned> socket_uid{}, socket_gid{};
  std::string tcp_bind_address = "127.0.0.1:4938";
  bool tcp_read_only = false, insecure_control = false;
  std::filesystem::path tls_cert{}, tls_key{};
  std::vector<std::string> allow_hosts{};

  std::optional<std::vector<Group>> enable{};  ///< Nothing: what can be served here.
  std::map<Group, People> people{};
  std::filesystem::path signing_key{}, overrides{};
  std::filesystem::path journal = "/run/zeus";
  std::filesystem::path audit_log{};
  unsigned adoption_s = 10;  ///< How long leases of an earlier daemon wait for their holders.

  unsigned workers = 0;  ///< 0: as many as there are processors, up to 4.
  unsigned gpu_hz = 20, cpu_hz = 10;
  std::size_t connections = 20'000;
  std::size_t per_peer = 0;  ///< Connections; 0: a quarter of all, and 64 at the least.
  bool always_sample = false;
};

/// Serves until a signal ends it. The result is the exit status.
int serve(const ServeOptions& options);

}  // namespace zeus::zeusd
