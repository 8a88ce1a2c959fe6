// The core's guarded descriptor as an object: its number is looked at before each use.
#include "dftrace/system/held_file.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "parts.hpp"

namespace dftrace::py {

namespace {

struct HeldObject {
    PyObject_HEAD HeldFile file;
};

PyObject* raise_errno(int error, PyObject* path = Py_None) {
    const char* const reason = error == EBADF    ? "closed by the program"
                               : error == ESTALE ? "another file lies there now"
                                                 : std::strerror(error);
    const Ref arguments(Py_BuildValue("(isO)", error, reason, path));
    if (arguments) PyErr_SetObject(PyExc_OSError, arguments.get());
    return nullptr;
}

PyObject* held_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    int number = -1;
    if (!PyArg_ParseTuple(arguments, "i", &number)) return nullptr;
    Ref self(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    HeldFile* const file = new (&as<HeldObject>(self.get())->file) HeldFile;
    if (number < 0) return raise_errno(EBADF);
    if (const int error = file->take(number)) return raise_errno(error);
    return self.release();
}

void held_dealloc(PyObject* self) {
    as<HeldObject>(self)->file.~HeldFile();
    Py_TYPE(self)->tp_free(self);
}

PyObject* now(PyObject* self, PyObject*) {
    const int number = as<HeldObject>(self)->file.descriptor();
    return number < 0 ? raise_errno(EBADF) : PyLong_FromLong(number);
}

PyObject* leads_elsewhere(PyObject* self, PyObject*) {
    return PyBool_FromLong(as<HeldObject>(self)->file.descriptor() < 0);
}

PyObject* has_no_name(PyObject* self, PyObject*) {
    return PyBool_FromLong(as<HeldObject>(self)->file.has_no_name());
}

PyObject* open_again(PyObject* self, PyObject* arguments) {
    PyObject* encoded = nullptr;
    int access = 0;
    if (!PyArg_ParseTuple(arguments, "O&i", PyUnicode_FSConverter, &encoded, &access)) return nullptr;
    const Ref held(encoded);
    const std::string path = PyBytes_AS_STRING(encoded);
    HeldFile& file = as<HeldObject>(self)->file;
    int error = 0;
    without_gil([&] { error = file.open_again(path, access); });
    return error ? raise_errno(error, PyTuple_GET_ITEM(arguments, 0)) : Py_NewRef(Py_None);
}

PyObject* close(PyObject* self, PyObject*) {
    as<HeldObject>(self)->file.close();
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"now", now, METH_NOARGS, "The number, for the next call only; OSError where somebody has closed it."},
    {"leads_elsewhere", leads_elsewhere, METH_NOARGS, "Whether somebody else has closed it."},
    {"has_no_name", has_no_name, METH_NOARGS, "Whether the file was removed."},
    {"open_again", or_memory_error<open_again>, METH_VARARGS,
     "open_again(path, flags): after it was closed; ESTALE where another file lies there now."},
    {"close", close, METH_NOARGS, "Closes it, unless the number is somebody else's by now."},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject held_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

int add_held_file_type(PyObject* module) {
    describe<HeldObject>(
        held_type, "dftrace_ai._native.HeldFile",
        "HeldFile(number): takes over what was opened this moment, out of the way of the program's numbers.");
    held_type.tp_new = held_new;
    held_type.tp_dealloc = held_dealloc;
    held_type.tp_methods = methods;
    return add_type(module, held_type);
}

}  // namespace dftrace::py
