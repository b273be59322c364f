#include "zeus/profile.h"

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "base/files.h"
#include "measure/profile_table.h"

namespace zeus {
namespace {

namespace fs = std::filesystem;

/// A folder of the user: that of an XDG variable, or `beneath` HOME; empty where there is neither.
fs::path home_of(const Environment& environment, const char* variable, const char* beneath) {
  // What is not absolute must be ignored (XDG Base Directory Specification).
  if (const auto xdg = environment(variable); xdg && xdg->starts_with('/')) return *xdg;
  const auto home = environment("HOME");
  return home && !home->empty() ? fs::path(*home) / beneath : fs::path();
}

/// A row and how specific it is for what it fits.
struct Match {
  Match(const ProfileRow& r, std::size_t page, std::size_t number)
      : row(&r),
        rank(!r.uuid.empty(), !r.model.empty(), !r.compute.empty(), !r.arch.empty(), page,
             -r.breadth(), number) {}
  const ProfileRow* row;
  std::tuple<bool, bool, bool, bool, std::size_t, double, std::size_t> rank;
};

}  // namespace

struct ProfileBook::Page {
  std::vector<ProfileRow> rows;
};

ProfileBook::ProfileBook(std::shared_ptr<const Page> first) { pages_.push_back(std::move(first)); }
ProfileBook::ProfileBook() : ProfileBook(builtin()) {}

const ProfileBook& ProfileBook::builtin() noexcept {
  static const ProfileBook book(
      std::make_shared<const Page>(Page{parse_profiles(kBuiltinProfiles, "profiles.csv").value()}));
  return book;
}

Status ProfileBook::add(std::string_view csv, std::string_view name) {
  auto rows = parse_profiles(csv, name);
  if (!rows) return rows.error();
  pages_.push_back(std::make_shared<const Page>(Page{std::move(*rows)}));
  return ok();
}

std::string ProfileBook::calibrations_path(const Environment& environment) {
  const fs::path home = home_of(environment, "XDG_STATE_HOME", ".local/state");
  return home.empty() ? std::string() : (home / "zeus/calibrations.csv").string();
}

Result<ProfileBook> ProfileBook::load(const Environment& environment) {
  ProfileBook book;
  const auto take = [&book](const std::string& path, bool must) -> Status {
    if (path.empty()) return ok();
    const auto text = read_file(path);
    if (text) return book.add(*text, path);
    if (text.error().code == Errc::absent && !must) return ok();
    Error error = text.error();
    error.detail += must ? "; ZEUS_PROFILES must name a table of sensors" : "; make it readable";
    return error;
  };
  const auto named = environment("ZEUS_PROFILES");
  const bool given = named && !named->empty();
  const fs::path home = home_of(environment, "XDG_CONFIG_HOME", ".config");
  const std::string own = home.empty() ? "" : (home / "zeus/profiles.csv").string();
  if (auto done = take(given ? *named : own, given); !done) return done.error();
  if (auto done = take(calibrations_path(environment), false); !done) return done.error();
  return book;
}

SensorProfile ProfileBook::refine(const DeviceInfo& device, const SensorInfo& sensor) const {
  std::vector<Match> matches;
  for (std::size_t page = 0; page < pages_.size(); ++page) {
    const auto& rows = pages_[page]->rows;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].fits(device, sensor)) matches.emplace_back(rows[i], page, i);
    }
  }
  std::sort(matches.begin(), matches.end(),
            [](const Match& a, const Match& b) { return a.rank > b.rank; });
  Facts facts;
  SensorProfile out = sensor.profile;
  for (const Match& m : matches) {
    if (!facts.add(m.row->facts)) continue;
    if (!out.source.empty()) out.source += "; ";
    out.source += m.row->source;
  }
  facts.apply_to(out);
  return out;
}

void apply(const ProfileBook& book, Machine& machine) {
  for (Device& device : machine.devices) {
    for (Sensor& sensor : device.sensors) {
      SensorProfile& profile = sensor.info.profile;
      if (profile.source.empty()) profile = book.refine(device.info, sensor.info);
    }
  }
}

}  // namespace zeus
