#pragma once

// Asio and Beast as all files here include them: Asio 1.74 needs <utility> before it with GCC 12.
// clang-format off
#include <utility>

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/status.hpp>
// clang-format on

namespace zeus::net {
namespace asio = boost::asio;
using boost::system::error_code;
}  // namespace zeus::net
