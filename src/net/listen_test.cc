#include "net/listen.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "support/tree.h"
#include "support/wire.h"

namespace zeus::net {
namespace {

namespace fs = std::filesystem;
using test::Tree;
using test::Wire;

unsigned mode_of(const fs::path& path) {
  struct stat s {};
  return ::lstat(path.c_str(), &s) == 0 ? s.st_mode & 07777 : 0;
}

std::string refusal(const Result<UnixListener>& r, Errc code) {
  if (r) return "it listens";
  EXPECT_EQ(r.error().code, code) << r.error().detail;
  return r.error().detail;
}

/// A socket of somebody who knows nothing of our locks.
Fd foreign(const fs::path& path) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  path.native().copy(a.sun_path, sizeof a.sun_path - 1);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a), 0);
  EXPECT_EQ(::listen(fd.get(), 4), 0);
  return fd;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& e : fs::directory_iterator(folder)) out.push_back(e.path().filename());
  return out;
}

// field failure 160
TEST(Listen, MakesMissingFoldersAndLeavesNothingBehind) {
  const Tree tree;
  const fs::path path = tree.root() / "a/b/zeusd.sock";
  {
    const auto l = UnixListener::open(path, {});
    ASSERT_TRUE(l) << l.error().detail;
    EXPECT_TRUE(l->intact());
    EXPECT_EQ(mode_of(path), 0660U);
    EXPECT_TRUE(Wire(path).connected());
  }
  EXPECT_TRUE(names_in(path.parent_path()).empty());
}

TEST(Listen, NamesTheFolderThatItCannotMake) {
  Tree tree;
  tree.write("file", "");
  EXPECT_EQ(refusal(UnixListener::open(tree.root() / "file/zeusd.sock", {}), Errc::malformed),
            "cannot make the folder " + (tree.root() / "file").string() + ": Not a directory");
}

TEST(Listen, TakesThePlaceOfASocketThatNobodyAnswers) {
  const Tree tree;
  const fs::path path = tree.root() / "s";
  (void)foreign(path);  // Its process has ended; the name is still there.
  EXPECT_EQ(Wire(path).error(), ECONNREFUSED);
  const auto l = UnixListener::open(path, {});
  ASSERT_TRUE(l) << l.error().detail;
  EXPECT_TRUE(Wire(path).connected());
}

TEST(Listen, StealsNoSocketThatIsInUse) {
  const Tree tree;
  const fs::path path = tree.root() / "s";
  const Fd theirs = foreign(path);
  EXPECT_EQ(refusal(UnixListener::open(path, {}), Errc::busy),
            "cannot listen on " + path.string() + ": another daemon serves it");
  EXPECT_TRUE(Wire(path).connected());
  EXPECT_EQ(names_in(tree.root()).size(), 1U);

  const fs::path ours = tree.root() / "ours";
  const auto l = UnixListener::open(ours, {});
  ASSERT_TRUE(l);
  EXPECT_EQ(refusal(UnixListener::open(ours, {}), Errc::busy),
            "cannot listen on " + ours.string() + ": another daemon holds its lock");
  EXPECT_TRUE(l->intact());
  EXPECT_TRUE(Wire(ours).connected());
}

TEST(Listen, LeavesASocketAloneWhoseQueueIsFull) {
  const Tree tree;
  const fs::path path = tree.root() / "s";
  const Fd theirs = foreign(path);
  std::vector<Wire> waiting;
  for (int i = 0; i < 5; ++i) waiting.emplace_back(path);
  (void)refusal(UnixListener::open(path, {}), Errc::busy);
}

// Whoever may not connect cannot know whether it is in use. Root may always.
TEST(Listen, LeavesASocketAloneThatItMayNotOpen) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const Tree tree;
  ASSERT_EQ(::chmod(tree.root().c_str(), 0777), 0);
  const fs::path path = tree.root() / "s";
  const Fd theirs = foreign(path);
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(3);
    const auto l = UnixListener::open(path, {});
    ::_exit(!l && l.error().code == Errc::denied ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(mode_of(path), 0U);
  EXPECT_TRUE(Wire(path).connected());
}

TEST(Listen, NeitherRemovesNorChangesAnotherKindOfFile) {
  Tree tree;
  tree.write("s", "precious");
  const fs::path path = tree.root() / "s", link = tree.root() / "link";
  const std::string why = ": it is no socket; remove it or name another with --socket-path";
  EXPECT_EQ(refusal(UnixListener::open(path, {}), Errc::invalid),
            "cannot listen on " + path.string() + why);
  fs::create_symlink(path, link);
  EXPECT_EQ(refusal(UnixListener::open(link, {}), Errc::invalid),
            "cannot listen on " + link.string() + why);
  EXPECT_EQ(refusal(UnixListener::open(tree.root(), {}), Errc::invalid),
            "cannot listen on " + tree.root().string() + why);
  std::string text;
  std::getline(std::ifstream(path), text);
  EXPECT_EQ(text, "precious");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(names_in(tree.root()).size(), 2U);
  fs::remove(tree.root().string() + ".lock");
}

