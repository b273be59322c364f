#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "net/asio.h"
#include "net/endpoint.h"
#include "zeus/result.h"

namespace zeus::net {

/// Takes an HTTP/1.1 answer apart as its bytes come in. Allocates only what `body` needs to grow.
class ResponseParser final : public boost::beast::http::basic_parser<false> {
 public:
  static constexpr std::size_t kMostHeader = 64 << 10, kMostBody = 16 << 20;

  /// The body is appended to `body`, which may be emptied at any time.
  explicit ResponseParser(std::string& body) : body_(body) {
    header_limit(kMostHeader);
    body_limit(kMostBody);
    eager(true);
  }

  unsigned status() const noexcept { return status_; }
  bool is_event_stream() const noexcept { return event_stream_; }
  /// Fails where the server's header names another version of the wire than ours.
  Status check_protocol(const Endpoint& from) const;

 private:
  using View = boost::beast::string_view;
  using Code = boost::beast::error_code;

  void on_request_impl(boost::beast::http::verb /*method*/, View /*method*/, View /*target*/,
                       int /*version*/, Code& ec) override {
    ec = {};
  }
  void on_response_impl(int code, View /*reason*/, int /*version*/, Code& ec) override {
    status_ = static_cast<unsigned>(code);
    ec = {};
  }
  void on_field_impl(boost::beast::http::field name, View text, View value, Code& ec) override;
  void on_header_impl(Code& ec) override { ec = {}; }
  void on_body_init_impl(const boost::optional<std::uint64_t>& /*length*/, Code& ec) override {
    ec = {};
  }
  std::size_t on_body_impl(View text, Code& ec) override {
    body_.append(text.data(), text.size());
    ec = {};
    return text.size();
  }
  void on_chunk_header_impl(std::uint64_t /*size*/, View /*extensions*/, Code& ec) override {
    ec = {};
  }
  std::size_t on_chunk_body_impl(std::uint64_t /*left*/, View text, Code& ec) override {
    return on_body_impl(text, ec);
  }
  void on_finish_impl(Code& ec) override { ec = {}; }

  std::string& body_;
  unsigned status_ = 0;
  bool event_stream_ = false;
  std::optional<std::string> protocol_;
};

}  // namespace zeus::net
