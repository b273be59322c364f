#include "zeus/recording.h"

namespace zeus {

const char* build_id() noexcept { return ZEUS_BUILD; }

}  // namespace zeus
