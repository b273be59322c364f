// libzeus_remote.so: the two functions by which libzeus opens the machines of daemons.

#include <exception>

#include "backends/zeusd/remote.h"
#include "base/remote_abi.h"

extern "C" {

__attribute__((visibility("default"))) zeus::remote::Build zeus_remote_build;
__attribute__((visibility("default"))) zeus::remote::Open zeus_remote_open;

const char* zeus_remote_build() { return ZEUS_BUILD_ID; }

void zeus_remote_open(const std::string& where, const std::string& token,
                      zeus::Result<zeus::Machine>& out) {
  try {
    out = zeus::zeusd::open_remote(where, token);
  } catch (const std::exception& e) {
    out = zeus::Error{zeus::Errc::busy, 0, "cannot open zeusd:" + where + ": " + e.what()};
  }
}

}  // extern "C"
