#include "net/event_stream.h"

#include <utility>

namespace zeus::net {

void EventStream::feed(std::string_view bytes, const Take& take) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const auto end = bytes.find_first_of("\r\n");
    append(bytes.substr(0, end));
    if (end == std::string_view::npos) return;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    line(take);
  }
}

void EventStream::append(std::string_view part) {
  if (part.empty()) return;
  if (line_.empty()) comment_ = part.front() == ':';
  if (comment_) part = part.substr(0, line_.empty() ? 1 : 0);  // What it says is of no interest.
  if (line_.size() + data_.size() + type_.size() + part.size() <= kMost) {
    line_ += part;
    return;
  }
  too_long_ = true;
  line_ = "-";  // Not empty: no event ends here.
}

void EventStream::line(const Take& take) {
  std::string_view text = line_;
  if (first_ && text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  first_ = false;
  if (text.empty()) {
    end(take);
  } else if (text.front() == ':') {
    ++comments_;
  } else if (!too_long_) {
    const auto colon = text.find(':');
    std::string_view value =
        colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    field(text.substr(0, colon), value);
  }
  line_.clear();
}

void EventStream::field(std::string_view name, std::string_view value) {
  if (name == "data") {
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  } else if (name == "event") {
    type_ = value;
  }
}

void EventStream::end(const Take& take) {
  if (too_long_) {
    ++skipped_;
  } else if (has_data_) {
    take({type_, data_});
  }
  type_.clear();
  data_.clear();
  too_long_ = has_data_ = false;
}

}  // namespace zeus::net
