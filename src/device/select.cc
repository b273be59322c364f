#include "device/select.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <utility>

#include "device/backend.h"

namespace zeus {
namespace {

using Kind = DeviceInfo::Kind;
using Devices = std::vector<const Device*>;

struct Words {
  const char *one, *flag;
};
Words words(Kind kind) {
  switch (kind) {
    case Kind::gpu: return {"GPU", "--gpus "};
    case Kind::cpu: return {"CPU", "--cpus "};
    default: return {"board", "--boards "};
  }
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// A PCI address as DeviceInfo has it: lower case, and a domain of four digits if it fits.
std::string pci_form(std::string_view name) {
  if (name.size() > 4 && name.find(':') == 8 && name.starts_with("0000")) name.remove_prefix(4);
  return lower(name);
}

bool begins(std::string_view text, std::string_view prefix) {
  return lower(text).starts_with(lower(prefix));
}

template <class P>
Devices which(const Devices& devices, P&& fits) {
  Devices out;
  std::copy_if(devices.begin(), devices.end(), std::back_inserter(out), std::forward<P>(fits));
  return out;
}

Devices of_kind(const Machine& machine, Kind kind) {
  Devices out;
  for (const Device& d : machine.devices) {
    if (d.info.kind == kind) out.push_back(&d);
  }
  return out;
}

std::string ids(const Devices& devices) {
  std::string text;
  for (const Device* d : devices) text += (text.empty() ? "" : ", ") + d->info.id;
  return text.empty() ? "none" : text;
}

/// Every device that a person may mean by `name`. An index of a socket means all its dies.
Result<Devices> meant(const Devices& devices, Kind kind, const std::string& name) {
  const std::string one = words(kind).one;
  unsigned index = 0;
  const char* const end = name.data() + name.size();
  if (const auto [stop, ec] = std::from_chars(name.data(), end, index);
      ec == std::errc{} && stop == end) {
    auto found = which(devices, [index](const Device* d) { return d->info.index == index; });
    if (!found.empty()) return found;
    return Error{Errc::invalid, 0,
                 "there is no " + one + ' ' + name + "; this machine has " + indices(devices)};
  }
  auto found = which(devices, [&](const Device* d) {
    return !d->info.pci.empty() && d->info.pci == pci_form(name);
  });
  if (found.empty()) {
    found = which(devices, [&](const Device* d) { return lower(d->info.id) == lower(name); });
  }
  if (found.empty()) {
    found = which(devices, [&](const Device* d) { return begins(d->info.id, name); });
  }
  if (found.size() == 1) return found;
  if (name.empty()) {
    return Error{Errc::invalid, 0, "a list of " + one + "s has an empty entry: remove the comma"};
  }
  if (found.empty()) {
    return Error{Errc::invalid, 0,
                 "there is no " + one + " \"" + name + "\"; this machine has " + ids(devices)};
  }
  return Error{Errc::invalid, 0, '"' + name + "\" fits more than one " + one + ": " + ids(found)};
}

}  // namespace

std::vector<std::string> entries(std::string_view list) {
  std::vector<std::string> out;
  while (true) {
    const auto comma = list.find(',');
    std::string_view entry = list.substr(0, comma);
    const auto first = entry.find_first_not_of(" \t");
    entry.remove_prefix(std::min(first, entry.size()));
    entry = entry.substr(0, entry.find_last_not_of(" \t") + 1);
    out.emplace_back(entry);
    if (comma == std::string_view::npos) return out;
    list.remove_prefix(comma + 1);
  }
}

const Device* by_id(const Devices& devices, std::string_view name) {
  const auto begin = which(devices, [&](const Device* d) { return d->info.id.starts_with(name); });
  for (const Device* d : begin) {
    if (d->info.id == name) return d;
  }
  return begin.size() == 1 ? begin.front() : nullptr;
}

void choose(Selection& selection, const Device& device, bool shared) {
  const auto add = [&](std::vector<std::string>& to) {
    if (std::find(to.begin(), to.end(), device.info.id) == to.end()) to.push_back(device.info.id);
  };
  add(selection.ids);
  if (shared) add(selection.shared);
}

std::string indices(const Devices& devices) {
  std::vector<unsigned> all;
  for (const Device* d : devices) all.push_back(d->info.index);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.empty()) return "none";
  if (all.size() > 2 && all.back() - all.front() + 1 == all.size()) {
    return std::to_string(all.front()) + " to " + std::to_string(all.back());
  }
  std::string text;
  for (const unsigned i : all) text += (text.empty() ? "" : ", ") + std::to_string(i);
  return text;
}

Result<Selection> named_devices(const Machine& machine, Kind kind, std::string_view list) {
  const Devices devices = of_kind(machine, kind);
  Selection selection;
  selection.source = words(kind).flag + std::string(list);
  const auto asked = entries(list);
  if (asked.size() == 1 && (asked[0].empty() || lower(asked[0]) == "none")) return selection;
  if (asked.size() == 1 && lower(asked[0]) == "all") {
    for (const Device* d : devices) choose(selection, *d, false);
    return selection;
  }
  for (const std::string& name : asked) {
    if (const Device* parent = parent_of(devices, name)) {
      choose(selection, *parent, true);
      selection.problems.push_back({selection.source, shared_by(name, *parent)});
      continue;
    }
    const auto found = meant(devices, kind, name);
    if (!found) return found.error();
    for (const Device* d : *found) choose(selection, *d, false);
  }
  return selection;
}

void keep_only(Machine& machine, Kind kind, const Selection& selection) {
  const auto place = [&](const Device& d) {
    return std::find(selection.ids.begin(), selection.ids.end(), d.info.id) - selection.ids.begin();
  };
  // As before, GPUs first or CPUs first.
  const bool front = !machine.devices.empty() && machine.devices.front().info.kind == kind;
  std::vector<Device> chosen, kept;
  for (Device& d : machine.devices) {
    if (d.info.kind != kind) {
      kept.push_back(std::move(d));
    } else if (place(d) != std::ssize(selection.ids)) {
      chosen.push_back(std::move(d));
    } else {
      std::erase_if(machine.problems,
                    [&](const Problem& p) { return p.where.find(d.info.id) != std::string::npos; });
    }
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](const Device& a, const Device& b) { return place(a) < place(b); });
  for (Device& d : chosen) {
    if (std::find(selection.shared.begin(), selection.shared.end(), d.info.id) !=
        selection.shared.end()) {
      for (Sensor& s : d.sensors) s.info.shared = true;
    }
  }
  kept.insert(front ? kept.begin() : kept.end(), std::make_move_iterator(chosen.begin()),
              std::make_move_iterator(chosen.end()));
  machine.devices = std::move(kept);
  machine.domains = tree_of(machine.devices);
}

}  // namespace zeus
