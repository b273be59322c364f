#pragma once

// A powercap tree with closed files, and users who may not open them.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "support/powercap.h"

namespace zeus::test {

/// Another user, for as long as it lives: root itself may read everything.
struct Nobody {
  Nobody() {
    if (::geteuid() == 0) {
      EXPECT_EQ(::seteuid(65534), 0);
    }
  }
  ~Nobody() {
    if (::getuid() == 0) {
      EXPECT_EQ(::seteuid(0), 0);
    }
  }
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;
};

struct Rights : Powercap {
  Rights() { std::filesystem::permissions(root(), std::filesystem::perms(0755)); }
  Machine open_as_nobody() const {
    const Nobody nobody;
    return open();
  }
  void mode(const std::string& id, const char* name, unsigned bits) const {
    // A file of this test's user is closed to it too, where that is not root.
    std::filesystem::permissions(root() / file(id, name), std::filesystem::perms(bits));
  }
};

}  // namespace zeus::test
