#pragma once

// A powercap tree made of small files.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "device/backend.h"
#include "support/tree.h"

namespace zeus {
namespace rapl {
extern const Backend kBackend;
}
namespace test {

struct Powercap : Tree {
  explicit Powercap(std::string class_folder = "sys/class/powercap")
      : folder(std::move(class_folder)) {}

  void zone(const std::string& id, const std::string& name, std::uint64_t uj,
            std::uint64_t range = 262143328850) {
    write(file(id, "name"), name + "\n");
    write(file(id, "max_energy_range_uj"), std::to_string(range) + "\n");
    energy(id, uj);
  }
  void energy(const std::string& id, std::uint64_t uj) {
    write(file(id, "energy_uj"), std::to_string(uj) + "\n");
  }
  void drop(const std::string& id, const char* name) {
    std::filesystem::remove(root() / file(id, name));
  }
  void cpuinfo(const std::string& vendor, int family, const std::string& flags = "fpu") {
    write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: " + vendor + "\ncpu family\t: " +
                              std::to_string(family) + "\nmodel\t\t: 1\nmodel name\t: " + vendor +
                              " test CPU\nflags\t\t: " + flags + "\n\nprocessor\t: 1\n");
  }
  std::string file(const std::string& id, const char* name) const {
    return folder + '/' + id + '/' + name;
  }
  Machine open() const { return open_local({root(), "/nowhere"}, {&rapl::kBackend, 1}); }

  std::string folder;
};

/// Every sensor of a machine, with what it reads now.
inline std::vector<std::pair<DomainId, std::uint64_t>> readings(const Machine& machine) {
  std::vector<std::pair<DomainId, std::uint64_t>> out;
  for (const Device& d : machine.devices) {
    for (const Sensor& s : d.sensors) {
      Reading r;
      EXPECT_EQ(s.source->read({&r, 1}), Errc::ok);
      out.emplace_back(s.info.domain, r.raw);
    }
  }
  return out;
}

inline const Problem* problem_at(const Machine& machine, const std::string& where) {
  for (const Problem& p : machine.problems) {
    if (p.where == where) return &p;
  }
  return nullptr;
}

}  // namespace test
}  // namespace zeus
