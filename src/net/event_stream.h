#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace zeus::net {

/// Takes a stream of server-sent events apart as its bytes come in, by the rules of the HTML
/// standard (section 9.2.6): lines end with LF, CR or both, one blank behind a colon is none of the
/// value, several `data` lines make one text. `id` and `retry` say nothing to us.
class EventStream {
 public:
  static constexpr std::size_t kMost = 64 << 10;  ///< Bytes of an event; a longer one is skipped.

  /// Valid until the call returns.
  struct Event {
    std::string_view type;  ///< Empty where the event names none.
    std::string_view data;
  };
  using Take = std::function<void(const Event&)>;

  void feed(std::string_view bytes, const Take& take);

  std::uint64_t comments() const noexcept { return comments_; }  ///< A daemon's sign of life.
  std::uint64_t skipped() const noexcept { return skipped_; }    ///< Events that were too long.

 private:
  void append(std::string_view part);
  void line(const Take& take);
  void field(std::string_view name, std::string_view value);
  void end(const Take& take);

  std::string line_, type_, data_;
  bool after_cr_ = false, first_ = true;
  bool comment_ = false;   // This line.
  bool too_long_ = false;  // This event.
  bool has_data_ = false;
  std::uint64_t comments_ = 0, skipped_ = 0;
};

}  // namespace zeus::net
