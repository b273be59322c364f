#pragma once

// Asio and Beast as all files here include them: Asio 1.74 needs <utility> before it with GCC 12.
// clang-format off
#include <utility>

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/http/basic_parser.hpp>
// clang-format on
