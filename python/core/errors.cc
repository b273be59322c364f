#include <exception>

#include "bind.h"
#include "report/names.h"

namespace zeus::python {

void bind_errors(nb::module_& m) {
  // Two arguments more than the sentence: what a program can act on, and the vendor's own number.
  const std::string name = nb::cast<std::string>(m.attr("__name__")) + ".Error";
  static PyObject* error_type =
      PyErr_NewExceptionWithDoc(name.c_str(),
                                "What the core could not do: args are (sentence, code, vendor).\n\n"
                                "code: 'absent', 'denied', 'unsupported', 'lost', 'busy', "
                                "'invalid' or 'malformed';\nvendor: the vendor library's own "
                                "number, or errno.",
                                PyExc_RuntimeError, nullptr);
  m.attr("Error") = nb::borrow(error_type);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Failure& f) {
      const nb::tuple args =
          nb::make_tuple(f.error.detail, report::to_string(f.error.code), f.error.vendor);
      PyErr_SetObject(error_type, args.ptr());
    }
  });
}

}  // namespace zeus::python
