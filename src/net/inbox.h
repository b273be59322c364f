#pragma once

#include <array>
#include <boost/beast/http/error.hpp>
#include <cstddef>
#include <cstring>

#include "net/response_parser.h"

namespace zeus::net {

/// Bytes that came from a peer and that its answer's parser has not taken yet.
class Inbox {
 public:
  boost::asio::mutable_buffer room() noexcept {
    return {bytes_.data() + filled_, bytes_.size() - filled_};
  }
  bool empty() const noexcept { return filled_ == 0; }
  void clear() noexcept { filled_ = 0; }

  /// `count` bytes have come into room(). True once the answer is whole.
  bool take(std::size_t count, ResponseParser& parser, boost::beast::error_code& ec) {
    namespace http = boost::beast::http;
    filled_ += count;
    while (filled_ > 0 && !parser.is_done()) {
      const std::size_t used = parser.put(boost::asio::const_buffer(bytes_.data(), filled_), ec);
      filled_ -= used;
      std::memmove(bytes_.data(), bytes_.data() + used, filled_);
      if (ec == http::error::need_more) {
        ec = {};
        if (filled_ == bytes_.size()) ec = http::error::header_limit;
        return false;
      }
      if (ec) return false;
    }
    return parser.is_done();
  }

 private:
  std::array<char, ResponseParser::kMostHeader> bytes_;
  std::size_t filled_ = 0;
};

}  // namespace zeus::net
