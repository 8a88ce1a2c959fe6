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
    Ref name(thread ? PyObject_GetAttrString(thread, "name") : nullptr);
    const char* utf8 = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
    const std::string known = utf8 ? utf8 : "";
    forget_error();
    return utf8 ? known : native_thread_name();
}

}  // namespace dftrace::py
