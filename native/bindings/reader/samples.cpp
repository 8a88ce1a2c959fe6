// The type `Samples`.
#include <cstring>
#include <memory>
#include <optional>

#include "dftrace/reading/traces/general_line.hpp"
#include "dftrace/reading/traces/sample_columns.hpp"
#include "reader/holding.hpp"
#include "reader/module.hpp"
#include "told.hpp"

namespace dftrace::py {

namespace {

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
    if (!PyArg_ParseTuple(arguments, "")) return nullptr;
    return new_holding<SampleColumns>(type, [] { return std::make_unique<SampleColumns>(); });
}

PyObject* take(PyObject* object, PyObject* arguments) {
    PyObject* block = nullptr;
    Py_ssize_t from = 0;
    if (!PyArg_ParseTuple(arguments, "On", &block, &from)) return nullptr;
    const Rows* const rows = rows_of(block);
    if (!rows || from < 0) return nullptr;
    const Labels& labels = labels_of(block);
    const std::string_view text = text_of(block);
    auto at = static_cast<std::size_t>(from);
    if (!work_by<SampleColumns>(object,
                                [&](SampleColumns& of) { at = of.take(rows->stacks, at, text, labels); }))
        return nullptr;
    if (at >= rows->stacks.size()) Py_RETURN_NONE;
    const StackLine& line = rows->stacks[at];
    const TrackId track = labels.track_id(line.track);
    const Ref args(bytes_told(text.substr(line.args_at, line.args_bytes)));
    if (!args) return nullptr;
    return tuple_told(at, labels[line.label].name == chunk_name, line.id, track.pid, track.tid,
                      Py_NewRef(args.get()));
}

PyObject* begin(PyObject* object, PyObject* arguments) {
    long long pid, at_us, period_ns;
    unsigned long long number;
    if (!PyArg_ParseTuple(arguments, "LKLL", &pid, &number, &at_us, &period_ns)) return nullptr;
    const bool well =
        work_by<SampleColumns>(object, [&](SampleColumns& of) { of.begin(pid, number, at_us, period_ns); });
    return well ? Py_NewRef(Py_None) : nullptr;
}

PyObject* forget(PyObject* object, PyObject* arguments) {
    long long pid;
    unsigned long long number;
    if (!PyArg_ParseTuple(arguments, "LK", &pid, &number)) return nullptr;
    const bool well = work_by<SampleColumns>(object, [&](SampleColumns& of) { of.forget(pid, number); });
    return well ? Py_NewRef(Py_None) : nullptr;
}

PyObject* learn(PyObject* object, PyObject* arguments) {
    long long pid, node, stack;
    unsigned long long number;
    if (!PyArg_ParseTuple(arguments, "LKLL", &pid, &number, &node, &stack)) return nullptr;
    bool known = false;
    const bool well = work_by<SampleColumns>(
        object, [&](SampleColumns& of) { known = of.learn(pid, number, node, stack); });
    return well ? told(known) : nullptr;
}

PyObject* stack_of(PyObject* object, PyObject* arguments) {
    long long pid, node;
    unsigned long long number;
    if (!PyArg_ParseTuple(arguments, "LKL", &pid, &number, &node)) return nullptr;
    SampleColumns* const of = idle<SampleColumns>(object);
    return of ? told(of->stack_of(pid, number, node)) : nullptr;
}

PyObject* add(PyObject* object, PyObject* arguments) {
    long long pid, tid;
    unsigned long long number;
    const char* args = nullptr;
    Py_ssize_t bytes = 0;
    if (!PyArg_ParseTuple(arguments, "LKLy#", &pid, &number, &tid, &args, &bytes)) return nullptr;
    bool taken = false;
    const bool well = work_by<SampleColumns>(object, [&](SampleColumns& of) {
        taken = of.add(pid, number, tid, {args, static_cast<std::size_t>(bytes)});
    });
    return well ? told(taken) : nullptr;
}

PyObject* taken(PyObject* object, PyObject*) {
    SampleColumns* const of = idle<SampleColumns>(object);
    if (!of) return nullptr;
    return list_told(of->taken(), [](const auto& process) -> PyObject* {
        const std::size_t bytes = process.second[0].size() * sizeof(std::int64_t);
        const Ref columns(
            PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes * SampleColumns::columns)));
        if (!columns) return nullptr;
        char* to = PyBytes_AS_STRING(columns.get());
        for (const auto& column : process.second) {
            std::memcpy(to, column.data(), bytes);
            to += bytes;
        }
        return tuple_told(process.first, Py_NewRef(columns.get()));
    });
}

Py_ssize_t length(PyObject* object) { return static_cast<Py_ssize_t>(held_by<SampleColumns>(object).size()); }

PyMethodDef methods[] = {
    {"take", take, METH_VARARGS,
     "take(block, first, /): take the samples of a block's lines, from one on; None, or the first line that "
     "tells nodes or is written in another way: its place, whether it has samples, its number, pid, tid, and "
     "its "
     "arguments without braces."},
    {"begin", begin, METH_VARARGS,
     "begin(pid, number, at_us, period_ns, /): lines of this number tell samples from then on."},
    {"forget", forget, METH_VARARGS, "forget(pid, number, /): none do."},
    {"learn", learn, METH_VARARGS,
     "learn(pid, number, node, stack, /): which stack a node of theirs is; false where none do."},
    {"stack_of", stack_of, METH_VARARGS, "stack_of(pid, number, node, /): that stack, or None."},
    {"add", add, METH_VARARGS,
     "add(pid, number, tid, args, /): take the samples of one line; false where they cannot be, and none "
     "is."},
    {"taken", taken, METH_NOARGS,
     "taken(): the samples of each process so far, which are forgotten here: eight columns of 64 bits: us, "
     "us "
     "since the last one, us of a processor, ns that it stands for, ns waited, thread, stack, cut."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_samples_type(PyObject* module) {
    return add_holding_type<SampleColumns>(
               module, "dftrace_ai._reader.Samples",
               "Samples()\n--\n\nSamples of stacks as columns; its length is how many it holds.", make,
               methods, nullptr, {Py_sq_length, reinterpret_cast<void*>(length)})
               ? 0
               : -1;
}

}  // namespace dftrace::py
