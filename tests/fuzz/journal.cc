#include <charconv>
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
  Result<double> get() override { return value; }
  Status set(double to) override {
    value = to;
    ++turns;
    return ok();
  }
  double value = 300;
  int turns = 0;
};

/// The number of a journal that is whole and of our knob.
std::optional<double> former(std::string_view text) {
  std::vector<std::string> lines(1);
  for (const char c : text.substr(0, 4096)) {
    if (c != '\n') {
      lines.back() += c;
    } else {
      lines.emplace_back();
    }
  }
  if (lines.size() < 5 || lines[0] != "gpu-0" || lines[1] != "power_limit" || lines[3] != "end") {
    return std::nullopt;
  }
  double value = 0;
  const char* const end = lines[2].data() + lines[2].size();
  const auto [stop, ec] = std::from_chars(lines[2].data(), end, value);
  return ec == std::errc{} && stop == end ? std::optional(value) : std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static test::Tree tree;
  const auto text = fuzz::text_of(data, size);
  const std::filesystem::path file = tree.root() / "gpu-0+power_limit.lease";
  const auto expected = former(text);
  const bool fits = expected && ((*expected >= 100 && *expected <= 400) || *expected == 500);

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
    require(lease->former() == (fits ? *expected : 300));
  }
  require(dial.value == (fits ? *expected : 300));
  require(!std::filesystem::exists(file));
  return 0;
}
