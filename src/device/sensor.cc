#include "zeus/sensor.h"

#include <array>

namespace zeus {
namespace {

struct Words {
  const char *name, *unit;
};
constexpr std::array<Words, 8> kWords = {{{"energy", "J"},
                                          {"power", "W"},
                                          {"temperature", "degC"},
                                          {"clock", "Hz"},
                                          {"utilization", "1"},
                                          {"memory", "B"},
                                          {"throttle", ""},
                                          {"state", ""}}};

}  // namespace

const char* to_string(Quantity q) noexcept { return kWords[static_cast<std::size_t>(q)].name; }
const char* unit(Quantity q) noexcept { return kWords[static_cast<std::size_t>(q)].unit; }

}  // namespace zeus
