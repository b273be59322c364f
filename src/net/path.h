#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zeus::net {

/// The path of a request as routing and authorisation see it: "/gpu/set_power_limit" of
/// "/gpu/%73et_power_limit". Every escape is taken out, once, so that nothing can be written one
/// way for the one and another way for the other.
///
/// Nothing for what no route has and only an attack needs: a path that does not begin with '/', a
/// malformed escape, and, once decoded, a control character, bytes that are no UTF-8, a backslash,
/// '?' or '#', an empty segment before the last, and "." or ".." as a segment. A '/' at the end is
/// kept: such a path is another one.
std::optional<std::string> decode_path(std::string_view raw);

}  // namespace zeus::net
