#include "measure/track.h"

#include <chrono>

#include "fuzz/fuzz.h"

// Counters and levels, sample by sample, against arithmetic that cannot overflow. Times are
// multiples of 1/512 s and scales powers of two, so that doubles are exact and both must agree.

namespace {

using namespace zeus;  // NOLINT(google-build-using-namespace)
using fuzz::require;
__extension__ using Wide = __int128;

constexpr std::int64_t kTickNs = 1'000'000'000 / 512;

struct Setup {
  unsigned shift;        // Scale: 2^-shift.
  std::int64_t power;    // Watts, 0: unknown.
  std::int64_t update;   // Ticks.
  Wide wrap;             // 0: it never wraps.
  std::int64_t longest;  // Ticks.
  bool level;
};

struct Reference {
  bool begun = false;
  std::int64_t at = 0;
  Wide raw = 0, total = 0, unseen = 0;
  std::uint64_t polls = 0, failures = 0, resets = 0, gaps = 0;

  void counter(const Setup& s, std::int64_t dt, Wide next) {
    constexpr Wide kUnknown = ~std::uint64_t{0};
    const Wide most = s.power == 0
                          ? kUnknown
                          : (Wide{s.power} * (dt + s.update) * (Wide{1} << s.shift)) / 512 + 1;
    Wide gained = next - raw;
    bool reset = false;
    if (gained < 0 && raw <= s.wrap) {
      gained += s.wrap;
    } else if (gained < 0) {
      reset = true;
    }
    reset = reset || gained > most;
    const bool ambiguous = !reset && s.wrap != 0 && most >= s.wrap;
    if (!reset) total += gained;
    resets += reset ? 1 : 0;
    gaps += ambiguous ? 1 : 0;
    if (reset || ambiguous) unseen += dt;
  }

  void level(const Setup& s, std::int64_t dt, std::int64_t to) {
    total += raw * (to * kTickNs / 1000 - at * kTickNs / 1000);
    if (dt > s.longest) {
      ++gaps;
      unseen += dt;
    }
  }

  void take(const Setup& s, std::int64_t to, Wide next, bool ok) {
    if (!ok) {
      ++failures;
      return;
    }
    ++polls;
    if (begun && to < at) return;
    if (begun && s.level) level(s, to - at, to);
    if (begun && !s.level) counter(s, to - at, next);
    begun = true;
    at = to;
    raw = next;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes in(data, size);
  const auto number = [&](unsigned bytes) { return static_cast<std::int64_t>(in.take(bytes)); };
  Setup s{};
  const std::int64_t kind = number(1);
  s.level = (kind & 1) != 0;
  s.shift = 9 + static_cast<unsigned>(kind >> 1) % 12;
  s.power = number(1) * 16;
  s.update = number(1);
  s.longest = number(1);
  const auto wrap_bits = static_cast<unsigned>(in.take(1)) % 60;
  s.wrap = wrap_bits < 8 ? 0 : (Wide{1} << wrap_bits) - static_cast<Wide>(in.take(1));

  SensorInfo info;
  info.quantity = s.level ? Quantity::power : Quantity::energy;
  info.scale = 1.0 / static_cast<double>(1U << s.shift);
  info.wrap = static_cast<std::uint64_t>(s.wrap);
  info.profile.power_max_w = static_cast<double>(s.power);
  info.profile.update = Duration(s.update * kTickNs);

  Track track;
  Reference reference;
  std::int64_t now = 1;
  // So many gains of 59 bits fit into 64.
  for (int i = 0; i < 31 && !in.empty(); ++i) {
    now = std::max<std::int64_t>(1, now + static_cast<std::int16_t>(in.take(2)));
    const auto width = static_cast<unsigned>(in.take(1));
    const bool good = width < 240;
    // Near the last value, near the wrap, or anywhere.
    std::uint64_t raw = in.take(width % 9);
    if (width % 3 == 0) raw += track.raw;
    if (width % 3 == 1) raw = info.wrap - raw;
    raw &= s.level ? 0xff'ffff : (std::uint64_t{1} << 59) - 1;
    const Track before = track;
    const Sample sample(Instant{} + Duration(now * kTickNs), raw, good ? Errc::ok : Errc::busy);
    follow(track, info, sample, Duration(s.longest * kTickNs));
    reference.take(s, now, raw, good);

    require(track.total >= before.total && track.unseen >= before.unseen);
    require(track.at >= before.at);
    require(Wide{track.total} == reference.total);
    require(Wide{track.unseen.count()} == reference.unseen * kTickNs);
    require(track.polls == reference.polls && track.failures == reference.failures);
    require(track.resets == reference.resets && track.gaps == reference.gaps);
    require(track.raw == static_cast<std::uint64_t>(reference.raw));
  }
  return 0;
}
