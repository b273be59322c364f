#include "backends/replay/samples.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backends/replay/series.h"

namespace zeus::replay {
namespace {

// How samples are told: the bits of the byte before them.
constexpr unsigned kSameTimes = 1;  // Those of the column before, one for one.
constexpr unsigned kNearTimes = 2;  // Near those of the column before.
constexpr unsigned kHasErrors = 4;  // Not every sample could be read.
constexpr unsigned kStepped = 8;    // Every raw value is a whole number of steps, rounded down.

template <class F>
Numbers each(std::span<const Sample> samples, F&& number) {
  Numbers out;
  out.reserve(samples.size());
  for (const Sample& s : samples) out.push_back(static_cast<std::int64_t>(number(s)));
  return out;
}

Numbers times_of(std::span<const Sample> samples) {
  return each(samples, [](const Sample& s) { return s.at().time_since_epoch().count(); });
}

/// Steps are told in thousandths of a raw unit.
constexpr std::int64_t kThousand = 1000;
/// Beyond this a product with a step would overflow.
constexpr std::int64_t kMostStepped = std::int64_t{1} << 42;

/// Steps that counters in microjoules are known to have: registers count in 2^-k J, or in 15.3 uJ,
/// and the kernel has rounded these to nanojoules. That costs six bits of every value.
constexpr std::int64_t kSteps[] = {15'300,  15'258,  30'517,  61'035,
                                   122'070, 244'140, 488'281, 976'562};

/// How many steps of `step` each value is; nothing where one of them lies between two.
std::optional<Numbers> in_steps(const Numbers& raw, std::int64_t step) {
  Numbers out;
  for (const std::int64_t v : raw) {
    if (v < 0 || v >= kMostStepped) return std::nullopt;
    const std::int64_t n = (v * kThousand + step - 1) / step;
    if (n * step / kThousand != v) return std::nullopt;
    out.push_back(n);
  }
  return out;
}

/// What was read, at times that are told elsewhere: the bits of how, and the bytes.
struct Values {
  explicit Values(std::span<const Sample> samples) {
    const Numbers raw = each(samples, [](const Sample& s) { return s.raw(); });
    put_series(bytes, raw);
    for (const std::int64_t step : kSteps) {
      const auto steps = in_steps(raw, step);
      if (!steps) continue;
      std::string told;
      put_varint(told, static_cast<std::uint64_t>(step));
      put_series(told, *steps);
      if (told.size() >= bytes.size()) continue;
      how = kStepped;
      bytes = std::move(told);
    }
    if (std::all_of(samples.begin(), samples.end(), [](const Sample& s) { return s.ok(); })) return;
    how |= kHasErrors;
    put_series(bytes, each(samples, [](const Sample& s) { return s.error(); }));
  }
  unsigned how = 0;
  std::string bytes;
};

Numbers take_raw(Bytes& in, std::size_t n, unsigned how) {
  if ((how & kStepped) == 0) return take_series(in, n);
  const std::uint64_t step = in.varint();
  Numbers raw = take_series(in, n);
  for (std::int64_t& v : raw) {
    if (v < 0 || v >= kMostStepped || step > 1'000'000) {
      in.fail();
      return {};
    }
    v = v * static_cast<std::int64_t>(step) / kThousand;
  }
  return raw;
}

std::vector<Sample> take_values(Bytes& in, const Numbers& times, unsigned how) {
  const Numbers raw = take_raw(in, times.size(), how);
  const Numbers codes =
      (how & kHasErrors) != 0 ? take_series(in, times.size()) : Numbers(times.size(), 0);
  std::vector<Sample> out;
  for (std::size_t i = 0; i < times.size() && in.good(); ++i) {
    const bool fits = times[i] >= 0 && times[i] < std::int64_t{1} << 61 && raw[i] >= 0 &&
                      raw[i] >> 59 == 0 && codes[i] >= 0 &&
                      codes[i] <= static_cast<std::int64_t>(Errc::malformed);
    if (!fits) in.fail();
    out.emplace_back(Instant(Duration(times[i])), static_cast<std::uint64_t>(raw[i]),
                     static_cast<Errc>(codes[i]));
  }
  return out;
}

/// Where in `before` the column `times` begins: at the time nearest to its first.
std::size_t place_in(const Numbers& before, std::int64_t first) {
  const auto at = std::lower_bound(before.begin(), before.end(), first);
  const auto place = static_cast<std::size_t>(at - before.begin());
  if (place == 0) return 0;
  if (place == before.size()) return place - 1;
  return before[place] - first < first - before[place - 1] ? place : place - 1;
}

/// Times as distances from those of the column before, and what goes beyond these by itself.
std::string near(const Numbers& before, const Numbers& times) {
  const std::size_t skip = place_in(before, times.front());
  const std::size_t n = std::min(times.size(), before.size() - skip);
  Numbers distances;
  for (std::size_t i = 0; i < n; ++i) distances.push_back(times[i] - before[skip + i]);
  std::string out;
  put_varint(out, skip);
  put_series(out, distances);
  put_series(out, Numbers(times.begin() + static_cast<std::ptrdiff_t>(n), times.end()));
  return out;
}

Numbers take_near(Bytes& in, const Numbers& before, std::size_t count) {
  const std::uint64_t skip = in.varint();
  if (skip >= before.size()) {
    in.fail();
    return {};
  }
  const auto from = static_cast<std::size_t>(skip);
  const std::size_t n = std::min(count, before.size() - from);
  Numbers times = take_series(in, n);
  for (std::size_t i = 0; i < times.size(); ++i) {
    times[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(times[i]) +
                                         static_cast<std::uint64_t>(before[from + i]));
  }
  const Numbers rest = take_series(in, count - n);
  times.insert(times.end(), rest.begin(), rest.end());
  return times;
}

}  // namespace

std::string pack_columns(std::span<const Column> columns) {
  std::string out;
  put_varint(out, columns.size());
  Numbers before;
  for (const Column& column : columns) {
    Numbers times = times_of(column.samples);
    std::string told;
    put_series(told, times);
    unsigned how = 0;
    if (times == before) {
      how = kSameTimes;
      told.clear();
    } else if (!before.empty() && !times.empty()) {
      if (std::string shorter = near(before, times); shorter.size() < told.size()) {
        how = kNearTimes;
        told = std::move(shorter);
      }
    }
    const Values values(column.samples);
    put_varint(out, column.sensor);
    put_varint(out, column.samples.size());
    out += static_cast<char>(how | values.how);
    out += told;
    out += values.bytes;
    before = std::move(times);
  }
  return out;
}

bool unpack_columns(std::string_view bytes, std::size_t sensors, std::vector<Column>& columns) {
  Bytes in(bytes);
  columns.clear();
  Numbers before;
  for (std::uint64_t n = in.varint(); n > 0 && in.good(); --n) {
    const std::uint64_t sensor = in.varint(), count = in.varint();
    const auto how = static_cast<unsigned>(in.fixed(1));
    if (sensor >= sensors || count > kMostValues) return false;
    if ((how & kSameTimes) != 0 && count != before.size()) return false;
    Numbers times = (how & kSameTimes) != 0   ? before
                    : (how & kNearTimes) != 0 ? take_near(in, before, count)
                                              : take_series(in, count);
    if (!in.good()) return false;
    columns.push_back({static_cast<std::uint32_t>(sensor), take_values(in, times, how)});
    before = std::move(times);
  }
  return in.good();
}

void put_run(std::string& out, std::span<const Sample> samples) {
  // A new sensor begins where time goes back.
  std::string parts;
  std::uint64_t count = 0;
  while (!samples.empty()) {
    std::size_t n = 1;
    while (n < samples.size() && n < kMostValues && samples[n].at() >= samples[n - 1].at()) ++n;
    const auto part = samples.first(n);
    const Values values(part);
    put_varint(parts, n);
    parts += static_cast<char>(values.how);
    put_series(parts, times_of(part));
    parts += values.bytes;
    samples = samples.subspan(n);
    ++count;
  }
  put_varint(out, count);
  out += parts;
}

std::vector<Sample> take_run(Bytes& in) {
  std::vector<Sample> out;
  for (std::uint64_t n = in.varint(); n > 0 && in.good(); --n) {
    const std::uint64_t count = in.varint();
    if (count == 0 || count > kMostValues) {
      in.fail();
      break;
    }
    const auto how = static_cast<unsigned>(in.fixed(1));
    const Numbers times = take_series(in, static_cast<std::size_t>(count));
    if (!in.good()) break;
    const auto part = take_values(in, times, how);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

}  // namespace zeus::replay
