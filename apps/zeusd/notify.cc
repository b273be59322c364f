#include "notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>

#include "base/files.h"

namespace zeus::zeusd {

// The protocol of sd_notify(3): a datagram to the socket that the manager names.
void notify(std::string_view message) {
  const char* const name = ::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string_view path = name == nullptr ? "" : name;
  if (path.empty() || path.size() >= sizeof address.sun_path) return;
  path.copy(address.sun_path, path.size());
  if (path.front() == '@') address.sun_path[0] = '\0';  // An abstract name.
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  (void)::sendto(socket.get(), message.data(), message.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address), length);
}

std::optional<std::chrono::microseconds> watchdog_period() {
  const char* const text = ::getenv("WATCHDOG_USEC");
  const char* const pid = ::getenv("WATCHDOG_PID");
  if (text == nullptr || (pid != nullptr && std::to_string(::getpid()) != pid)) return std::nullopt;
  long long us = 0;
  const std::string_view digits = text;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), us).ec != std::errc{} ||
      us <= 0) {
    return std::nullopt;
  }
  return std::chrono::microseconds(us) / 2;
}

}  // namespace zeus::zeusd
