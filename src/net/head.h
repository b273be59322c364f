#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "net/asio.h"
#include "net/http.h"

namespace zeus::net {

/// The head of a request as Beast's parser tells it; bodies are counted and let go.
class Head final : public boost::beast::http::basic_parser<true> {
 public:
  explicit Head(std::size_t most_headers) : most_headers_(most_headers) {}

  Method method = Method::other;
  std::string target, authorization, host, origin, protocol;
  int version = 11;
  bool hosted = false;    ///< There was a Host line.
  bool twice = false;     ///< There were two where one may be.
  bool expects = false;   ///< Waits for "100 Continue" before it sends its body.
  bool too_many = false;  ///< Lines.

 private:
  using error_code = boost::beast::error_code;
  using view = boost::beast::string_view;
  using field = boost::beast::http::field;

  static void copy(std::string& to, view from) { to.assign(from.data(), from.size()); }
  void put_once(std::string& to, view from) {
    twice |= !to.empty();
    copy(to, from);
  }

  using verb = boost::beast::http::verb;
  void on_request_impl(verb asked, view, view target_given, int minor, error_code&) override {
    method = asked == verb::get ? Method::get : asked == verb::post ? Method::post : Method::other;
    version = minor;
    copy(target, target_given);
  }
  void on_response_impl(int, view, int, error_code&) override {}
  void on_field_impl(field name, view name_text, view value, error_code& ec) override {
    if (++lines_ > most_headers_) {
      too_many = true;
      ec = boost::beast::http::error::header_limit;
      return;
    }
    switch (name) {
      case field::authorization: return put_once(authorization, value);
      case field::origin: return put_once(origin, value);
      case field::host:
        twice |= hosted;
        hosted = true;
        return copy(host, value);
      case field::expect: expects = boost::beast::iequals(value, "100-continue"); return;
      case field::unknown:
        if (boost::beast::iequals(name_text, "Zeus-Protocol")) put_once(protocol, value);
        return;
      default: return;
    }
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(view body, error_code&) override { return body.size(); }
  void on_chunk_header_impl(std::uint64_t, view, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, view body, error_code&) override {
    return body.size();
  }
  void on_finish_impl(error_code&) override {}

  std::size_t most_headers_, lines_ = 0;
};

}  // namespace zeus::net
