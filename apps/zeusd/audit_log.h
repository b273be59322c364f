#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/files.h"
#include "control.h"
#include "zeus/result.h"

namespace zeus::zeusd {

/// One line of JSON for each write: who, what, from what, to what, and what came of it. It is
/// written by the thread of the GPU, before whoever asked is answered, and none is dropped: what
/// could not be written is kept, and until it is written no client's write is done.
class AuditLog {
 public:
  /// In a file, and in the log; with an empty path in the log alone.
  static Result<std::unique_ptr<AuditLog>> open(const std::filesystem::path& file);

  void add(const Audit& audit);
  /// Whether a write may be done. Errc::lost with the reason.
  Status ready();
  /// Goes on in a new file, where the former was moved away. Errc::busy while a disk holds it up.
  Status reopen();

 private:
  explicit AuditLog(std::optional<LineFile> file) : file_(std::move(file)) {}

  std::mutex mutex_;
  std::optional<LineFile> file_;
  bool failing_ = false;  ///< That has been said.
};

}  // namespace zeus::zeusd
