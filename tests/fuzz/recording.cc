#include <algorithm>
#include <string>
#include <vector>

#include "backends/replay/blocks.h"
#include "backends/replay/fields.h"
#include "backends/replay/replay.h"
#include "fuzz/fuzz.h"

// Recordings. The input is read as it is; and, since a checksum keeps out what is not meant to be
// read, again as the payloads of blocks whose frames are right: a kind and a length of two bytes
// before each.

namespace {

using namespace zeus;  // NOLINT(google-build-using-namespace)
using fuzz::require;

std::string framed(std::string_view text) {
  std::string out = replay::preamble();
  while (text.size() > 3) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto kind = static_cast<replay::BlockKind>(byte(0) % 9);
    const std::size_t length = byte(1) | std::size_t{byte(2)} << 8;
    out += replay::frame(kind, text.substr(3, length));
    text.remove_prefix(std::min(text.size(), 3 + length));
  }
  return out;
}

/// What holds of everything that can be read.
void check(const Recording& r) {
  require(r.subject != nullptr && r.places.size() == r.subject->sensors.size());
  require(r.samples.size() == r.sources.size());
  std::size_t sensors = 0;
  for (const Device& d : r.machine.devices) sensors += d.sensors.size();
  require(sensors == r.sources.size());
  for (const std::size_t place : r.places) require(place < r.samples.size());
  for (const Recording::Window& w : r.windows) {
    const Measurement& m = w.measurement;
    require(m.series.size() == m.subject->sensors.size());
    for (const auto& s : m.series) {
      require(s.earlier <= s.first && s.first + s.count + s.later <= m.between.size());
    }
    // What was read is written as it was: the same fields, bit for bit.
    const std::string bytes = replay::pack(w);
    Recording::Window again;
    require(replay::unpack(bytes, again) && replay::pack(again) == bytes);
  }
}

void play(Recording recording) {
  const Machine machine = replay::play(std::move(recording), "fuzz.zeus", Clock::steady());
  require(machine.replay.has_value());
  for (const Device& d : machine.devices) {
    for (const Sensor& s : d.sensors) {
      std::vector<Reading> out(s.slot + 1);
      (void)s.source->read(out);
    }
  }
}

void read(std::string_view bytes) {
  auto recording = Recording::parse(bytes, "fuzz.zeus");
  if (!recording) {
    require(recording.error().detail.starts_with("cannot read fuzz.zeus: "));
    return;
  }
  check(*recording);
  play(std::move(*recording));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::text_of(data, size);
  read(text);
  read(framed(text));
  return 0;
}
