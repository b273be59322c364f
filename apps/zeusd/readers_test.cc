// What becomes of counters between the file and the wire: section 19.4.

#include "readers.h"

#include <gtest/gtest.h>

#include <future>

#include "node.h"
#include "support/powercap.h"

namespace zeus::zeusd {
namespace {

class Counters : public testing::Test {
 protected:
  static constexpr std::uint64_t kRange = 1000;

  Counters() { of_range(kRange); }
  void of_range(std::uint64_t uj) {
    tree.zone("intel-rapl:0", "package-0", 0, uj);
    tree.zone("intel-rapl:0:0", "dram", 0, uj);
  }
  void set(std::uint64_t package, std::uint64_t dram = 0) {
    tree.energy("intel-rapl:0", package);
    tree.energy("intel-rapl:0:0", dram);
    if (!node) node.emplace(tree.open(), readers, false, true);
  }
  Value read(const Channel& channel) {
    std::promise<Value> promise;
    readers.submit(
        std::make_shared<ReadOp>(std::vector{channel.feed}, [&](const std::shared_ptr<ReadOp>& op) {
          promise.set_value(op->value(channel.feed, channel.slot));
        }));
    return promise.get_future().get();
  }
  std::uint64_t package() { return on_wire(*node->cpus().at(0).package); }
  std::uint64_t dram() { return on_wire(*node->cpus().at(0).dram); }
  std::uint64_t on_wire(const Channel& channel) {
    const Value v = read(channel);
    EXPECT_TRUE(v.ok());
    return channel.on_wire(v);
  }
  /// What the wire shows of these readings of the package.
  std::vector<std::uint64_t> shown(const std::vector<std::uint64_t>& readings) {
    std::vector<std::uint64_t> out;
    for (const std::uint64_t raw : readings) {
      set(raw);
      out.push_back(package());
    }
    return out;
  }

  test::Powercap tree;
  Readers readers;
  std::optional<Node> node;
};
using Values = std::vector<std::uint64_t>;

TEST_F(Counters, ThatRiseAreShownAsTheyAre) {
  EXPECT_EQ(shown({100, 100, 250, 999}), (Values{100, 100, 250, 999}));
}

TEST_F(Counters, BeginWithTheirFirstReadingWhateverItIs) { EXPECT_EQ(shown({900}), Values{900}); }

TEST_F(Counters, GainTheirRangeWithEachWrap) {
  EXPECT_EQ(shown({900, 100}), (Values{900, 1100}));
  EXPECT_EQ(shown({800, 50, 900, 899}), (Values{1800, 2050, 2900, 3899}));
}

TEST_F(Counters, ThatWrapToNothingShowTheirRange) {
  EXPECT_EQ(shown({900, 0}), (Values{900, 1000}));
}

TEST_F(Counters, OfDramWrapForThemselves) {
  set(100, 900);
  EXPECT_EQ(package(), 100U);
  EXPECT_EQ(dram(), 900U);
  set(200, 100);
  EXPECT_EQ(package(), 200U);
  EXPECT_EQ(dram(), 1100U);
  set(50, 300);
  EXPECT_EQ(package(), 1050U);
  EXPECT_EQ(dram(), 1300U);
}

TEST_F(Counters, NeverFallHoweverFastTheyWrap) {
  std::uint64_t last = 0, raw = 1;
  for (int i = 0; i < 100; ++i) {
    raw = raw * 48271 % 2147483647;  // MINSTD.
    set(raw % kRange);
    const std::uint64_t now = package();
    EXPECT_GE(now, last);
    EXPECT_EQ(now % kRange, raw % kRange);
    last = now;
  }
}

// field failure 45: a processor of 1 kW cannot have used 62 kJ since a moment ago.
TEST_F(Counters, ThatBeginAnewAreNoWrapWhereThatCannotBe) {
  of_range(262143328850);
  EXPECT_EQ(shown({200000000000, 30, 1030}), (Values{200000000000, 200000000000, 200000001000}));
  EXPECT_EQ(read(*node->cpus().at(0).package).resets, 1U);
}

TEST_F(Counters, OfAPackageWithoutDramHaveNone) {
  tree.drop("intel-rapl:0:0", "name");
  set(1);
  EXPECT_FALSE(node->cpus().at(0).dram);
}

TEST_F(Counters, ThatCannotBeReadAreNoNumber) {
  set(100);
  EXPECT_EQ(package(), 100U);
  tree.write(tree.file("intel-rapl:0", "energy_uj"), "N/A\n");
  EXPECT_EQ(read(*node->cpus().at(0).package).error, Errc::malformed);
  set(300);
  EXPECT_EQ(package(), 300U);
}

}  // namespace
}  // namespace zeus::zeusd
