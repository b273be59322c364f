#include "base/trusted_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/rights.h"
#include "support/tree.h"

namespace zeus {
namespace {

namespace fs = std::filesystem;
using Use = TrustedFile::Use;

struct Trust : testing::Test {
  Trust() {
    tree.write("etc/zeusd/file", "text\n");
    for (const char* folder : {"etc", "etc/zeusd"}) mode(folder, 0755);
    mode("etc/zeusd/file", 0644);
  }
  fs::path at(const fs::path& relative) const { return tree.root() / relative; }
  void mode(const fs::path& relative, unsigned bits) const {
    ASSERT_EQ(::chmod(at(relative).c_str(), bits), 0);
  }
  std::string refusal(const fs::path& relative = "etc/zeusd/file", Use use = Use::read) const {
    const auto file = TrustedFile::open(at(relative), use);
    return file ? "" : file.error().detail;
  }
  test::Tree tree;
};

TEST_F(Trust, IsInWhatOnlyThisUserCouldWrite) {
  const auto file = TrustedFile::open(at("etc/zeusd/file"), Use::read);
  ASSERT_TRUE(file) << file.error().detail;
  EXPECT_EQ(file->mode(), 0644u);
  EXPECT_EQ(*file->read(5), "text\n");
  EXPECT_TRUE(file->group_writable().empty());
}

TEST_F(Trust, HasALimitToWhatItReads) {
  const auto file = TrustedFile::open(at("etc/zeusd/file"), Use::read);
  ASSERT_TRUE(file);
  const auto text = file->read(4);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().detail,
            "cannot read " + at("etc/zeusd/file").string() + ": it is longer than 4 bytes");
}

TEST_F(Trust, IsNotInAFileThatEverybodyMayWrite) {
  mode("etc/zeusd/file", 0646);
  EXPECT_EQ(refusal(), "cannot trust " + at("etc/zeusd/file").string() + ": everybody may write " +
                           at("etc/zeusd/file").string() + "; chmod o-w " +
                           at("etc/zeusd/file").string());
}

TEST_F(Trust, IsNotInAFolderThatEverybodyMayWrite) {
  mode("etc", 0777);
  EXPECT_NE(refusal().find("everybody may write " + at("etc").string() + ";"), std::string::npos);
  mode("etc", 01777);  // As /tmp: there nobody exchanges what is another's.
  EXPECT_EQ(refusal(), "");
}

TEST_F(Trust, TellsWhatAGroupMayWrite) {
  mode("etc/zeusd", 0775);
  mode("etc/zeusd/file", 0664);
  if (::geteuid() == 0) {
    // Root's own group is as root.
    EXPECT_TRUE(TrustedFile::open(at("etc/zeusd/file"), Use::read)->group_writable().empty());
    for (const char* p : {"etc/zeusd", "etc/zeusd/file"}) {
      ASSERT_EQ(::chown(at(p).c_str(), 0, 7), 0);
    }
  }
  const auto file = TrustedFile::open(at("etc/zeusd/file"), Use::read);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->group_writable(), (std::vector<fs::path>{at("etc/zeusd"), at("etc/zeusd/file")}));
}

TEST_F(Trust, IsInNothingOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(::chown(at("etc/zeusd/file").c_str(), 1234, 0), 0);
  EXPECT_EQ(refusal(), "cannot trust " + at("etc/zeusd/file").string() + ": " +
                           at("etc/zeusd/file").string() +
                           " belongs to user 1234; chown it to root");
  ASSERT_EQ(::chown(at("etc/zeusd/file").c_str(), 0, 0), 0);
  ASSERT_EQ(::chown(at("etc").c_str(), 1234, 0), 0);
  EXPECT_NE(refusal().find(at("etc").string() + " belongs to user 1234"), std::string::npos);
}

TEST_F(Trust, IsInRootAndTheUserItself) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  ASSERT_EQ(::chmod(tree.root().c_str(), 0755), 0);
  ASSERT_EQ(::chown(at("etc/zeusd").c_str(), 65534, 65534), 0);
  EXPECT_NE(refusal(), "");
  const test::Nobody nobody;
  EXPECT_EQ(refusal(), "");
}

TEST_F(Trust, FollowsLinksAndJudgesBothEnds) {
  fs::create_directories(at("usr/share"));
  fs::create_symlink("../etc/./zeusd/../zeusd", at("usr/link"));
  fs::create_symlink(at("usr/link/file"), at("usr/share/file"));
  mode("usr", 0755);
  mode("usr/share", 0755);
  ASSERT_EQ(refusal("usr/share/file"), "");
  mode("etc", 0777);
  EXPECT_NE(refusal("usr/share/file").find("everybody may write " + at("etc").string()),
            std::string::npos);
  mode("etc", 0755);
  mode("usr/share", 0757);
  EXPECT_NE(refusal("usr/share/file"), "");
  fs::create_symlink("loop", at("usr/loop"));
  EXPECT_NE(refusal("usr/loop"), "");
}

TEST_F(Trust, IsInNoLinkThatAnotherUserPutIntoAStickyFolder) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives links away";
  fs::create_directory(at("tmp"));
  mode("tmp", 01777);
  fs::create_symlink("../etc/zeusd/file", at("tmp/link"));
  EXPECT_EQ(refusal("tmp/link"), "");
  ASSERT_EQ(::lchown(at("tmp/link").c_str(), 1234, 1234), 0);
  EXPECT_NE(refusal("tmp/link").find("belongs to user 1234"), std::string::npos);
}

TEST_F(Trust, IsInRegularFilesOnly) {
  EXPECT_EQ(refusal("etc"), "cannot trust " + at("etc").string() + ": it is no regular file");
  ASSERT_EQ(::mkfifo(at("etc/fifo").c_str(), 0600), 0);
  EXPECT_NE(refusal("etc/fifo").find("it is no regular file"), std::string::npos);
  EXPECT_NE(refusal("etc/none").find("No such file"), std::string::npos);
  EXPECT_NE(refusal("etc/zeusd/file/x").find("Not a directory"), std::string::npos);
}

TEST_F(Trust, IsInProgramsThatCanBeExecuted) {
  EXPECT_NE(refusal("etc/zeusd/file", Use::run).find("not executable"), std::string::npos);
  mode("etc/zeusd/file", 0755);
  EXPECT_EQ(refusal("etc/zeusd/file", Use::run), "");
  EXPECT_TRUE(TrustedFile::open("/bin/sh", Use::run));
}

}  // namespace
}  // namespace zeus
