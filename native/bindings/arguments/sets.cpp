// Sets of arguments: made by updates, serialised by the first span that needs them.
#include "arguments/sets.hpp"

#include <new>
#include <string>

#include "arguments/json_args.hpp"

namespace dftrace::py {

namespace {

PyTypeObject arguments_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int arguments_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(as<Arguments>(self)->values);
    return 0;
}

int arguments_clear(PyObject* self) {
    Py_CLEAR(as<Arguments>(self)->values);
    return 0;
}

void give_back(Arguments* arguments) noexcept {
    if (arguments->generation && arguments->generation == *detail::live_generation)
        if (Session* session = current_session()) session->release_arguments(arguments->snapshot);
    arguments->generation = 0;
}

void arguments_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    give_back(as<Arguments>(self));
    arguments_clear(self);
    PyObject_GC_Del(self);
}

}  // namespace

PyObject* new_arguments(Ref values) {
    if (!values) return nullptr;
    Arguments* made = PyObject_GC_New(Arguments, &arguments_type);
    if (!made) return nullptr;
    made->values = values.release();
    made->generation = made->merge = 0;
    made->snapshot = 0;
    made->settled = false;
    made->merged = nullptr;
    PyObject* object = reinterpret_cast<PyObject*>(made);
    PyObject_GC_Track(object);
    return object;
}

bool take_snapshot(Arguments* arguments, Thread* thread, Snapshot& snapshot) {
    const std::uint64_t generation = thread->generation;
    const auto is_there = [&] { return arguments->settled && arguments->generation == generation; };
    if (!is_there()) {
        std::string members;
        std::uint64_t sanitised = 0;
        try {
            if (arguments->values) sanitised = append_members(members, arguments->values);
        } catch (const std::bad_alloc&) {
            members.clear();
            sanitised = 1;
        }
        if (*detail::live_generation != generation) return false;
        Session* session = thread->session;
        if (sanitised) session->header().args_sanitised.fetch_add(sanitised, std::memory_order_relaxed);
        // The user's code may have let another thread do it meanwhile.
        if (!is_there()) {
            give_back(arguments);
            arguments->snapshot = session->put_arguments(members);
            arguments->generation = generation;
            // What the very values record while they are converted has them by their types alone.
            arguments->settled = !Converting::under_way();
        }
    }
    snapshot = {arguments->snapshot, arguments->settled};
    return true;
}

std::uint64_t Merge::last_ = 0;

PyObject* Merge::keep(Ref values) {
    Ref made(new_arguments(std::move(values)));
    if (!made) return nullptr;
    try {
        made_.push_back(std::move(made));
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return made_.back().get();
}

PyObject* Merge::with(PyObject* before) {
    if (!before) {
        if (!from_nothing_) from_nothing_ = keep(Ref(PyDict_Copy(updates_)));
        return from_nothing_;
    }
    Arguments* arguments = as<Arguments>(before);
    if (arguments->merge == number_) return arguments->merged;
    // Held: keys that are compared may run code that takes the set from its nodes.
    const Ref held(Py_NewRef(before));
    Ref values(arguments->values ? PyDict_Copy(arguments->values) : PyDict_New());
    if (!values || PyDict_Update(values.get(), updates_) != 0) return nullptr;
    PyObject* merged = keep(std::move(values));
    if (merged) {
        arguments->merge = number_;
        arguments->merged = merged;
    }
    return merged;
}

int add_arguments_type() {
    arguments_type.tp_name = "dftrace_ai._native.Arguments";
    arguments_type.tp_basicsize = sizeof(Arguments);
    arguments_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
    arguments_type.tp_dealloc = arguments_dealloc;
    arguments_type.tp_traverse = arguments_traverse;
    arguments_type.tp_clear = arguments_clear;
    return PyType_Ready(&arguments_type);
}

}  // namespace dftrace::py
