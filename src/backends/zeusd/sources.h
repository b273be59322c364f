#pragma once

#include <string>
#include <vector>

#include "backends/zeusd/answers.h"
#include "backends/zeusd/session.h"

namespace zeus::zeusd {

/// One route of the daemon, for all devices that it serves: one request reads them all. A device
/// that fails alone fails its own slots: where the daemon knows no partial answers, the others are
/// asked again without it.
class RouteSource final : public Source {
 public:
  /// `places` are those of the devices in the daemon's list.
  RouteSource(SessionPtr session, Route route, std::vector<std::size_t> places);

  Errc read(std::span<Reading> out) noexcept override;
  std::size_t slots() const noexcept { return ids_.size() * slots_of(route_); }

 private:
  Errc ask_the_rest(std::span<Reading> out);
  void forget_strangers(std::span<Reading> out) const noexcept;

  SessionPtr session_;
  Route route_;
  std::vector<std::size_t> places_;
  std::vector<std::uint16_t> ids_;
  bool partial_;
  std::string prepared_;
};

}  // namespace zeus::zeusd
