#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>

#include "backends/replay/blocks.h"
#include "backends/replay/fields.h"
#include "backends/replay/samples.h"
#include "backends/replay/series.h"
#include "support/data.h"

namespace zeus::replay {
namespace {

namespace fs = std::filesystem;

Numbers back(const std::string& bytes, std::size_t n) {
  Bytes in(bytes);
  Numbers out = take_series(in, n);
  EXPECT_TRUE(in.good());
  EXPECT_TRUE(in.empty());
  return out;
}

std::string series(const Numbers& values) {
  std::string out;
  put_series(out, values);
  return out;
}

bool same(const Sample& a, const Sample& b) {
  return a.at() == b.at() && a.raw() == b.raw() && a.error() == b.error();
}

void expect_same(const std::vector<Sample>& got, const std::vector<Sample>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(same(got[i], expected[i])) << i;
}

/// Packs and unpacks columns, which must not change; answers how many bytes they took.
std::size_t through(const std::vector<Column>& columns) {
  const std::string bytes = pack_columns(columns);
  std::vector<Column> out;
  EXPECT_TRUE(unpack_columns(bytes, 1000, out));
  EXPECT_EQ(out.size(), columns.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i].sensor, columns[i].sensor);
    expect_same(out[i].samples, columns[i].samples);
  }
  return bytes.size();
}

// RFC 3720, appendix B.4: 32 bytes of zeros; and the check value of the catalogue of CRCs.
TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
}

TEST(Series, ComesBackWhateverTheNumbers) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  const std::vector<Numbers> cases = {{},
                                      {0},
                                      {kMin},
                                      {kMin, kMax, kMin, kMax},
                                      {kMax, kMin, 0, -1, 1},
                                      {5, 5, 5, 5},
                                      {1, 2, 3, 4, 5},
                                      {0, 0, 0, kMax, 0, 0, kMin}};
  for (const Numbers& values : cases) EXPECT_EQ(back(series(values), values.size()), values);
  std::mt19937_64 random(1);
  for (int run = 0; run < 300; ++run) {
    Numbers values(random() % 200);
    const unsigned shift = static_cast<unsigned>(random() % 64);
    for (auto& v : values) v = static_cast<std::int64_t>(random()) >> shift;
    if (run % 3 == 0)
      std::partial_sum(values.begin(), values.end(), values.begin(), std::bit_xor());
    EXPECT_EQ(back(series(values), values.size()), values);
  }
}

