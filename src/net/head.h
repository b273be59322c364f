#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "net/asio.h"
#include "net/http.h"

namespace zeus::net {

/// The head of a request as Beast's parser tells it; bodies are counted and let go.
class Head final : public boost::beast::http::basic_parser<true> {
 public:
  /// Bytes of the head, lines of it, bytes of the body.
  Head(std::size_t most, std::size_t most_headers, std::size_t most_body)
      : most_(most), most_headers_(most_headers) {
    header_limit(static_cast<std::uint32_t>(most));
    body_limit(most_body);
  }

  /// Takes in what has come, and says how much of it was used: the rest is to be given again, with
  /// more behind it. `need_more`: there is no more to be learned from it yet.
  std::size_t feed(std::string_view bytes, boost::beast::error_code& ec) {
    const bool body = is_header_done();
    // Beast's parser holds that the end of a chunked body, once begun, has five bytes.
    if (body && chunked() && bytes.size() < 5) {
      ec = boost::beast::http::error::need_more;
      return 0;
    }
    const std::size_t used = put(boost::asio::buffer(bytes), ec);
    if (!body) seen_ += used;
    // It counts what it was given in one piece only: neither the lines before, nor what frames
    // chunks.
    const std::size_t waits = ec == boost::beast::http::error::need_more ? bytes.size() - used : 0;
    if ((body ? 0 : seen_) + waits > most_) ec = boost::beast::http::error::header_limit;
    return used;
  }

  Method method = Method::other;
  std::string target, authorization, host, origin, protocol;
  int version = 11;
  bool hosted = false;    ///< There was a Host line.
  bool twice = false;     ///< There were two where one may be.
  bool coded = false;     ///< By a transfer coding that nobody can tell the end of.
  bool expects = false;   ///< Waits for "100 Continue" before it sends its body.
  bool bodiless = false;  ///< HEAD: the answer has no body, whatever its head says.

 private:
  using error_code = boost::beast::error_code;
  using view = boost::beast::string_view;
  using field = boost::beast::http::field;

  static void copy(std::string& to, view from) { to.assign(from.data(), from.size()); }
  /// Notes a line that may stand once only: two would be read in two ways.
  void once(unsigned line) {
    twice |= (stood_ & (1U << line)) != 0;
    stood_ |= 1U << line;
  }

  using verb = boost::beast::http::verb;
  void on_request_impl(verb asked, view, view target_given, int minor, error_code&) override {
    method = asked == verb::get ? Method::get : asked == verb::post ? Method::post : Method::other;
    bodiless = asked == verb::head;
    version = minor;
    copy(target, target_given);
  }
  void on_response_impl(int, view, int, error_code&) override {}
  void on_field_impl(field name, view name_text, view value, error_code& ec) override {
    if (++lines_ > most_headers_) {
      ec = boost::beast::http::error::header_limit;
      return;
    }
    if (is_header_done()) return;  // What stands behind a body says nothing.
    switch (name) {
      case field::authorization: once(0); return copy(authorization, value);
      case field::origin: once(1); return copy(origin, value);
      case field::host:
        once(2);
        hosted = true;
        return copy(host, value);
      case field::content_length:
        once(3);
        twice |= value.find(',') != view::npos;
        return;
      case field::transfer_encoding:
        once(4);
        coded |= version < 11 || !boost::beast::iequals(value, "chunked");
        return;
      case field::expect:
        expects = version >= 11 && boost::beast::iequals(value, "100-continue");
        return;
      case field::unknown:
        if (!boost::beast::iequals(name_text, "Zeus-Protocol")) return;
        once(5);
        return copy(protocol, value);
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

  std::size_t most_, most_headers_, seen_ = 0, lines_ = 0;
  unsigned stood_ = 0;
};

}  // namespace zeus::net
