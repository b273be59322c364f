#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "zeus/result.h"

namespace zeus {

/// A file that nobody but root and the effective user of this process put where it is: every folder
/// from the root on, every symbolic link on the way and the file itself belong to one of them, and
/// not everybody may write them. In a folder with the sticky bit everybody may: there nobody can
/// exchange what belongs to others.
///
/// What is judged is what is open, so that nothing can be exchanged between the look and the use.
/// Of a program only the way to it is judged; it is started by its path afterwards, which those
/// alone could change who are trusted anyway.
class TrustedFile {
 public:
  enum class Use { read, run };
  /// Errc::denied names what somebody else may change, and the way out. Errc::invalid if it is no
  /// regular file, or not executable where it is to be run.
  static Result<TrustedFile> open(const std::filesystem::path& path, Use use);

  /// The permission bits of the file.
  unsigned mode() const noexcept { return mode_; }
  /// What a group other than root's may write as well: the file, folders on the way.
  const std::vector<std::filesystem::path>& group_writable() const noexcept { return group_; }

  /// All of it. Errc::invalid if that is more than `most` bytes. Only where it was opened to read.
  Result<std::string> read(std::size_t most) const;

 private:
  friend class TrustWalk;
  TrustedFile() = default;
  std::filesystem::path path_;
  Fd fd_;
  unsigned mode_ = 0;
  std::vector<std::filesystem::path> group_;
};

/// A whole file from an open descriptor, of `most` bytes at the most; more is Errc::invalid. `path`
/// is for messages.
Result<std::string> read_all(const Fd& fd, const std::filesystem::path& path, std::size_t most);

}  // namespace zeus