TEST(Listen, TakesThePlaceOfALinkAndNotOfItsTarget) {
  const Tree tree;
  const fs::path path = tree.root() / "s", target = tree.root() / "target";
  fs::create_symlink(target, path);
  {
    // Leads nowhere.
    const auto l = UnixListener::open(path, {});
    ASSERT_TRUE(l) << l.error().detail;
    EXPECT_TRUE(fs::is_socket(fs::symlink_status(path)));
    EXPECT_FALSE(fs::exists(target));
  }
  fs::create_symlink(target, path);
  const Fd theirs = foreign(target);
  (void)refusal(UnixListener::open(path, {}), Errc::busy);
  EXPECT_TRUE(fs::is_symlink(path));
}

TEST(Listen, SaysHowLongAPathMayBe) {
  const Tree tree;
  const auto room = 103 - tree.root().string().size() - 1;
  const fs::path longest = tree.root() / std::string(room, 'x');
  const auto l = UnixListener::open(longest, {});
  ASSERT_TRUE(l) << l.error().detail;
  EXPECT_TRUE(Wire(longest).connected());
  EXPECT_EQ(refusal(UnixListener::open(longest.string() + "x", {}), Errc::invalid),
            "cannot listen on " + longest.string() +
                "x: the path of its socket has 103 bytes at the most");
}

// Who opens it the moment it is there finds the rights that it was to have, not those of a umask.
TEST(Listen, HasItsRightsTheMomentItIsThere) {
  const Tree tree;
  const fs::path path = tree.root() / "s";
  const bool root = ::geteuid() == 0;
  std::atomic<bool> over = false;
  std::atomic<int> seen = 0, wrong = 0;
  std::thread watcher([&] {
    struct stat s {};
    while (!over) {
      if (::stat(path.c_str(), &s) != 0) continue;
      const Wire w(path);
      if (!w.connected() && w.error() != ENOENT && w.error() != ECONNREFUSED) ++wrong;
      if ((s.st_mode & 0777) != 0606 || (root && s.st_gid != 1234)) ++wrong;
      ++seen;
    }
  });
  for (int i = 0; i < 500 || seen < 10; ++i) {
    const auto l =
        UnixListener::open(path, {0606, {}, root ? std::optional<unsigned>(1234) : std::nullopt});
    ASSERT_TRUE(l) << l.error().detail;
  }
  over = true;
  watcher.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Listen, RemovesOnlyItsOwnName) {
  const Tree tree;
  const fs::path path = tree.root() / "s";
  auto l = UnixListener::open(path, {});
  ASSERT_TRUE(l);
  fs::remove(path);
  EXPECT_FALSE(l->intact());
  const Fd theirs = foreign(path);
  EXPECT_FALSE(l->intact());
  { const auto gone = std::move(*l); }
  EXPECT_TRUE(Wire(path).connected());
}

TEST(Listen, GivesANameToOneOfManyWhoRaceForIt) {
  const Tree tree;
  const fs::path path = tree.root() / "s";
  for (int round = 0; round < 50; ++round) {
    if (round % 2 == 0) (void)foreign(path);  // A stale one, to be replaced.
    std::atomic<int> won = 0, busy = 0;
    std::atomic<bool> go = false;
    std::vector<std::thread> daemons;
    std::vector<std::optional<UnixListener>> held(4);
    for (auto& mine : held) {
      daemons.emplace_back([&] {
        while (!go) std::this_thread::yield();
        auto l = UnixListener::open(path, {});
        if (l) {
          ++won;
          mine.emplace(std::move(*l));
        } else if (l.error().code == Errc::busy) {
          ++busy;
        }
      });
    }
    go = true;
    for (std::thread& t : daemons) t.join();
    EXPECT_EQ(won, 1);
    EXPECT_EQ(busy, 3);
    EXPECT_TRUE(Wire(path).connected());
  }
}

TEST(ListenTcp, TellsThePortThatItGot) {
  std::string bound;
  for (const char* address : {"127.0.0.1:0", "localhost:0", "[::1]:0"}) {
    const auto fd = listen_tcp(address, bound);
    if (!fd && fd.error().vendor == EADDRNOTAVAIL) continue;  // No IPv6 here.
    if (!fd && fd.error().vendor == EAFNOSUPPORT) continue;
    ASSERT_TRUE(fd) << fd.error().detail;
    EXPECT_EQ(bound.find(":0"), std::string::npos) << bound;
    if (!bound.starts_with("127.")) continue;
    EXPECT_TRUE(Wire(bound).connected());
  }
}

TEST(ListenTcp, RefusesWhatIsNoAddress) {
  std::string bound;
  for (const char* address : {"", "4938", ":4938", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",
                              "127.0.0.1:99999", "127.0.0.1:-1", "no-such-host.invalid:1"}) {
    const auto fd = listen_tcp(address, bound);
    ASSERT_FALSE(fd) << address << " became " << bound;
    EXPECT_EQ(fd.error().code, Errc::invalid) << fd.error().detail;
    EXPECT_TRUE(fd.error().detail.starts_with("cannot listen on ")) << fd.error().detail;
  }
}

TEST(ListenTcp, SaysThatAPortIsTaken) {
  std::string bound, again;
  const auto first = listen_tcp("127.0.0.1:0", bound);
  const auto second = listen_tcp(bound, again);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().detail, "cannot listen on " + bound + ": Address already in use");
}

}  // namespace
}  // namespace zeus::net
