#include "leases.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>

#include "base/files.h"
#include "net/asio.h"
#include "net/percent.h"

namespace zeus::zeusd {
namespace {

using zeus::Errc;
using zeus::Error;
using zeus::Fd;

constexpr std::size_t kMostOfOne = 256;  ///< Leases of one holder at a time.
constexpr std::uint32_t kLongestTtlS = 3600;
constexpr std::size_t kLongestName = 256;    ///< A journal must hold it.
constexpr std::string_view kMark = "zeusd";  ///< First word of our owners in the journal.

std::string new_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

/// The process at the other end of a Unix socket, or that of a pid.
Fd process_of(const zeus::net::Peer& peer) {
#ifdef SO_PEERPIDFD
  constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
  constexpr int kPeerPidfd = 77;  // Linux 6.5 and later.
#endif
  int fd = -1;
  socklen_t size = sizeof fd;
  if (peer.socket >= 0 && ::getsockopt(peer.socket, SOL_SOCKET, kPeerPidfd, &fd, &size) == 0) {
    return Fd(fd);
  }
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
}

Error no_lease(std::string_view id) {
  return {Errc::absent, 0,
          fmt::format("there is no lease {}: it has ended, and what it set was put back",
                      id.substr(0, 64))};
}

}  // namespace

Leases::Leases(boost::asio::io_context& context, Ended ended)
    : context_(context), ended_(std::move(ended)) {}
Leases::~Leases() = default;

Leases::Info Leases::snapshot(const Lease& lease) {
  Info info = lease.info;
  if (lease.deadline) {
    info.left_s = std::chrono::duration<double>(*lease.deadline - Clock::now()).count();
  }
  return info;
}

zeus::Result<Leases::Info> Leases::open(const zeus::net::Peer& peer, const Holder& holder,
                                        std::optional<std::uint32_t> ttl_s) {
  Fd process;
  if (holder.pid != 0) process = process_of(peer);
  if (process.get() < 0 && !ttl_s) {
    return Error{Errc::invalid, 0,
                 "a lease needs ttl_s, and heartbeats within it: the process that asks cannot be "
                 "watched from here"};
  }
  if (ttl_s && (*ttl_s == 0 || *ttl_s > kLongestTtlS)) {
    return Error{Errc::invalid, 0, fmt::format("ttl_s goes from 1 to {}", kLongestTtlS)};
  }
  if (holder.who.size() > kLongestName) {
    return Error{Errc::invalid, 0,
                 fmt::format("a name of more than {} bytes cannot hold a lease", kLongestName)};
  }
  const std::lock_guard lock(mutex_);
  if (std::count_if(leases_.begin(), leases_.end(), [&](const auto& l) {
        return l.second->info.who == holder.who;
      }) >= static_cast<std::ptrdiff_t>(kMostOfOne)) {
    return Error{Errc::busy, 0,
                 fmt::format("{} leases are open already; release some", kMostOfOne)};
  }
  auto lease = std::make_shared<Lease>();
  lease->info.id = new_id();
  lease->info.who = holder.who;
  lease->info.ttl_s = ttl_s;
  if (ttl_s) lease->deadline = Clock::now() + std::chrono::seconds(*ttl_s);
  if (process.get() >= 0) {
    lease->info.pid = holder.pid;
    watch(*lease, std::move(process).release());
  }
  leases_.emplace(lease->info.id, lease);
  return snapshot(*lease);
}

void Leases::watch(Lease& lease, int pidfd) {
  lease.process = std::make_unique<boost::asio::posix::stream_descriptor>(context_, pidfd);
  // A pidfd can be read once its process has ended.
  lease.process->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                            [this, id = lease.info.id](boost::system::error_code ec) {
                              if (!ec) end(id, "its process has ended");
                            });
}

zeus::Result<std::shared_ptr<Leases::Lease>> Leases::find(std::string_view id,
                                                          const Holder& holder) const {
  const auto it = leases_.find(id);
  if (it == leases_.end()) return no_lease(id);
  if (it->second->info.who != holder.who) {
    return Error{Errc::denied, 0, "this lease is somebody else's"};
  }
  return it->second;
}

