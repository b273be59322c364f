#include "backends/replay/replay.h"

#include <algorithm>
#include <utility>

#include "device/backend.h"

namespace zeus {
namespace replay {
namespace {

/// The recorded time that is now.
struct Position {
  const Clock* clock = nullptr;
  Instant opened{};
  Instant first{}, last{};  ///< Of the recording.

  Instant now() const noexcept { return first + (clock->now() - opened); }
};

/// Some sensors that were read with one call.
class Player final : public Source {
 public:
  explicit Player(const Position& position) : position_(position) {}

  unsigned add(std::vector<Sample> samples) {
    slots_.push_back(std::move(samples));
    return static_cast<unsigned>(slots_.size() - 1);
  }

  Errc read(std::span<Reading> out) noexcept override {
    const Instant now = position_.now();
    if (now > position_.last) return Errc::lost;
    for (std::size_t i = 0; i < out.size() && i < slots_.size(); ++i) {
      const auto& samples = slots_[i];
      const auto after = std::upper_bound(samples.begin(), samples.end(), now,
                                          [](Instant t, const Sample& s) { return t < s.at(); });
      const bool none = after == samples.begin();
      out[i].raw = none ? 0 : std::prev(after)->raw();
      out[i].error = none ? Errc::busy : std::prev(after)->error();
    }
    return Errc::ok;
  }

 private:
  const Position& position_;
  std::vector<std::vector<Sample>> slots_;
};

/// What the sources play from, and they: they go together.
struct Deck {
  Position position;
  std::vector<std::pair<std::uint32_t, std::unique_ptr<Player>>> players;

  Player& player(std::uint32_t source) {
    for (auto& [number, player] : players) {
      if (number == source) return *player;
    }
    return *players.emplace_back(source, std::make_unique<Player>(position)).second;
  }
};

/// Adds what was read at and between the edges of windows: of a sensor that was not sampled there
/// is nothing else.
void add_windows(Recording& recording) {
  for (const Recording::Window& w : recording.windows) {
    const Measurement& m = w.measurement;
    for (std::size_t i = 0; i < m.series.size(); ++i) {
      const Measurement::Series& s = m.series[i];
      auto& samples = recording.samples[recording.places[i]];
      for (const Edge& edge : {s.begin, s.end}) samples.push_back(edge.sample);
      const auto kept = std::span(m.between).subspan(s.first, s.count);
      samples.insert(samples.end(), kept.begin(), kept.end());
    }
  }
}

/// In the order of time, each once.
void sort(std::vector<Sample>& samples) {
  std::erase_if(samples, [](const Sample& s) { return s.at() == Instant{}; });
  std::stable_sort(samples.begin(), samples.end(),
                   [](const Sample& a, const Sample& b) { return a.at() < b.at(); });
  const auto same = [](const Sample& a, const Sample& b) {
    return a.at() == b.at() && a.raw() == b.raw() && a.error() == b.error();
  };
  samples.erase(std::unique(samples.begin(), samples.end(), same), samples.end());
}

/// How far the readings typically lie apart: what is played changes no more often than that.
Duration spacing(const std::vector<Sample>& samples) {
  std::vector<Duration> gaps;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    gaps.push_back(samples[i].at() - samples[i - 1].at());
  }
  if (gaps.empty()) return {};
  const auto middle = gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2);
  std::nth_element(gaps.begin(), middle, gaps.end());
  return *middle;
}

/// From the first instant at which every sensor had been read to the last reading of all.
void set_range(Position& position, const std::vector<std::vector<Sample>>& all) {
  for (const auto& samples : all) {
    if (samples.empty()) continue;
    position.first = std::max(position.first, samples.front().at());
    position.last = std::max(position.last, samples.back().at());
  }
}

/// Of a recording of a recording, what the first one says.
Replay origin(const Provenance& p, const std::string& file) {
  if (p.replay) return {file, p.replay->hostname, p.replay->recorded};
  return {file, p.hostname, p.wall};
}

}  // namespace

Machine play(Recording recording, const std::string& file, const Clock& clock) {
  add_windows(recording);
  for (auto& samples : recording.samples) sort(samples);
  auto deck = std::make_shared<Deck>();
  deck->position.clock = &clock;
  deck->position.opened = clock.now();
  set_range(deck->position, recording.samples);

  Machine machine = std::move(recording.machine);
  machine.replay = origin(recording.provenance, file);
  if (!recording.damage.empty()) {
    machine.problems.push_back(
        {"replay", {Errc::malformed, 0, file + " is not whole: " + recording.damage}});
  }
  std::size_t place = 0;
  for (Device& d : machine.devices) {
    std::vector<Sensor> played;
    for (Sensor& s : d.sensors) {
      auto& samples = recording.samples[place];
      const std::uint32_t source = recording.sources[place++];
      if (samples.empty()) {
        machine.problems.push_back(
            {"replay " + d.info.id,
             {Errc::absent, 0,
              "its sensor " + s.info.name + " is left out: no reading of it was recorded"}});
        continue;
      }
      s.info.profile.update = std::max(s.info.profile.update, spacing(samples));
      Player& player = deck->player(source);
      s.slot = player.add(std::move(samples));
      s.source = &player;
      played.push_back(std::move(s));
    }
    d.sensors = std::move(played);
  }
  machine.owned = {std::move(deck)};
  return machine;
}

}  // namespace replay

Result<Machine> open_recording(const std::string& file) {
  auto recording = Recording::read(file);
  if (!recording) return recording.error();
  return replay::play(std::move(*recording), file, Clock::steady());
}

}  // namespace zeus
