#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "support/net_server.h"

namespace zeus::net {
namespace {

/// A server in a process of its own, which may have few descriptors. Its exit status is 0 where its
/// name is still its own at the end.
class Poor {
 public:
  explicit Poor(rlim_t descriptors) {
    int ready[2], over[2];
    if (::pipe2(ready, O_CLOEXEC) != 0 || ::pipe2(over, O_CLOEXEC) != 0) ::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(over[1]);
      ::close(ready[0]);
      const rlimit limit{descriptors, descriptors};
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(2);
      ::_exit(serve(ready[1], over[0]));
    }
    ::close(ready[1]);
    ::close(over[0]);
    over_ = over[1];
    char path[256] = {};
    if (::read(ready[0], path, sizeof path - 1) > 0) path_ = path;
    ::close(ready[0]);
  }
  const std::string& path() const { return path_; }
  Wire wire() const { return Wire(path_); }
  int end() const {
    ::close(over_);
    int status = -1;
    ::waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  static int serve(int ready, int over) {
    Running s;
    if (::write(ready, s.path().data(), s.path().size()) < 0) return 2;
    char byte = 0;
    (void)!::read(over, &byte, 1);
    return s.at_path() ? 0 : 1;
  }

  pid_t pid_ = -1;
  int over_ = -1;
  std::string path_;
};

bool served(const Poor& s) {
  return soon([&] { return s.wire().raw(kGet) == 200; });
}

TEST(ServerWithoutDescriptors, ServesOnAndKeepsItsName) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer takes a pipe to look at an object";
#endif
  const Poor s(64);
  {
    std::vector<Wire> idle;
    for (int i = 0; i < 200; ++i) idle.push_back(s.wire());
    EXPECT_TRUE(served(s)) << "who is idle gives way";
  }
  EXPECT_TRUE(served(s));
  {
    std::vector<Wire> streams;
    do {
      streams.push_back(s.wire());
    } while (streams.back().raw("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n") == 200);
    EXPECT_GT(streams.size(), 32U);
    streams.pop_back();
    (void)s.wire().raw(kGet);
    char byte = 0;
    for (const Wire& w : streams) {
      EXPECT_EQ(::recv(w.fd(), &byte, 1, MSG_DONTWAIT), -1) << "who is not idle does not";
    }
  }
  EXPECT_TRUE(served(s));
  EXPECT_EQ(s.end(), 0);
}

}  // namespace
}  // namespace zeus::net
