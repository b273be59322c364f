#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zeus/device.h"
#include "zeus/export.h"
#include "zeus/measurement.h"
#include "zeus/result.h"

namespace zeus {

/// What tells this build of the library from others: compiler, processor, kind of build, and a hash
/// of these with the version and the flags. Where it is equal, results are equal bit for bit.
ZEUS_API const char* build_id() noexcept;

/// Where, when and by which build something was recorded.
struct Provenance {
  std::string version{};  ///< Of Zeus: "0.1.0".
  std::string build{};    ///< build_id() there.
  std::string hostname{}, kernel{}, address{};
  std::chrono::system_clock::time_point wall{};  ///< The wall clock showed this ...
  Instant at{};                                  ///< ... when the monotonic one showed that.
  std::optional<Simulation> simulation{};
  std::optional<Replay> replay{};  ///< What was recorded was a recording itself.
};

using Selections = std::vector<std::pair<std::string, Selection>>;  ///< "gpu", "cpu".

/// Writes a recording while it is made: docs/reference/record-format.md. A file whose recorder was
/// killed holds all but the last `kHeld`. Once a write has failed nothing more is written, and
/// status() and finish() say why. Not for several threads at once.
class ZEUS_API Recorder {
 public:
  static constexpr Duration kHeld = std::chrono::seconds(20);

  /// What the file held is gone.
  static Result<Recorder> create(const std::filesystem::path& path);
  Recorder(Recorder&&) noexcept;
  Recorder& operator=(Recorder&&) noexcept;
  ~Recorder();

  /// Writes what there is to record. Comes first, and once.
  void begin(const Provenance& provenance, const Machine& machine, const Selections& selections,
             const Subject& subject);
  /// One sample of a sensor of the subject.
  void add(std::size_t sensor, const Sample& sample);
  /// A window over the subject, whose samples were added from `from` on.
  void add(const Measurement& window, Instant from);
  /// Writes the samples that have been held long enough.
  void flush();
  /// Writes what is left, the result as it is printed, and the mark that nothing is missing.
  /// `lost`: how many samples could not be added.
  Status finish(std::string_view result, std::uint64_t lost);
  Status status() const;

  struct Size {
    std::uint64_t bytes = 0;  ///< Of the file so far.
    std::uint64_t samples = 0;
    std::uint64_t sample_bytes = 0;  ///< Of the blocks that hold them.
  };
  /// Samples that are still held are not counted.
  Size size() const noexcept;
  void write_samples();  ///< Writes all that are held.

 private:
  struct Impl;
  explicit Recorder(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

/// Everything that a recording holds.
struct Recording {
  struct Window {
    Measurement measurement{};
    Instant from{};  ///< Its samples are those after this and not after its end.
  };
  Provenance provenance{};
  Machine machine{};  ///< Its sensors have no source: `open` a "replay:" address to read them.
  /// For each sensor, device by device: equal numbers were read with one call.
  std::vector<std::uint32_t> sources{};
  std::vector<std::vector<Sample>> samples{};  ///< Of each sensor, as they were taken.
  Selections selections{};
  std::shared_ptr<const Subject> subject{};  ///< Never null.
  /// For each sensor of the subject its place among those of the machine.
  std::vector<std::size_t> places{};
  std::vector<Window> windows{};
  std::string result{};    ///< JSON; empty where the recording was not finished.
  std::uint64_t lost = 0;  ///< Samples that were taken but not recorded.
  std::string damage{};    ///< Why this is not all that was recorded; empty where it is.

  /// Reads a file up to its end or to where it is damaged, and says which. Errc::malformed where
  /// not even the machine can be read, invalid where it is no recording, unsupported where it was
  /// written by a later format.
  ZEUS_API static Result<Recording> read(const std::filesystem::path& path);
  /// The same of the bytes of a file; `name` is for sentences.
  ZEUS_API static Result<Recording> parse(std::string_view bytes, std::string_view name);
};

}  // namespace zeus
