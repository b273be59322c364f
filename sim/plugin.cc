// libzeus_sim.so: the C interface by which libzeus opens simulated machines.

#include <algorithm>
#include <cstring>
#include <string>

#include "base/simulation_abi.h"
#include "sim/session.h"

namespace simulation = zeus::simulation;

namespace {

template <std::size_t N>
bool put(const std::string& text, char (&out)[N]) {
  if (text.size() >= N) return false;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return true;
}

int fail(const zeus::Error& e, char* error, std::size_t length) {
  if (error != nullptr && length > 0) {
    const std::size_t n = std::min(length - 1, e.detail.size());
    std::memcpy(error, e.detail.data(), n);
    error[n] = '\0';
  }
  return static_cast<int>(e.code);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) simulation::Open zeus_sim_open;
__attribute__((visibility("default"))) simulation::Close zeus_sim_close;

int zeus_sim_open(const char* what, simulation::Opened* out, char* error, std::size_t length) {
  if (what == nullptr || out == nullptr) {
    return fail({zeus::Errc::invalid, 0, "name a simulated machine"}, error, length);
  }
  try {
    auto session = zeus::sim::Session::create(what);
    if (!session) return fail(session.error(), error, length);
    const zeus::sim::Session& s = **session;
    *out = {};
    if (!put(s.root().string(), out->root) || !put(s.libraries().string(), out->libraries) ||
        !put(s.folder().string(), out->session) || !put(s.files(), out->files)) {
      return fail({zeus::Errc::invalid, 0,
                   "the path " + s.folder().string() + " is too long; set TMPDIR to a shorter one"},
                  error, length);
    }
    put(s.scenario().name.substr(0, sizeof out->scenario - 1), out->scenario);
    out->handle = session->release();
    return 0;
  } catch (const std::exception& e) {
    return fail({zeus::Errc::invalid, 0, std::string("cannot simulate a machine: ") + e.what()},
                error, length);
  }
}

void zeus_sim_close(void* handle) { delete static_cast<zeus::sim::Session*>(handle); }

}  // extern "C"
