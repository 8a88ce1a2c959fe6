// Garbage collections of Python that last, as spans: what stands in `gc.callbacks`. In C, since Python asks
// for signals in functions of its own, and throws away what is raised there: an interrupt would be lost.
#include <cstdint>
#include <new>
#include <utility>

#include "annotation/span.hpp"
#include "instrumentation/gate.hpp"
#include "parts.hpp"

namespace dftrace::py {

namespace {

// A collection that is on. Python has one at a time, which nothing within it can begin again.
struct Begun {
    std::uint64_t generation = 0;  // of the run; 0: it is not looked at
    std::uint64_t tick = 0;
    std::uint64_t top = 0;  // id of the span that was open in the thread; 0 for none
};

struct Collections {
    PyObject_HEAD vectorcallfunc vectorcall;
    Node* node;
    Gate* gate;
    bool begins_trace;  // by itself; else it is told of where something else is recorded
    Begun begun;
};

PyTypeObject collections_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

std::uint64_t top_id(Thread* thread) noexcept {
    const OpenSpan* top = thread ? thread->top() : nullptr;
    return top ? top->id : 0;
}

Begun begin(const Collections* self) noexcept {
    const std::uint64_t generation = *detail::live_generation;
    if (!generation || !self->gate->recording || !self->node->enabled) return {};
    // A thread that has recorded nothing so far is made known when there is something to record.
    const detail::ThisThread& mine = detail::this_thread;
    Thread* thread = mine.generation == generation ? mine.thread : nullptr;
    return {generation, thread ? thread->tick() : tick_source.now(), top_id(thread)};
}

Numbers numbers_of(PyObject* info) {
    Numbers numbers;
    for (const char* name : {"generation", "collected"}) {
        PyObject* value = PyDict_Check(info) ? PyDict_GetItemString(info, name) : nullptr;
        const long long number = value && PyLong_Check(value) ? PyLong_AsLongLong(value) : -1;
        std::uint8_t key = 0;
        if (number >= 0 && learn_key(name, key)) numbers.put(key, number);
        forget_error();
    }
    return numbers;
}

// On the thread's own track, also where a task runs: all of them wait for it.
void end(Node* node, const Begun& begun, PyObject* info) {
    if (!merge_numbers(node, numbers_of(info))) forget_error();
    Thread* thread = recording_thread();
    if (!thread) {
        count_event_without_thread();
        return;
    }
    if (!prepare(node, thread)) return;
    const OpenSpan* open = thread->top();
    Record* record = thread->reserve();
    if (!record) return;
    *record = Record{};
    record->start = begun.tick;
    record->end = thread->tick();
    record->id = thread->new_id();
    record->parent = open ? open->id : 0;
    record->level = Thread::next_level(open);
    record->node = node->name;
    record->args = node->args_id;
    record->kind = Kind::span;
    // A generator that was in a span went with it, or somebody began one: then it does not nest.
    if (top_id(thread) != begun.top) record->flags = RecordFlag::overlaps;
    thread->commit();
}

PyObject* heard(PyObject* self, PyObject* const* given, std::size_t count, PyObject*) {
    if (PyVectorcall_NARGS(count) != 2 || !PyUnicode_Check(given[0]))
        return PyErr_Format(PyExc_TypeError, "a collection is told of by its phase, and a dict");
    Collections* const collections = as<Collections>(self);
    Begun& on = collections->begun;
    if (PyUnicode_CompareWithASCIIString(given[0], "start") == 0) {
        on = begin(collections);
        Py_RETURN_NONE;
    }
    // Of another run, or of the process that has forked this one meanwhile: it began in none of ours.
    const Begun begun = std::exchange(on, {});
    if (!begun.generation || begun.generation != *detail::live_generation) Py_RETURN_NONE;
    const auto took = static_cast<std::int64_t>(tick_source.now() - begun.tick);
    if (took < tick_source.in_a_millisecond) Py_RETURN_NONE;
    if (!collections->begins_trace && !held_session()) Py_RETURN_NONE;
    try {
        end(collections->node, begun, given[1]);
    } catch (const std::bad_alloc&) {
        if (Session* session = current_session()) session->count_dropped();
    }
    Py_RETURN_NONE;
}

PyObject* collections_new(PyTypeObject* type, PyObject* positional, PyObject*) {
    PyObject *node = nullptr, *gate = nullptr;
    int begins_trace = 1;
    if (!PyArg_ParseTuple(positional, "O!O!|p", &node_type, &node, &gate_type, &gate, &begins_trace))
        return nullptr;
    Collections* self = as<Collections>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->vectorcall = heard;
    self->node = as<Node>(Py_NewRef(node));
    self->gate = as<Gate>(Py_NewRef(gate));
    self->begins_trace = begins_trace != 0;
    return reinterpret_cast<PyObject*>(self);
}

}  // namespace

int add_collections_type(PyObject* module) {
    describe<Collections>(
        collections_type, "dftrace_ai._native.Collections",
        "Collections(node, gate, begins_trace=True): for gc.callbacks, records collections of a "
        "millisecond and more; without begins_trace none where nothing else is recorded.",
        Py_TPFLAGS_HAVE_GC);
    Owning<Collections, &Collections::node, &Collections::gate>::put_into(collections_type);
    collections_type.tp_new = collections_new;
    return add_type(module, collections_type);
}

}  // namespace dftrace::py
