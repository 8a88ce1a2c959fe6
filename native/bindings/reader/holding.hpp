// Objects of Python that hold one of C++ and work by it, one thread at a time, while other threads go on.
#pragma once

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "dftrace/index/budget.hpp"
#include "dftrace/reading/traces/members.hpp"
#include "python.hpp"

namespace dftrace::py {

// Whether this is the thread that a process began on, as far as its system tells.
inline bool may_be_first_thread() noexcept {
#ifdef __linux__
    return syscall(SYS_gettid) == getpid();
#else
    return true;
#endif
}

// Interrupts reach the thread that Python began on, and no other looks for them.
class Interrupts {
  public:
    Interrupts() : mine_(may_be_first_thread()), state_(PyEval_SaveThread()) {}
    bool none() {
        const auto now = std::chrono::steady_clock::now();
        if (!mine_ || now - looked_ < std::chrono::milliseconds(50)) return true;
        looked_ = now;
        PyEval_RestoreThread(state_);
        const bool interrupted = PyErr_CheckSignals() < 0;
        state_ = PyEval_SaveThread();
        return !interrupted;
    }
    void end() { PyEval_RestoreThread(state_); }

  private:
    bool mine_;
    PyThreadState* state_;
    std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
};

// Calls what takes long while other threads go on; false with an exception set.
template <typename Call>
bool work(bool& busy, Call call) {
    if (busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread reads by this object");
        return false;
    }
    busy = true;
    PyObject* kind = nullptr;
    std::string told;
    int number = 0;
    Interrupts interrupts;
    try {
        call(interrupts);
    } catch (const TooMuch& error) {
        kind = PyExc_OverflowError;
        told = error.what();
    } catch (const std::system_error& error) {
        kind = PyExc_OSError;
        number = error.code().value();
    } catch (const std::bad_alloc&) {
        kind = PyExc_MemoryError;
    }
    interrupts.end();
    busy = false;
    if (kind == PyExc_OSError) {
        errno = number;
        PyErr_SetFromErrno(PyExc_OSError);
    } else if (kind) {
        PyErr_SetString(kind, told.c_str());
    }
    return !PyErr_Occurred();
}

template <typename Of>
struct Holding {
    PyObject_HEAD std::unique_ptr<Of> held;
    bool busy;
};

// What an object holds, also while another thread works by it.
template <typename Of>
Of& held_by(PyObject* object) {
    return *as<Holding<Of>>(object)->held;
}

// What an object holds; null with an exception set where another thread works by it.
template <typename Of>
Of* idle(PyObject* object) {
    if (!as<Holding<Of>>(object)->busy) return as<Holding<Of>>(object)->held.get();
    PyErr_SetString(PyExc_RuntimeError, "another thread reads by this object");
    return nullptr;
}

// An object of the type, with what `make` gives.
template <typename Of, typename Make>
PyObject* new_holding(PyTypeObject* type, Make make) {
    Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    std::unique_ptr<Of>& held = as<Holding<Of>>(made.get())->held;
    new (&held) std::unique_ptr<Of>();
    try {
        held = make();
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return made.release();
}

template <typename Of>
void destroy_holding(PyObject* object) {
    as<Holding<Of>>(object)->held.~unique_ptr();
    PyTypeObject* const type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

// `call(held)` while other threads go on; false with an exception set.
template <typename Of, typename Call>
bool work_by(PyObject* object, Call call) {
    return work(as<Holding<Of>>(object)->busy, [&](Interrupts&) { call(held_by<Of>(object)); });
}

// Makes a type of such objects and puts it into the module by the last part of its name; null with an
// exception set. The tables have to live as long as it does.
template <typename Of>
Ref add_holding_type(PyObject* module, const char* name, const char* doc, newfunc make, PyMethodDef* methods,
                     PyGetSetDef* members = nullptr, PyType_Slot more = {0, nullptr}) {
    static PyGetSetDef no_members[] = {{nullptr, nullptr, nullptr, nullptr, nullptr}};
    PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(doc)},
                           {Py_tp_new, reinterpret_cast<void*>(make)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(destroy_holding<Of>)},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, members ? members : no_members},
                           more,
                           {0, nullptr}};
    PyType_Spec spec = {name, sizeof(Holding<Of>), 0, Py_TPFLAGS_DEFAULT, slots};
    Ref type(PyType_FromSpec(&spec));
    if (!type || PyModule_AddObjectRef(module, std::strrchr(name, '.') + 1, type.get()) < 0) return Ref();
    return type;
}

// `call(lines)` with lines that Python gives, each with its line break; false with an exception set where
// they are none, or too many, or the call is.
template <typename Call>
bool with_lines(PyObject* given, Call call) {
    Py_buffer lines;
    if (PyObject_GetBuffer(given, &lines, PyBUF_SIMPLE) < 0) return false;
    const std::string_view text(static_cast<const char*>(lines.buf), static_cast<std::size_t>(lines.len));
    bool well = false;
    if (text.size() >> 30)
        PyErr_SetString(PyExc_ValueError, "a GiB and more at a time");
    else if (!text.empty() && text.back() != '\n')
        PyErr_SetString(PyExc_ValueError, "the last line has no end");
    else
        well = call(text);
    PyBuffer_Release(&lines);
    return well;
}

inline void put_into(PlainText& into, std::string_view lines) {
    std::memcpy(into.room_for(lines.size()), lines.data(), lines.size());
    into.close(lines.size());
}

}  // namespace dftrace::py
