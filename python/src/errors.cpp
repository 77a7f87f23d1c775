// Error -> the exception of gigaknn/_errors.py for its fault, with the same text; memory that ran out likewise, which no budget foresaw.
#include <new>
#include <string_view>

#include <gigaknn/error.hpp>

#include "bind.hpp"

namespace gigaknn::python {
namespace {

namespace nb = nanobind;

const char* class_of(Fault fault) {
  switch (fault) {
    case Fault::invalid_argument: return "InvalidArgument";
    case Fault::corrupt_file: return "CorruptFile";
    case Fault::invalid_data: return "InvalidData";
    case Fault::io: return "FileError";
    case Fault::out_of_memory: return "OutOfMemory";
    case Fault::device: return "DeviceError";
    case Fault::unsupported: return "Unsupported";
    case Fault::cancelled: return "Cancelled";
  }
  return "Error";
}

void set_error(const char* name, std::string_view text) {
  const nb::object type = nb::module_::import_("gigaknn._errors").attr(name);
  // Names of files and headers of damaged ones need not be UTF-8: other bytes become surrogates, as in the names that `os` gives.
  const nb::object message = nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
  if (!message.is_valid()) return;  // Python has set its own error: no memory
  PyErr_SetObject(type.ptr(), message.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    set_error(class_of(Fault::out_of_memory), "memory ran out; memory= is a budget for what a call allocates");
  } catch (const Error& error) {
    set_error(class_of(error.fault()), error.what());
#if PY_VERSION_HEX < 0x030B0000  // `except` there goes by the type that is set, and FileError makes instances of its subclasses
    PyObject *kind = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    Py_DECREF(kind);
    PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(value))), value, trace);
#endif
  }
}

}  // namespace

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace gigaknn::python
