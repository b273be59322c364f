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

constexpr std::array<const char*, 7> kKinds = {"unknown", "counter",     "instant", "boxcar",
                                               "running", "exponential", "model"};
constexpr std::array<const char*, 4> kGains = {"none", "family", "model", "unit"};

}  // namespace

const char* to_string(Quantity q) noexcept { return kWords[static_cast<std::size_t>(q)].name; }
const char* unit(Quantity q) noexcept { return kWords[static_cast<std::size_t>(q)].unit; }
const char* to_string(SensorKind k) noexcept { return kKinds[static_cast<std::size_t>(k)]; }
const char* to_string(GainClass g) noexcept { return kGains[static_cast<std::size_t>(g)]; }

}  // namespace zeus
