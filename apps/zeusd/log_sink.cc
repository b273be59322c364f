#include "log_sink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/details/log_msg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace zeus::zeusd {

LogSink::LogSink(int fd) : fd_(fd) {
  struct stat there {};
  if (::fstat(fd_, &there) != 0) return;
  if (S_ISSOCK(there.st_mode)) {
    kind_ = Kind::socket;
  } else if (S_ISFIFO(there.st_mode) || ::isatty(fd_) == 1) {
    // O_NONBLOCK on the descriptor itself would be our parent's as well, who shares it.
    own_ = Fd(::open(fmt::format("/proc/self/fd/{}", fd_).c_str(),
                     O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    kind_ = own_.get() >= 0 ? Kind::own : Kind::polled;
  }
}

/// What is left of it.
std::string_view LogSink::write_some(std::string_view text) const {
  ssize_t n = -1;
  switch (kind_) {
    case Kind::file: n = ::write(fd_, text.data(), text.size()); break;
    case Kind::socket:
      n = ::send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      break;
    case Kind::own: n = ::write(own_.get(), text.data(), text.size()); break;
    case Kind::polled: {
      // A pipe that is ready takes so much at once.
      pollfd ready{fd_, POLLOUT, 0};
      if (::poll(&ready, 1, 0) == 1) {
        n = ::write(fd_, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
      }
      break;
    }
  }
  if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
  return text;
}

/// False where there is no room for any of it. The rest of a line is owed.
bool LogSink::put(std::string_view text) {
  const std::string_view left = write_some(text);
  if (left.size() == text.size()) return false;
  rest_ = left;
  return true;
}

void LogSink::sink_it_(const spdlog::details::log_msg& msg) {
  if (!rest_.empty()) rest_ = std::string(write_some(rest_));
  spdlog::memory_buf_t text;
  if (rest_.empty() && dropped_ > 0) {
    const std::string said = fmt::format(
        "{} lines of this log were dropped: whoever reads it did not keep up", dropped_);
    const spdlog::details::log_msg note(msg.logger_name, spdlog::level::warn, said);
    formatter_->format(note, text);
    if (put({text.data(), text.size()})) dropped_ = 0;
    text.clear();
  }
  formatter_->format(msg, text);
  if (!rest_.empty() || dropped_ > 0 || !put({text.data(), text.size()})) ++dropped_;
}

}  // namespace zeus::zeusd
