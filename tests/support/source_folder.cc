#include "support/source_folder.h"

std::filesystem::path zeus::test::source_folder() { return ZEUS_SOURCE_FOLDER; }
