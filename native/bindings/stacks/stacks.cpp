// `StackReader(way)`: the Python stacks of this process's threads, as they are read while the threads run.
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "dftrace/stacks/stack_reader.hpp"
#include "dftrace/system/clock.hpp"
#include "parts.hpp"
#include "stacks/interpreter_layout.h"

namespace dftrace::py {

namespace {

struct Stacks {
    PyObject_HEAD StackReader* reader;
};

PyTypeObject stacks_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

constexpr std::array<std::string_view, 4> ways{"", "vm_readv", "mem_file", "pipe"};

std::uint64_t boot_ns() { return clock_ns(CLOCK_BOOTTIME); }

PyObject* new_stacks(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    static const char* names[] = {"way", nullptr};
    const char* asked = "vm_readv";
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|s:StackReader", const_cast<char**>(names),
                                     &asked))
        return nullptr;
    const auto way = std::find(ways.begin() + 1, ways.end(), asked);
    if (way == ways.end()) return PyErr_Format(PyExc_ValueError, "no way of reading: %s", asked);
    InterpreterLayout layout;
    if (const char* odd = dftrace_interpreter_layout(&layout))
        return PyErr_Format(PyExc_RuntimeError, "stacks cannot be read of %s", odd);
    const MemoryWay found = find_memory_way(static_cast<MemoryWay>(way - ways.begin()));
    if (found == MemoryWay::none)
        return PyErr_Format(PyExc_RuntimeError,
                            "the kernel refuses each way of reading this process's memory");
    Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    as<Stacks>(made.get())->reader = new StackReader(layout, found, boot_ns);
    return made.release();
}

void dealloc(PyObject* self) {
    delete as<Stacks>(self)->reader;
    Py_TYPE(self)->tp_free(self);
}

// sample(rounds=1, own=False): a list of (at_ns, thread, stack, cut, cpu_ns), read without the GIL.
PyObject* sample(PyObject* self, PyObject* arguments) {
    unsigned long long rounds = 1;
    int own = 0;
    if (!PyArg_ParseTuple(arguments, "|Kp:sample", &rounds, &own)) return nullptr;
    StackReader& reader = *as<Stacks>(self)->reader;
    const auto caller = static_cast<pid_t>(PyThread_get_thread_native_id());
    std::vector<StackSample> found;
    without_gil([&] {
        for (unsigned long long i = 0; i < rounds; ++i)
            reader.sample([&](pid_t thread) { return (thread == caller) == (own != 0); }, found);
    });
    Ref list(PyList_New(0));
    if (!list) return nullptr;
    for (const StackSample& one : found) {
        const Ref row(Py_BuildValue("(KiIOL)", one.at_ns, one.thread, one.stack, one.cut ? Py_True : Py_False,
                                    static_cast<long long>(one.cpu_ns)));
        if (!row || PyList_Append(list.get(), row.get()) < 0) return nullptr;
    }
    return list.release();
}

// names(): a list of (function, file, first line).
PyObject* names(PyObject* self, PyObject*) {
    Ref list(PyList_New(0));
    if (!list) return nullptr;
    for (const CodeName& one : as<Stacks>(self)->reader->names()) {
        const Ref row(Py_BuildValue("(s#s#i)", one.function.data(), Py_ssize_t(one.function.size()),
                                    one.file.data(), Py_ssize_t(one.file.size()), one.first_line));
        if (!row || PyList_Append(list.get(), row.get()) < 0) return nullptr;
    }
    return list.release();
}

// nodes(): a list of (node of the caller or -1, code, line).
PyObject* nodes(PyObject* self, PyObject*) {
    Ref list(PyList_New(0));
    if (!list) return nullptr;
    for (const StackNode& one : as<Stacks>(self)->reader->nodes()) {
        const long long caller = one.caller == StackNode::no_caller ? -1 : static_cast<long long>(one.caller);
        const Ref row(Py_BuildValue("(LIi)", caller, one.code, one.line));
        if (!row || PyList_Append(list.get(), row.get()) < 0) return nullptr;
    }
    return list.release();
}

PyObject* counts(PyObject* self, PyObject*) {
    const StackCounts& of = as<Stacks>(self)->reader->counts();
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "rounds", of.rounds, "samples", of.samples,
                         "cut", of.cut, "at_rest", of.at_rest, "unread", of.unread, "without_root",
                         of.without_root, "too_deep", of.too_deep, "outlived", of.outlived);
}

PyMethodDef methods[] = {
    {"sample", or_memory_error<sample>, METH_VARARGS,
     "sample(rounds=1, own=False): of all other threads, or of the calling one alone, read without the GIL."},
    {"names", names, METH_NOARGS, "Function, file and first line of each code."},
    {"nodes", nodes, METH_NOARGS, "Caller, code and line of each stack."},
    {"counts", counts, METH_NOARGS, "What was read, and what could not be."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_stacks_type(PyObject* module) {
    stacks_type.tp_name = "dftrace_ai._native.StackReader";
    stacks_type.tp_doc = "The Python stacks of this process's threads, read while they run.";
    stacks_type.tp_basicsize = sizeof(Stacks);
    stacks_type.tp_flags = Py_TPFLAGS_DEFAULT;
    stacks_type.tp_new = new_stacks;
    stacks_type.tp_dealloc = dealloc;
    stacks_type.tp_methods = methods;
    return PyModule_AddType(module, &stacks_type);
}

}  // namespace dftrace::py
