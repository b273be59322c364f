#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "device/backend.h"
#include "fuzz/fuzz.h"
#include "support/tree.h"
#include "zeus/lease.h"

// What a lease left behind when its process was killed. The input is the text of the journal.

namespace {

using namespace zeus;  // NOLINT(google-build-using-namespace)
using fuzz::require;

struct Dial final : Knob {
  Result<Setting> get() override { return value; }
  Status set(Setting to) override {
    value = to;
    ++turns;
    return ok();
  }
  Setting value = 300;
  int turns = 0;
};

/// The setting of a journal that is whole, of our knob, and of no boot in particular.
std::optional<Setting> former(std::string_view text) {
  std::vector<std::string> lines(1);
  for (const char c : text.substr(0, 4096)) {
    if (c != '\n') {
      lines.back() += c;
    } else {
      lines.emplace_back();
    }
  }
  if (lines.size() < 8 || !lines[0].empty() || lines[1] != "gpu-0" || lines[2] != "power_limit" ||
      lines[6] != "end") {
    return std::nullopt;
  }
  double values[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string& line = lines[4 + i];
    const char* const end = line.data() + line.size();
    const auto [stop, ec] = std::from_chars(line.data(), end, values[i]);
    if (ec != std::errc{} || stop != end || !std::isfinite(values[i])) return std::nullopt;
  }
  return Setting(values[0], values[1]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static test::Tree tree;
  const auto text = fuzz::text_of(data, size);
  const std::filesystem::path file = tree.root() / "gpu-0+power_limit.lease";
  const auto expected = former(text);
  const bool fits = expected && expected->low == expected->high &&
                    ((expected->low >= 100 && expected->low <= 400) || expected->low == 500);

  Dial dial;
  Machine machine;
  Device device;
  device.info.id = "gpu-0";
  device.knobs = {{"power_limit", Quantity::power, 100, 400, 500, &dial}};
  machine.devices = {device};

  tree.write(file.filename(), text);
  const auto problems = restore_orphans(machine, tree.root());
  require(dial.turns == (fits ? 1 : 0));  // Nothing is turned unless the journal is whole.
  require(!fits || dial.value == *expected);
  // It stays only with a reason.
  require(std::filesystem::exists(file) == !problems.empty());
  require(problems.empty() || !problems[0].error.detail.empty());

  // The next lease goes back to the orphan's value if that can be had, else to what it finds.
  tree.write(file.filename(), text);
  dial = Dial();
  {
    const auto lease = Lease::take(machine, "gpu-0", "power_limit", 200, tree.root());
    require(lease && dial.value == 200);
    require(lease->former() == (fits ? *expected : Setting(300)));
  }
  require(dial.value == (fits ? *expected : Setting(300)));
  require(!std::filesystem::exists(file));
  return 0;
}
