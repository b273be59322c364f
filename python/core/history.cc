#include "measure/history.h"

#include "bind.h"

namespace zeus::python {
namespace {

/// For readers that are written in Python: the same arithmetic as for the core's own.
History make(const std::string& name, double scale, double period_s, double update_s,
             std::size_t most) {
  SensorInfo info;
  info.name = name;
  info.scale = scale;
  info.profile.update = duration(update_s);
  return History(std::move(info), duration(period_s), most);
}

}  // namespace

void bind_history(nb::module_& m) {
  nb::class_<History>(m, "History", "All that was read of one level, for questions asked later.")
      .def_static("make", &make, "name"_a, "scale"_a, "period_s"_a, "update_s"_a = 0.0,
                  "most"_a = 0, "`scale`: one raw unit in SI. `most`: runs kept; 0: all.")
      .def(
          "add",
          [](History& h, double t_s, std::uint64_t raw) { h.add(Sample(instant(t_s), raw)); },
          "t_s"_a, "raw"_a, "The next reading, in the order of time.")
      .def(
          "fail", [](History& h, double t_s) { h.add(Sample(instant(t_s), 0, Errc::lost)); },
          "t_s"_a, "A reading that failed: the value before it no longer stands.")
      .def(
          "integral",
          [](const History& h, double begin_s, double end_s) {
            const auto e = h.integral(instant(begin_s), instant(end_s));
            return std::tuple(e.value, e.u, e.covered_s, e.length_s);
          },
          "begin_s"_a, "end_s"_a, "(integral, u, covered_s, length_s); NaN: nothing is covered.")
      .def(
          "at", [](const History& h, double t_s) { return h.at(instant(t_s)); }, "t_s"_a,
          "The value in force.")
      .def_prop_ro("runs",
                   [](const History& h) {
                     std::vector<std::tuple<double, double, double>> runs;
                     for (std::size_t i = 0; i < h.size(); ++i) {
                       runs.emplace_back(seconds(h.run(i).first), seconds(h.run(i).last),
                                         h.value(i));
                     }
                     return runs;
                   })
      .def_prop_ro("failures", &History::failures);
}

}  // namespace zeus::python
