#pragma once

#include <spdlog/sinks/base_sink.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/files.h"

namespace zeus::zeusd {

/// Lines of the log on a descriptor, standard error most of all. It never waits for whoever reads
/// there: a line for which there is no room is dropped, and how many were is said as soon as there
/// is room again. Files are written as files are.
class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LogSink(int fd);

 private:
  void sink_it_(const spdlog::details::log_msg& msg) override;
  void flush_() override {}
  bool put(std::string_view text);
  std::string_view write_some(std::string_view text) const;

  enum class Kind : std::uint8_t { file, socket, own, polled };
  int fd_;
  Kind kind_ = Kind::file;
  Fd own_;            ///< The same pipe or terminal, by an entry that does not block.
  std::string rest_;  ///< Of a line that had room for a part only.
  std::uint64_t dropped_ = 0;
};

}  // namespace zeus::zeusd
