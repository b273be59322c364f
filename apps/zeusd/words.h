#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "zeus/result.h"

namespace zeus::zeusd {

/// The words of a command without a shell, as POSIX splits them: blanks separate; within '...'
/// everything is itself; within "..." a backslash makes $, `, ", a backslash and a line end so, and
/// elsewhere any character; a line end after a backslash is dropped; a # that begins a word begins
/// a comment. Nothing is expanded. Errc::invalid for what ends within a quote or after a backslash,
/// for a NUL, and for no word at all.
Result<std::vector<std::string>> split_command(std::string_view text);

}  // namespace zeus::zeusd