TEST(Series, OfAConstantOrAStraightLineTakesAFewBytesOfAnyLength) {
  Numbers line(kMostValues), flat(kMostValues, 123'456);
  for (std::size_t i = 0; i < line.size(); ++i) line[i] = 1'000'000 + 99'999 * static_cast<int>(i);

  EXPECT_LE(series(flat).size(), 5u);
  EXPECT_LE(series(line).size(), 8u);
}

// Uniform numbers of b bits cannot be told in less than b bits.
TEST(Series, OfNoiseTakesLittleMoreThanTheNoise) {
  std::mt19937_64 random(2);
  for (const unsigned bits : {4u, 10u, 17u, 29u}) {
    Numbers values(2000);
    std::int64_t at = 0;
    for (auto& v : values) {
      at += static_cast<std::int64_t>(random() >> (64 - bits));
      v = at;
    }
    EXPECT_LT(8.0 * static_cast<double>(series(values).size()) / 2000, bits + 2.0) << bits;
  }
}

TEST(Series, ThatIsCutFails) {
  const std::string whole = series({1, 50, -7, 1'000'000, 3});
  for (std::size_t n = 0; n < whole.size(); ++n) {
    Bytes in(std::string_view(whole).substr(0, n));
    (void)take_series(in, 5);
    EXPECT_FALSE(in.good()) << n;
  }
}

TEST(Columns, OfRandomSamplesComeBack) {
  std::mt19937_64 random(3);
  for (int run = 0; run < 100; ++run) {
    std::vector<Column> columns(random() % 5);
    for (auto& c : columns) {
      c.sensor = static_cast<std::uint32_t>(random() % 1000);
      for (std::size_t n = random() % 100; n > 0; --n) {
        const auto at = Instant(Duration(random() >> (3 + random() % 40)));
        c.samples.emplace_back(at, random() >> (4 + random() % 50),
                               static_cast<Errc>(random() % 20 == 0 ? random() % 8 : 0));
      }
      // Some share the times of their neighbour, or all but a few.
      if (&c != &columns.front() && run % 2 == 0) {
        const auto& before = *(&c - 1);
        const std::size_t skip = random() % 3;
        std::vector<Sample> shared;
        for (std::size_t i = skip; i < before.samples.size(); ++i) {
          shared.emplace_back(before.samples[i].at() + Duration(random() % 2), random() % 1000);
        }
        c.samples = std::move(shared);
      }
    }
    (void)through(columns);
  }
}

TEST(Columns, OfOneSourceTellTheirTimesOnce) {
  std::mt19937_64 random(4);
  std::vector<Column> columns(10);
  for (std::uint32_t s = 0; s < columns.size(); ++s) columns[s].sensor = s;
  for (int i = 0; i < 500; ++i) {
    const auto at =
        Instant(Duration(10'000'000LL * (i + 1) + static_cast<int>(random() % 100'000)));
    for (auto& c : columns) c.samples.emplace_back(at, 42);
  }
  const std::size_t one = through({columns[0]}), ten = through(columns);

  EXPECT_LE(ten - one, 9 * 8u);
}

// The kernel shows a register of 2^-14 J as microjoules, rounded down: 61 035 nJ a step.
TEST(Columns, OfARegisterInStepsDoNotTellWhatIsBetweenThem) {
  std::mt19937_64 random(8);
  std::vector<Column> stepped(1), other(1);
  std::uint64_t steps = 1'000'000;
  for (int i = 0; i < 1000; ++i) {
    steps += random() % 4096;
    const auto at = Instant(Duration(1'000'000LL * (i + 1)));
    const std::uint64_t raw = steps * 61'035 / 1000;
    stepped[0].samples.emplace_back(at, raw);
    other[0].samples.emplace_back(at, raw + (i == 500 ? 30 : 0));  // Between two steps.
  }

  EXPECT_LT(through(stepped) + 1000 * 5 / 8, through(other));  // log2(61) is between 5 and 6.
}

TEST(Runs, OfManySensorsComeBack) {
  std::mt19937_64 random(5);
  std::vector<Sample> samples;
  for (int sensor = 0; sensor < 3; ++sensor) {
    for (std::size_t i = 0; i < 5000; ++i) {  // More than one part holds.
      samples.emplace_back(Instant(Duration(1000 * (i + 1))), random() % 100,
                           i % 7 == 0 ? Errc::lost : Errc::ok);
    }
  }
  std::string bytes;
  put_run(bytes, samples);
  Bytes in(bytes);
  expect_same(take_run(in), samples);
  EXPECT_TRUE(in.good() && in.empty());
}

// A node whose processors are read by files of their own: nothing is shared but the pace. Each
// counter is published on a grid of a millisecond, and the sampler is late by up to 100 us.
TEST(Columns, OfProcessorsTakeLessThanFourBytesASample) {
  std::mt19937_64 random(6);
  std::vector<Column> columns(5);
  std::size_t samples = 0;
  for (int i = 0; i < 50; ++i) {
    std::int64_t at = 100'000'000LL * (i + 1) + static_cast<std::int64_t>(random() % 100'000);
    for (std::uint32_t s = 0; s < columns.size(); ++s) {
      at += 3000 + static_cast<std::int64_t>(random() % 2000);
      const double watts = 20.0 * (s + 1) * (i / 10 % 2 == 0 ? 1 : 3);
      const double published_s = std::floor(static_cast<double>(at) * 1e-6) * 1e-3;
      const auto steps = static_cast<std::uint64_t>(watts * published_s / 61.035e-6);
      columns[s].sensor = s;
      columns[s].samples.emplace_back(Instant(Duration(at)), steps * 61'035 / 1000);
      ++samples;
    }
  }
  const double each = static_cast<double>(through(columns)) / static_cast<double>(samples);
  RecordProperty("processors", std::to_string(each));
  EXPECT_LE(each, 4.0);
}

/// The columns of a CSV file of numbers, without the first line.
std::vector<std::vector<double>> read_csv(const fs::path& path) {
  std::ifstream in(path);
  std::string line, cell;
  std::getline(in, line);
  std::vector<std::vector<double>> columns;
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    for (std::size_t i = 0; std::getline(cells, cell, ','); ++i) {
      if (columns.size() <= i) columns.emplace_back();
      columns[i].push_back(std::strtod(cell.c_str(), nullptr));
    }
  }
  return columns;
}

/// What nvidia-smi gave, in the units of NVML: one call that gives power, temperature and clock.
std::vector<std::vector<Column>> blocks_of_trace(const fs::path& path) {
  const auto csv = read_csv(path);
  std::vector<std::vector<Column>> blocks;
  std::mt19937_64 random(7);
  const std::size_t rows = csv.back().size(), columns = csv.size() - 1;
  constexpr std::size_t kBlock = 500;  // Five seconds at 100 Hz.
  for (std::size_t row = 0; row < rows; ++row) {
    if (row % kBlock == 0) {
      blocks.emplace_back(columns);
      for (std::uint32_t s = 0; s < columns; ++s) blocks.back()[s].sensor = s;
    }
    // The trace tells milliseconds; a clock tells nanoseconds.
    const auto at =
        Instant(std::chrono::hours(1) + Duration(static_cast<std::int64_t>(csv[0][row] * 1e6) +
                                                 static_cast<std::int64_t>(random() % 100'000)));
    for (std::size_t s = 0; s < columns; ++s) {
      const bool power = s + 2 < columns;
      const auto raw =
          static_cast<std::uint64_t>(std::llround(csv[s + 1][row] * (power ? 1000 : 1)));
      blocks.back()[s].samples.emplace_back(at, raw);
    }
  }
  return blocks;
}

TEST(Columns, OfRecordedTracesTakeLessThanFourBytesASample) {
  const auto data = test::data();
  if (!data) GTEST_SKIP() << "not run: no data";
  const fs::path folder = *data / "sensor-traces";
  std::size_t traces = 0;
  for (const auto& trace : fs::directory_iterator(folder)) {
    const fs::path file = trace.path() / "sensor.csv";
    if (!fs::exists(file)) continue;
    std::size_t bytes = 0, samples = 0;
    for (const auto& block : blocks_of_trace(file)) {
      bytes += through(block);
      for (const Column& c : block) samples += c.samples.size();
    }
    const double each = static_cast<double>(bytes) / static_cast<double>(samples);
    RecordProperty(trace.path().filename().string(), std::to_string(each));
    EXPECT_LE(each, 4.0) << trace.path();
    ++traces;
  }
  EXPECT_GE(traces, 10u);
}

TEST(Fields, AStructureOfAnOlderFileKeepsItsDefaults) {
  SensorProfile profile;
  profile.id = "p";
  profile.gain = 1.25;
  std::string bytes = pack(profile);
  // Its first field alone, as if the others had not been there yet.
  SensorProfile old;
  ASSERT_TRUE(unpack(std::string_view(bytes).substr(0, 2), old));

  EXPECT_EQ(old.id, "p");
  EXPECT_EQ(old.gain, SensorProfile{}.gain);
}

TEST(Fields, AStructureOfANewerFileIsReadAsFarAsItIsKnown) {
  const std::string inner = pack(Error{Errc::denied, 13, "no"}) + "more";
  std::string bytes;
  put_varint(bytes, 5);
  bytes += "there";
  put_varint(bytes, inner.size());
  bytes += inner;
  Problem out;
  ASSERT_TRUE(unpack(bytes, out));

  EXPECT_EQ(out.error.code, Errc::denied);
  EXPECT_EQ(out.error.vendor, 13);
  EXPECT_EQ(out.error.detail, "no");
}

TEST(Fields, ANumberThatDoesNotFitIsRefused) {
  std::string scope, unit;
  put_varint(scope, 250);
  put_varint(unit, 1);
  put_varint(unit, 70'000);
  DomainId id;

  EXPECT_FALSE(unpack(scope, id));
  EXPECT_FALSE(unpack(unit, id));
}

}  // namespace
}  // namespace zeus::replay
