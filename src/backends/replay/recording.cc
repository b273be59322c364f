#include "zeus/recording.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/replay/blocks.h"
#include "backends/replay/fields.h"
#include "base/files.h"

namespace zeus {
namespace {

using replay::Block;
using replay::BlockKind;

/// Every series lies within the samples that were kept, and there is one for each sensor.
bool consistent(const Measurement& m) {
  if (m.series.size() != m.subject->sensors.size()) return false;
  return std::all_of(m.series.begin(), m.series.end(), [&](const Measurement::Series& s) {
    const std::size_t all = m.between.size();
    return s.first <= all && s.count <= all - s.first && s.later <= all - s.first - s.count &&
           s.earlier <= s.first;
  });
}

class Parser {
 public:
  Recording out;

  /// False where a block cannot be read although its checksum is right.
  bool take(const Block& block) {
    switch (block.kind) {
      case BlockKind::provenance: return replay::unpack(block.payload, out.provenance);
      case BlockKind::machine: return machine(block.payload);
      case BlockKind::subject: return subject(block.payload);
      case BlockKind::samples: return samples(block.payload);
      case BlockKind::window: return window(block.payload);
      case BlockKind::result: out.result = block.payload; return true;
      case BlockKind::end: return end(block.payload);
    }
    return true;  // Of a later zeus.
  }
  bool begun() const { return begun_; }
  bool ended() const { return ended_; }

 private:
  bool machine(std::string_view payload) {
    replay::MachineRecord record;
    if (begun_ || !replay::unpack(payload, record)) return false;
    out.machine.problems = std::move(record.problems);
    out.selections = std::move(record.selections);
    for (replay::DeviceRecord& d : record.devices) {
      Device& device = out.machine.devices.emplace_back();
      device.info = std::move(d.info);
      for (replay::SensorRecord& s : d.sensors) {
        device.sensors.push_back({std::move(s.info), nullptr, 0});
        out.sources.push_back(s.source);
      }
    }
    out.machine.simulation = out.provenance.simulation;
    out.samples.resize(out.sources.size());
    begun_ = true;
    return true;
  }

  bool subject(std::string_view payload) {
    replay::SubjectRecord record;
    if (!begun_ || watched_ || !replay::unpack(payload, record)) return false;
    const bool placed = record.places.size() == record.sensors.size() &&
                        std::all_of(record.places.begin(), record.places.end(),
                                    [&](std::uint32_t p) { return p < out.samples.size(); });
    if (!placed) return false;
    out.places.assign(record.places.begin(), record.places.end());
    auto watched = std::make_shared<Subject>();
    watched->sensors = std::move(record.sensors);
    watched->domains = DomainTree(std::move(record.domains));
    out.subject = std::move(watched);
    watched_ = true;
    return true;
  }

  bool samples(std::string_view payload) {
    std::vector<replay::Column> columns;
    if (!replay::unpack_columns(payload, out.samples.size(), columns)) return false;
    for (const replay::Column& c : columns) {
      auto& all = out.samples[c.sensor];
      all.insert(all.end(), c.samples.begin(), c.samples.end());
    }
    return true;
  }

  bool window(std::string_view payload) {
    Recording::Window w;
    w.measurement.subject = out.subject;
    if (!watched_ || !replay::unpack(payload, w) || !consistent(w.measurement)) return false;
    out.windows.push_back(std::move(w));
    return true;
  }

  bool end(std::string_view payload) {
    replay::EndRecord record;
    if (!replay::unpack(payload, record)) return false;
    out.lost = record.lost;
    ended_ = true;
    return true;
  }

  bool begun_ = false, watched_ = false, ended_ = false;
};

}  // namespace

Result<Recording> Recording::read(const std::filesystem::path& path) {
  const auto bytes = read_file(path);
  if (!bytes) return bytes.error();
  return parse(*bytes, path.string());
}

Result<Recording> Recording::parse(std::string_view bytes, std::string_view name) {
  auto blocks = replay::Blocks::open(bytes, name);
  if (!blocks) return blocks.error();
  Parser parser;
  parser.out.subject = std::make_shared<Subject>();
  std::string damage;
  while (!parser.ended() && damage.empty()) {
    const auto block = blocks->next();
    if (!block) break;
    if (!parser.take(*block)) {
      damage = "the block at byte " + std::to_string(block->at) + " cannot be understood";
    }
  }
  if (damage.empty()) damage = blocks->damage();
  if (damage.empty() && !parser.ended()) {
    damage = "it ends at byte " + std::to_string(bytes.size()) +
             " without its last block: its recorder was ended before it was finished";
  }
  if (damage.empty() && blocks->at() != bytes.size()) {
    damage = "something follows its end at byte " + std::to_string(blocks->at());
  }
  if (!parser.begun()) {
    return Error{Errc::malformed, 0, "cannot read " + std::string(name) + ": " + damage};
  }
  parser.out.damage = std::move(damage);
  return std::move(parser.out);
}

}  // namespace zeus
