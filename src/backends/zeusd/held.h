#pragma once

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "backends/zeusd/session.h"

namespace zeus::zeusd {

/// A lease of the daemon for all that this process turns there: what it set is put back even if it
/// is killed, by the daemon, which watches it. Opened at the first turn, released when the last
/// knob is back. Over a Unix socket only: over TCP the daemon wants heartbeats, for which a library
/// has no thread; there, as with a daemon that has no leases, the journal of the library must do.
class Held {
 public:
  explicit Held(SessionPtr session) : session_(std::move(session)) {}

  /// A knob of the daemon: its GPU's place in the list, and its name.
  using Key = std::pair<std::size_t, std::string>;

  /// What a write adds to its query to be under the lease; empty where there is none to be had.
  Result<std::string> argument();
  /// The daemon does not know the lease any more, since it was started anew: another is opened.
  void forget();
  /// Notes that a knob was turned, away from where it stood or back.
  void turned(const Key& key, bool away);
  /// Ends the lease, though something may be away; the daemon puts it back.
  Status release();

 private:
  Status release_now();

  SessionPtr session_;
  std::mutex mutex_;
  std::string id_;
  std::set<Key> away_;
};

}  // namespace zeus::zeusd
