#pragma once

#include <string>
#include <string_view>

#include "zeus/result.h"

namespace zeus::cli {

/// A file that appears whole or not at all: written beside its place and renamed by commit().
/// What is no regular file (a pipe, /dev/stderr) is written as it comes.
class OutputFile {
 public:
  /// Proves that the file can be written before anything else is done.
  static Result<OutputFile> open(const std::string& path);
  /// Opens a file whose lines are to be seen at once; what it held is gone.
  static Result<OutputFile> stream(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();  ///< Without commit() nothing is left behind.

  Status write(std::string_view text);
  Status commit();

 private:
  OutputFile() = default;
  Error failed(std::string_view what, int error) const;
  int fd_ = -1;
  std::string path_, temporary_;  // No temporary: `path_` itself is open.
};

/// "zeus: sentence" in one line of standard error, whatever the sentence quotes.
void complain(std::string_view sentence);

/// Writes everything, over short writes and signals. Answers errno, or 0.
int write_all(int fd, std::string_view text) noexcept;

}  // namespace zeus::cli
