// Python.h, and the small things that every file of the bindings needs.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <string>
#include <utility>

namespace dftrace::py {

// False on a thread that is ended from within a call of Python: where the interpreter has gone, a daemon
// thread that asks for the GIL leaves (until 3.13) by pthread_exit, which runs the destructors of the
// frames that it passes. Nothing on its way may be `noexcept`, or touch an object.
inline bool holds_gil() noexcept { return PyGILState_Check() != 0; }

// That of the calling thread, which holds the GIL.
inline PyThreadState* this_thread_state() noexcept {
#if PY_VERSION_HEX >= 0x030d0000
    return PyThreadState_GetUnchecked();
#else
    return _PyThreadState_UncheckedGet();
#endif
}

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

// What a call has returned, as a truth or a number, and given up: by hand, since a `Ref` asks for the GIL,
// which costs more than the rest. -1 with an error set.
inline int truth_of_owned(PyObject* object) {
    const int truth = object ? PyObject_IsTrue(object) : -1;
    Py_XDECREF(object);
    return truth;
}
inline long long number_of_owned(PyObject* object) {
    const long long number = object ? PyLong_AsLongLong(object) : -1;
    Py_XDECREF(object);
    return number;
}

template <class T>
T* as(PyObject* object) noexcept {
    return reinterpret_cast<T*>(object);
}

template <class Of>
PyObject* object_of(Of* of) noexcept {
    return reinterpret_cast<PyObject*>(of);
}

// What the objects of a type own: the collector visits each of these members, and they are given up, in this
// order, with the object.
template <class Of, auto... owned>
struct Owning {
    static int traverse(PyObject* self, visitproc visit, void* arg) {
        int stopped = 0;
        const auto look = [&](PyObject* held) {
            if (held && !stopped) stopped = visit(held, arg);
        };
        (look(object_of(as<Of>(self)->*owned)), ...);
        return stopped;
    }
    static void dealloc(PyObject* self) {
        PyObject_GC_UnTrack(self);
        if constexpr (requires(Of of) { of.weak_references; })
            if (as<Of>(self)->weak_references) PyObject_ClearWeakRefs(self);
        (Py_XDECREF(object_of(std::exchange(as<Of>(self)->*owned, nullptr))), ...);
        Py_TYPE(self)->tp_free(self);
    }
    static void put_into(PyTypeObject& type) noexcept {
        type.tp_traverse = traverse;
        type.tp_dealloc = dealloc;
    }
};

// What a type says of itself, and what follows from the struct of its objects: by which of its members they
// are called, where weak references to them and their attributes are.
template <class Of>
void describe(PyTypeObject& type, const char* name, const char* doc, unsigned long flags = 0) noexcept {
    type.tp_name = name;
    type.tp_doc = doc;
    type.tp_basicsize = sizeof(Of);
    type.tp_flags = Py_TPFLAGS_DEFAULT | flags;
    if constexpr (requires(Of of) { of.vectorcall; }) {
        type.tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
        type.tp_vectorcall_offset = offsetof(Of, vectorcall);
        type.tp_call = PyVectorcall_Call;
    }
    if constexpr (requires(Of of) { of.weak_references; })
        type.tp_weaklistoffset = offsetof(Of, weak_references);
    if constexpr (requires(Of of) { of.dict; }) type.tp_dictoffset = offsetof(Of, dict);
}

// Makes a type ready, and puts it into the module by the last part of its name; -1 with an error set.
inline int add_type(PyObject* module, PyTypeObject& type) {
    if (PyType_Ready(&type) < 0) return -1;
    return PyModule_AddObjectRef(module, std::strrchr(type.tp_name, '.') + 1, object_of(&type));
}

// Texts by which attributes are looked up; -1 with an error set.
inline int intern(std::initializer_list<std::pair<PyObject**, const char*>> texts) {
    for (const auto& [name, text] : texts)
        if (!(*name = PyUnicode_InternFromString(text))) return -1;
    return 0;
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
