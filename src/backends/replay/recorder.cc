#include <algorithm>
#include <utility>

#include "backends/replay/blocks.h"
#include "backends/replay/fields.h"
#include "backends/replay/series.h"
#include "base/files.h"
#include "zeus/recording.h"

namespace zeus {

using replay::BlockKind;
using replay::Column;
using replay::kMostValues;

struct Recorder::Impl {
  explicit Impl(StreamFile f) : file(std::move(f)) {}

  void write(std::string_view bytes) {
    if (!status) return;
    status = file.write(bytes);
    if (status) size.bytes += bytes.size();
  }
  void write(BlockKind kind, std::string_view payload) { write(replay::frame(kind, payload)); }

  StreamFile file;
  Status status = ok();
  Size size;
  std::vector<std::uint32_t> places;  // Of the subject's sensors among the machine's.
  std::vector<Column> held;           // By place.
  Instant oldest{};                   // Of the samples that are held; zero: there is none.
  Instant newest{};
};

namespace {

/// The devices as they are written. Sensors that share a source get one number.
replay::MachineRecord record_of(const Machine& machine, const Selections& selections) {
  replay::MachineRecord out{{}, machine.problems, selections};
  std::vector<const Source*> sources;
  for (const Device& d : machine.devices) {
    out.devices.push_back({d.info, {}});
    for (const Sensor& s : d.sensors) {
      auto at = std::find(sources.begin(), sources.end(), s.source);
      if (at == sources.end()) at = sources.insert(at, s.source);
      out.devices.back().sensors.push_back(
          {s.info, static_cast<std::uint32_t>(at - sources.begin())});
    }
  }
  return out;
}

replay::SubjectRecord record_of(const Machine& machine, const Subject& subject) {
  replay::SubjectRecord out{subject.sensors, {}, subject.domains.all()};
  for (const SensorInfo& info : subject.sensors) {
    std::uint32_t place = 0;
    const auto find = [&] {
      for (const Device& d : machine.devices) {
        for (const Sensor& s : d.sensors) {
          if (s.info.domain == info.domain && s.info.name == info.name) return;
          ++place;
        }
      }
    };
    find();
    out.places.push_back(place);
  }
  return out;
}

}  // namespace

Recorder::Recorder(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Recorder::Recorder(Recorder&&) noexcept = default;
Recorder& Recorder::operator=(Recorder&&) noexcept = default;
Recorder::~Recorder() = default;

Result<Recorder> Recorder::create(const std::filesystem::path& path) {
  auto file = StreamFile::create(path);
  if (!file) return file.error();
  return Recorder(std::make_unique<Impl>(std::move(*file)));
}

void Recorder::begin(const Provenance& provenance, const Machine& machine,
                     const Selections& selections, const Subject& subject) {
  const auto watched = record_of(machine, subject);
  impl_->places = watched.places;
  std::uint32_t sensors = 0;
  for (const Device& d : machine.devices) sensors += static_cast<std::uint32_t>(d.sensors.size());
  for (std::uint32_t i = 0; i < sensors; ++i) impl_->held.push_back({i, {}});
  for (std::size_t i = 0; i < watched.places.size(); ++i) {
    if (watched.places[i] < sensors || !impl_->status) continue;
    impl_->status = Error{Errc::invalid, 0,
                          "cannot record " + subject.sensors[i].name +
                              ": it is no sensor of the machine that is recorded"};
  }
  impl_->write(replay::preamble() + replay::frame(BlockKind::provenance, replay::pack(provenance)) +
               replay::frame(BlockKind::machine, replay::pack(record_of(machine, selections))) +
               replay::frame(BlockKind::subject, replay::pack(watched)));
}

void Recorder::add(std::size_t sensor, const Sample& sample) {
  Impl& impl = *impl_;
  const std::size_t place = sensor < impl.places.size() ? impl.places[sensor] : impl.held.size();
  if (place >= impl.held.size() || !impl.status) return;
  auto& samples = impl.held[place].samples;
  if (samples.size() == kMostValues) write_samples();
  samples.push_back(sample);
  if (impl.oldest == Instant{}) impl.oldest = sample.at();
  impl.oldest = std::min(impl.oldest, sample.at());
  impl.newest = std::max(impl.newest, sample.at());
}

void Recorder::flush() {
  if (impl_->oldest != Instant{} && impl_->newest - impl_->oldest >= kHeld) write_samples();
}

void Recorder::write_samples() {
  Impl& impl = *impl_;
  std::vector<Column> full;
  for (Column& column : impl.held) {
    if (column.samples.empty()) continue;
    impl.size.samples += column.samples.size();
    full.push_back({column.sensor, std::exchange(column.samples, {})});
  }
  impl.oldest = {};
  if (full.empty()) return;
  const std::uint64_t before = impl.size.bytes;
  impl.write(BlockKind::samples, replay::pack_columns(full));
  impl.size.sample_bytes += impl.size.bytes - before;
}

void Recorder::add(const Measurement& window, Instant from) {
  write_samples();
  impl_->write(BlockKind::window, replay::pack(Recording::Window{window, from}));
}

Status Recorder::finish(std::string_view result, std::uint64_t lost) {
  write_samples();
  impl_->write(BlockKind::result, result);
  impl_->write(BlockKind::end, replay::pack(replay::EndRecord{lost}));
  if (impl_->status) impl_->status = impl_->file.sync();
  return impl_->status;
}

Status Recorder::status() const { return impl_->status; }
Recorder::Size Recorder::size() const noexcept { return impl_->size; }

}  // namespace zeus
