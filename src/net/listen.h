#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/files.h"
#include "zeus/result.h"

namespace zeus::net {

/// Who may open a Unix socket.
struct SocketRights {
  unsigned mode = 0660;
  std::optional<unsigned> uid{}, gid{};
};

/// A socket file, held under a lock so that two daemons cannot race for the name. Its name goes
/// when it is dropped.
class UnixListener {
 public:
  /// Makes missing folders. A socket that nobody answers is replaced; one that is in use, or
  /// another kind of file, is left alone: Errc::busy, Errc::invalid. It appears under its name
  /// with its rights already set.
  static Result<UnixListener> open(const std::filesystem::path& path, const SocketRights& rights);
  UnixListener(UnixListener&&) noexcept = default;
  UnixListener& operator=(UnixListener&&) noexcept = default;
  ~UnixListener();

  Fd take() && noexcept;  ///< The listening socket; the name stays ours.
  /// Whether the name still leads to us.
  bool intact() const noexcept;

 private:
  UnixListener(std::filesystem::path path, Fd socket, LockedFile lock);
  std::filesystem::path path_;
  Fd socket_;
  std::optional<LockedFile> lock_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

/// Listens at "host:port". `bound` becomes the address with the port that the system chose for 0.
Result<Fd> listen_tcp(const std::string& address, std::string& bound);

}  // namespace zeus::net