zeus::Result<Leases::Info> Leases::renew(std::string_view id, const zeus::net::Peer& peer,
                                         const Holder& holder) {
  const std::lock_guard lock(mutex_);
  const auto found = find(id, holder);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.info.waiting) {
    // Taken up: by the same process again, or by heartbeats from now on.
    lease.info.waiting = false;
    lease.deadline.reset();
    if (lease.info.pid != 0 && holder.pid == lease.info.pid) {
      Fd process = process_of(peer);
      if (process.get() >= 0) {
        watch(lease, std::move(process).release());
      } else {
        lease.info.pid = 0;
      }
    } else {
      lease.info.pid = 0;
    }
    if (lease.info.pid == 0 && !lease.info.ttl_s) lease.info.ttl_s = 30;
  }
  if (lease.info.ttl_s) {
    lease.deadline = Clock::now() + std::chrono::seconds(*lease.info.ttl_s);
  }
  return snapshot(lease);
}

bool Leases::touch(std::string_view id, unsigned gpu) {
  const std::lock_guard lock(mutex_);
  const auto it = leases_.find(id);
  if (it == leases_.end()) return false;
  it->second->info.gpus.insert(gpu);
  return true;
}

void Leases::end(const std::string& id, std::string_view why) {
  std::shared_ptr<Lease> lease;
  {
    const std::lock_guard lock(mutex_);
    lease = take_out(id);
  }
  if (!lease) return;
  ended_(id, lease->info.gpus, why);
  forget(std::move(lease));
}

std::shared_ptr<Leases::Lease> Leases::take_out(std::string_view id) {
  const auto it = leases_.find(id);
  if (it == leases_.end()) return nullptr;
  auto lease = std::move(it->second);
  leases_.erase(it);
  return lease;
}

/// What watches its process belongs to the loop.
void Leases::forget(std::shared_ptr<Lease> lease) {
  boost::asio::post(context_, [lease = std::move(lease)] { lease->process.reset(); });
}

zeus::Result<std::set<unsigned>> Leases::release(std::string_view id, const Holder& holder) {
  std::shared_ptr<Lease> lease;
  {
    const std::lock_guard lock(mutex_);
    if (const auto mine = find(id, holder); !mine) return mine.error();
    lease = take_out(id);
  }
  auto gpus = lease->info.gpus;
  forget(std::move(lease));
  return gpus;
}

void Leases::sweep(Clock::time_point now) {
  std::vector<std::pair<std::string, bool>> late;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, lease] : leases_) {
      if (lease->deadline && *lease->deadline <= now) late.emplace_back(id, lease->info.waiting);
    }
  }
  for (const auto& [id, waiting] : late) {
    end(id, waiting ? "nobody took it up after the daemon's restart" : "its heartbeats have ended");
  }
}

void Leases::end_all(std::string_view why) {
  for (const Info& info : list()) end(info.id, why);
}

std::vector<Leases::Info> Leases::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<Info> out;
  for (const auto& [id, lease] : leases_) out.push_back(snapshot(*lease));
  return out;
}

namespace {

/// A name on one line, from which percent_decode() makes the name again.
std::string on_one_line(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || c == '%') {
      fmt::format_to(std::back_inserter(out), "%{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

// "zeusd ID PID TTL WHO": WHO may hold blanks.
std::string Leases::owner(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto it = leases_.find(id);
  if (it == leases_.end()) return {};
  const Info& info = it->second->info;
  return fmt::format("{} {} {} {} {}", kMark, info.id, info.pid, info.ttl_s.value_or(0),
                     on_one_line(info.who));
}

namespace {

std::vector<std::string_view> words(std::string_view line, std::size_t most) {
  std::vector<std::string_view> out;
  while (out.size() + 1 < most) {
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos) break;
    out.push_back(line.substr(0, blank));
    line.remove_prefix(blank + 1);
  }
  out.push_back(line);
  return out;
}

template <class T>
T number(std::string_view text) {
  T value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

std::string Leases::id_of(std::string_view owner) {
  const auto parts = words(owner, 5);
  return parts.size() == 5 && parts[0] == kMark ? std::string(parts[1]) : std::string();
}

void Leases::adopt(std::string_view owner, unsigned gpu, Clock::time_point deadline) {
  const auto parts = words(owner, 5);
  const std::string id = id_of(owner);
  if (id.empty()) return;
  const std::lock_guard lock(mutex_);
  auto& lease = leases_[id];
  if (!lease) {
    lease = std::make_shared<Lease>();
    lease->info.id = id;
    lease->info.pid = number<pid_t>(parts[2]);
    if (const auto ttl = number<std::uint32_t>(parts[3]); ttl != 0) lease->info.ttl_s = ttl;
    lease->info.who = zeus::net::percent_decode(parts[4]).value_or(std::string(parts[4]));
    lease->info.waiting = true;
    lease->deadline = deadline;
  }
  lease->info.gpus.insert(gpu);
}

}  // namespace zeus::zeusd
