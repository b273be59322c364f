#include "backends/zeusd/answers.h"

#include <gtest/gtest.h>

#include <array>

namespace zeus::zeusd {
namespace {

using Readings = std::array<Reading, 4>;
constexpr std::uint16_t kIds[] = {0, 2, 10};

TEST(Answers, OfEnergyAreFoundByTheirKeyInAnyOrder) {
  Readings out;
  ASSERT_EQ(
      parse_answer(Route::gpu_energy,
                   R"({"2":{"energy_mj":7},"0":{"energy_mj":5},"1":{"energy_mj":6}})", kIds, out),
      Errc::ok);
  EXPECT_EQ(out[0].raw, 5u);
  EXPECT_EQ(out[1].raw, 7u);
  EXPECT_EQ(out[1].error, Errc::ok);
  EXPECT_EQ(out[2].error, Errc::lost) << "what it does not say is no zero";
}

TEST(Answers, OfPowerStandInTheirMap) {
  Readings out;
  ASSERT_EQ(parse_answer(Route::gpu_power,
                         R"({"timestamp_ms":1,"power_mw":{"0":75000,"10":0},"2":9})", kIds, out),
            Errc::ok);
  EXPECT_EQ(out[0].raw, 75'000u);
  EXPECT_EQ(out[1].error, Errc::lost);
  EXPECT_EQ(out[2].error, Errc::busy) << "nothing that answers draws nothing";
}

TEST(Answers, OfCpusHaveTwoSlotsAndNullIsAbsent) {
  Readings out;
  constexpr std::uint16_t kTwo[] = {0, 1};
  ASSERT_EQ(parse_answer(Route::cpu_energy,
                         R"({"0":{"cpu_energy_uj":123456,"dram_energy_uj":78901},)"
                         R"("1":{"cpu_energy_uj":234567,"dram_energy_uj":null}})",
                         kTwo, out),
            Errc::ok);
  EXPECT_EQ(out[1].raw, 78'901u);
  EXPECT_EQ(out[2].raw, 234'567u);
  EXPECT_EQ(out[3].error, Errc::absent);
}

TEST(Answers, OfWhichAPartFailedHaveTheRest) {
  Readings out;
  ASSERT_EQ(parse_answer(Route::gpu_energy,
                         R"({"0":{"energy_mj":5},"errors":{"2":"GPU is {lost}"}})", kIds, out),
            Errc::ok);
  EXPECT_EQ(out[0].error, Errc::ok);
  EXPECT_EQ(out[1].error, Errc::lost);
}

TEST(Answers, ThatCannotBeReadAreSaidToBeSo) {
  Readings out;
  for (const char* text :
       {"", "null", "<html>", R"({"0":{"energy_mj":5})", R"({"0":{"energy_mj":-5}})",
        R"({"0":{"energy_mj":1e3}})", R"({"0":{"energy_mj":null}})", R"({"0":5})",
        R"({"0":{"energy_mj":5}}{})"}) {
    EXPECT_EQ(parse_answer(Route::gpu_energy, text, kIds, out), Errc::malformed) << text;
  }
}

TEST(Answers, ThatRefuseNameTheDevicesThatFailed) {
  Readings out;
  EXPECT_EQ(
      parse_errors(Route::gpu_energy, R"({"errors":{"2":"lost","7":"x"}})", Errc::lost, kIds, out),
      1u);
  EXPECT_EQ(out[0].error, Errc::ok);
  EXPECT_EQ(out[1].error, Errc::lost);
  EXPECT_EQ(parse_errors(Route::gpu_energy, R"({"error":"no"})", Errc::denied, kIds, out), 0u);
  EXPECT_EQ(parse_errors(Route::gpu_energy, "plain text", Errc::denied, kIds, out), 0u);
}

}  // namespace
}  // namespace zeus::zeusd
