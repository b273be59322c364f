#pragma once
#include <filesystem>
namespace zeus::test {
/// The repository that this was built from. __FILE__ is relative to it, for the compiler cache's
/// sake.
std::filesystem::path source_folder();
}  // namespace zeus::test
