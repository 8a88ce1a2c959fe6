// Python.h, and the small things that every file of the bindings needs.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <new>
#include <string>
#include <utility>

namespace dftrace::py {

// False on a thread that is ended from within a call of Python: where the interpreter has gone, a daemon
// thread that asks for the GIL leaves (until 3.13) by pthread_exit, which runs the destructors of the
// frames that it passes. Nothing on its way may be `noexcept`, or touch an object.
inline bool holds_gil() noexcept { return PyGILState_Check() != 0; }

// Owns one reference.
class Ref {
  public:
    Ref() = default;
    explicit Ref(PyObject* owned) noexcept : object_(owned) {}
    Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Ref& operator=(Ref&& other) noexcept {
        Py_XDECREF(std::exchange(object_, std::exchange(other.object_, nullptr)));
        return *this;
    }
    ~Ref() {
        if (object_ && holds_gil()) Py_DECREF(object_);
    }
    Ref(const Ref&) = delete;
    Ref& operator=(const Ref&) = delete;

    PyObject* get() const noexcept { return object_; }
    PyObject* release() noexcept { return std::exchange(object_, nullptr); }
    explicit operator bool() const noexcept { return object_ != nullptr; }

  private:
    PyObject* object_ = nullptr;
};

template <class T>
T* as(PyObject* object) noexcept {
    return reinterpret_cast<T*>(object);
}

// Puts away the exception that is being raised while code runs that may raise its own.
class ErrorAside {
  public:
    ErrorAside() noexcept { PyErr_Fetch(&type_, &value_, &traceback_); }
    ~ErrorAside() {
        if (holds_gil() && !forgotten_) PyErr_Restore(type_, value_, traceback_);
    }
    ErrorAside(const ErrorAside&) = delete;
    ErrorAside& operator=(const ErrorAside&) = delete;

    PyObject* type() const noexcept { return type_; }
    PyObject* traceback() const noexcept { return traceback_; }
    // Another one has come in its place.
    void forget() noexcept {
        forgotten_ = true;
        Py_CLEAR(type_);
        Py_CLEAR(value_);
        Py_CLEAR(traceback_);
    }

  private:
    PyObject* type_;
    PyObject* value_;
    PyObject* traceback_;
    bool forgotten_ = false;
};

// A function of METH_FASTCALL as tables of methods have it.
template <class Function>
PyCFunction fast(Function function) noexcept {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// Drops what the user's code raised, but for an interrupt (Ctrl-C), which is raised again where it can be.
inline void forget_error() noexcept {
    const bool interrupted = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    PyErr_Clear();
    if (interrupted) PyErr_SetInterrupt();
}

// Paths, and messages that name them, are bytes; no byte of them may fail here.
inline PyObject* path_text(const std::string& bytes) {
    return PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()));
}

// Calls what needs no object, and lets other threads run meanwhile. Not by a destructor: taking the GIL
// again may end the thread.
template <typename Call>
void without_gil(Call call) {
    PyThreadState* const state = PyEval_SaveThread();
    try {
        call();
    } catch (const std::exception&) {
        PyEval_RestoreThread(state);
        throw;
    }
    PyEval_RestoreThread(state);
}

// `function`, which asks for memory: without it the caller gets a MemoryError.
template <PyObject* (*function)(PyObject*, PyObject*)>
PyObject* or_memory_error(PyObject* module, PyObject* arguments) {
    try {
        return function(module, arguments);
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

}  // namespace dftrace::py
