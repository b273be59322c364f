#include "net/listen.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <system_error>
#include <utility>

namespace zeus::net {
namespace {

namespace fs = std::filesystem;

Error socket_error(std::string_view verb, std::string_view what, int e) {
  return {from_errno(e), e,
          fmt::format("cannot {} {}: {}", verb, what, std::generic_category().message(e))};
}

Result<sockaddr_un> unix_address(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& text = path.native();
  if (text.size() >= sizeof address.sun_path) {
    return Error{Errc::invalid, 0,
                 fmt::format("cannot listen on {}: the name of a socket has {} bytes at the most",
                             text, sizeof address.sun_path - 1)};
  }
  text.copy(address.sun_path, text.size());
  return address;
}

/// Whether the name is free, or can be made so: it holds a socket that nobody answers.
Status check_name(const fs::path& path, const sockaddr_un& address) {
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0) {
    return errno == ENOENT ? ok() : Status(file_error("look at", path, errno));
  }
  if (!S_ISSOCK(there.st_mode)) {
    return Error{Errc::invalid, 0,
                 fmt::format("cannot listen on {}: it is no socket; remove it or name another with "
                             "--socket-path",
                             path.native())};
  }
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EAGAIN) {
    return Error{Errc::busy, 0,
                 fmt::format("cannot listen on {}: another daemon serves it", path.native())};
  }
  return errno == ECONNREFUSED ? ok() : Status(socket_error("look at", path.native(), errno));
}

fs::path beside(const fs::path& path, std::string_view suffix) {
  fs::path other = path;
  other += suffix;
  return other;
}

}  // namespace

UnixListener::UnixListener(fs::path path, Fd socket, LockedFile lock)
    : path_(std::move(path)), socket_(std::move(socket)), lock_(std::move(lock)) {}

UnixListener::~UnixListener() {
  if (!lock_) return;
  if (intact()) ::unlink(path_.c_str());
  lock_->remove();
}

Result<UnixListener> UnixListener::open(const fs::path& path, const SocketRights& rights) {
  auto address = unix_address(beside(path, ".new"));
  const auto named = unix_address(path);
  if (!address) return address.error();
  std::error_code ec;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), ec);
  if (ec) return file_error("make the folder", path.parent_path(), ec.value());
  auto lock = LockedFile::open(beside(path, ".lock"));
  if (!lock) {
    if (lock.error().code != Errc::busy) return lock.error();
    return Error{Errc::busy, 0,
                 fmt::format("cannot listen on {}: another daemon holds its lock", path.native())};
  }
  if (auto free = check_name(path, *named); !free) {
    lock->remove();
    return free.error();
  }
  // Made beside its name and moved there: nobody can open it before it has its rights.
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ::unlink(address->sun_path);
  const mode_t before = ::umask(0177);
  const int bound =
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address);
  const int e = errno;
  ::umask(before);
  if (bound != 0) return socket_error("listen on", path.native(), e);
  const uid_t uid = rights.uid.value_or(static_cast<uid_t>(-1));
  const gid_t gid = rights.gid.value_or(static_cast<gid_t>(-1));
  if (::chown(address->sun_path, uid, gid) != 0 ||
      ::chmod(address->sun_path, rights.mode & 0777) != 0 || ::listen(socket.get(), 1024) != 0 ||
      ::rename(address->sun_path, path.c_str()) != 0) {
    const int failed = errno;
    ::unlink(address->sun_path);
    lock->remove();
    return socket_error("listen on", path.native(), failed);
  }
  UnixListener listener(path, std::move(socket), std::move(*lock));
  struct stat made {};
  if (::stat(path.c_str(), &made) == 0) {
    listener.device_ = made.st_dev;
    listener.inode_ = made.st_ino;
  }
  return listener;
}

Fd UnixListener::take() && noexcept { return std::move(socket_); }

bool UnixListener::intact() const noexcept {
  struct stat there {};
  return ::stat(path_.c_str(), &there) == 0 && there.st_dev == device_ && there.st_ino == inode_;
}

Result<Fd> listen_tcp(const std::string& address, std::string& bound) {
  const auto colon = address.rfind(':');
  std::string host = address.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (colon == std::string::npos || host.empty()) {
    return Error{Errc::invalid, 0,
                 fmt::format("cannot listen on \"{}\": it is no HOST:PORT", address)};
  }
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (const int e = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
      e != 0) {
    return Error{Errc::invalid, e,
                 fmt::format("cannot listen on {}: {}", address, ::gai_strerror(e))};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  Fd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (socket.get() < 0 || ::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket.get(), 1024) != 0) {
    return socket_error("listen on", address, errno);
  }
  sockaddr_storage there{};
  socklen_t size = sizeof there;
  char name[NI_MAXHOST], port[NI_MAXSERV];
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&there), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&there), size, name, sizeof name, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return socket_error("listen on", address, errno);
  }
  bound = there.ss_family == AF_INET6 ? fmt::format("[{}]:{}", name, port)
                                      : fmt::format("{}:{}", name, port);
  return socket;
}

}  // namespace zeus::net
