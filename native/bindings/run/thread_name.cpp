// Asking Python for a thread's name without making an entry for one that it does not know.
#include "run/thread_name.hpp"

#include <pthread.h>

#include "arguments/json_args.hpp"
#include "python.hpp"

namespace dftrace::py {

namespace {

std::string native_thread_name() {
    char native[64] = "";
    pthread_getname_np(pthread_self(), native, sizeof native);
    return native;
}

// Without a line of Python where the class leaves `name` as it is: there a signal's handler would run, and
// what it raises is the program's.
Ref name_of(PyObject* threading, PyObject* thread) {
    const Ref base(PyObject_GetAttrString(threading, "Thread"));
    const Ref usual(base ? PyObject_GetAttrString(base.get(), "name") : nullptr);
    const Ref own(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(thread)), "name"));
    if (usual && usual.get() == own.get()) {
        Ref name(PyObject_GetAttrString(thread, "_name"));
        if (name) return name;
    }
    PyErr_Clear();
    return Ref(PyObject_GetAttrString(thread, "name"));
}

}  // namespace

std::string thread_name() {
    // A thread's `name` may be the user's code, and record, and so ask for the name again.
    const Converting asking;
    if (Converting::again()) return native_thread_name();
    ErrorAside aside;
    PyObject* threading = PyDict_GetItemString(PyImport_GetModuleDict(), "threading");
    Ref active(threading ? PyObject_GetAttrString(threading, "_active") : nullptr);
    Ref ident(PyLong_FromUnsignedLong(PyThread_get_thread_ident()));
    PyObject* thread =
        active && ident && PyDict_Check(active.get()) ? PyDict_GetItem(active.get(), ident.get()) : nullptr;
    const Ref name = thread ? name_of(threading, thread) : Ref();
    const char* utf8 = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
    const std::string known = utf8 ? utf8 : "";
    forget_error();
    return utf8 ? known : native_thread_name();
}

}  // namespace dftrace::py
