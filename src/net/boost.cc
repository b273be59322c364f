// The parts of Asio and Beast that need compiling only once.
// clang-format off
#include <utility>

#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
// clang-format on
