#include "bind.h"

NB_MODULE(_core, m) {
  using namespace zeus::python;  // NOLINT
  m.doc() = "The core of Zeus as Python objects; the modules of the package are what to use.";
  m.attr("version") = ZEUS_VERSION;
  // Objects of the core may outlive the interpreter's teardown where user code keeps them in
  // globals: that is no leak to warn users of.
  nb::set_leak_warnings(false);
  bind_errors(m);
  bind_machine(m);
  bind_monitor(m);
  bind_watch(m);
  bind_counters(m);
  bind_history(m);
}
