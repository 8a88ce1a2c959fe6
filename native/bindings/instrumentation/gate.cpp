// Gates, and what is recorded while one says so, at little more than the cost of the span.
#include "instrumentation/gate.hpp"

#include <cstddef>
#include <cstdint>

#include "parts.hpp"

namespace dftrace::py {

PyTypeObject gate_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

namespace {

PyObject* gate_new(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* self = type->tp_alloc(type, 0);
    if (self) as<Gate>(self)->shared = Py_NewRef(Py_None);
    return self;
}

int gate_clear(PyObject* self) {
    Py_CLEAR(as<Gate>(self)->shared);
    return 0;
}

PyMemberDef gate_members[] = {
    {"live", T_BOOL, offsetof(Gate, live), 0, "The parts are installed."},
    {"recording", T_BOOL, offsetof(Gate, recording), 0, "They are, and the step is one that is asked for."},
    {"shared", T_OBJECT, offsetof(Gate, shared), 0, "The same for workers, in memory that they share."},
    {nullptr, 0, 0, 0, nullptr}};

// Whether what a loader does is recorded, here or in a worker: 1 or 0, -1 with an error set.
int is_recording_items(const Gate* gate) {
    if (!gate->live) return 0;
    if (!gate->shared || gate->shared == Py_None) return gate->recording;
    const Ref held(Py_NewRef(gate->shared));
    const Ref value(PyObject_GetAttrString(held.get(), "value"));
    return value ? PyObject_IsTrue(value.get()) : -1;
}

// What a loader's fetcher holds in place of a data set or a function.
struct Gated {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject* wrapped;
    Node* node;
    Gate* gate;
};

PyTypeObject gated_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyObject* several_at_once = nullptr;  // "__getitems__"

template <class Work>
PyObject* recorded(PyObject* self, const Work& work) {
    const Gated* gated = as<Gated>(self);
    Node* node = gated->node;
    const int is_on = is_recording_items(gated->gate);
    if (is_on < 0) return nullptr;
    if (!is_on || !node->enabled) return work(gated->wrapped);
    SpanState state;
    open_span(node, node->name, state);
    PyObject* result = work(gated->wrapped);
    if (state.generation) [[likely]]
        close_span(node, node->name, state, result ? 0 : raised_error());
    return result;
}

PyObject* gated_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    return recorded(self,
                    [=](PyObject* wrapped) { return PyObject_Vectorcall(wrapped, arguments, count, names); });
}

PyObject* gated_item(PyObject* self, PyObject* index) {
    return recorded(self, [=](PyObject* wrapped) { return PyObject_GetItem(wrapped, index); });
}

PyObject* gated_getattr(PyObject* self, PyObject* name) {
    // A fetcher asks before each batch whether there is such a method. One that has it is not held so.
    if (name == several_at_once) Py_RETURN_NONE;
    return PyObject_GetAttr(as<Gated>(self)->wrapped, name);
}

PyObject* gated_new(PyTypeObject* type, PyObject* positional, PyObject*) {
    PyObject *wrapped = nullptr, *node = nullptr, *gate = nullptr;
    if (!PyArg_ParseTuple(positional, "OO!O!", &wrapped, &node_type, &node, &gate_type, &gate))
        return nullptr;
    Gated* self = as<Gated>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->vectorcall = gated_call;
    self->wrapped = Py_NewRef(wrapped);
    self->node = as<Node>(Py_NewRef(node));
    self->gate = as<Gate>(Py_NewRef(gate));
    return reinterpret_cast<PyObject*>(self);
}

PyMappingMethods gated_items = {nullptr, gated_item, nullptr};

PyObject *enter_name, *exit_name;

// Read before each call of each module: a threading.local finds its thread's dict by two look-ups of text.
PyObject* get_count(PyObject*, void* which) {
    return PyLong_FromLong(count_of(static_cast<Inside>(reinterpret_cast<std::uintptr_t>(which))));
}

int put_count(PyObject*, PyObject* value, void* which) {
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "a count of a thread cannot be deleted");
        return -1;
    }
    const long count = PyLong_AsLong(value);
    if (count == -1 && PyErr_Occurred()) return -1;
    set_count(static_cast<Inside>(reinterpret_cast<std::uintptr_t>(which)), static_cast<std::int32_t>(count));
    return 0;
}

void* number(Inside what) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(what)); }

PyGetSetDef count_properties[] = {
    {"forward", get_count, put_count, "Modules within modules.", number(Inside::forward)},
    {"backward", get_count, put_count, "1 within a backward pass.", number(Inside::backward)},
    {"optimizer", get_count, put_count, "1 within an optimizer's step.", number(Inside::optimizer)},
    {"waiting", get_count, put_count, "1 while a loader is asked for a batch.", number(Inside::waiting)},
    {"hooked", get_count, put_count, "1 within an optimizer's step that its hooks tell.",
     number(Inside::hooked)},
    {"computing", get_count, put_count, "1 within a step that is one function.", number(Inside::computing)},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject counts_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

void CallSpan::close_unless_empty() {
    if (state_.generation && is_empty(state_))
        cancel_span(state_);
    else
        close(false);
}

bool CallSpan::enter() {
    const Ref entered(PyObject_CallMethodNoArgs(object_of(node_), enter_name));
    return entered_ = static_cast<bool>(entered);
}

bool CallSpan::leave() {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    if (type) PyErr_NormalizeException(&type, &value, &trace);
    const auto or_none = [](PyObject* one) { return one ? one : Py_None; };
    const Ref left(PyObject_CallMethodObjArgs(object_of(node_), exit_name, or_none(type), or_none(value),
                                              or_none(trace), nullptr));
    if (left) {
        PyErr_Restore(type, value, trace);
    } else {
        for (PyObject* one : {type, value, trace}) Py_XDECREF(one);
    }
    return static_cast<bool>(left);
}

int add_instrumentation_types(PyObject* module) {
    if (intern({{&several_at_once, "__getitems__"}, {&enter_name, "__enter__"}, {&exit_name, "__exit__"}}) <
        0)
        return -1;
    describe<Gate>(gate_type, "dftrace_ai._native.Gate", "Whether anything is recorded now.",
                   Py_TPFLAGS_HAVE_GC);
    Owning<Gate, &Gate::shared>::put_into(gate_type);
    gate_type.tp_new = gate_new;
    gate_type.tp_clear = gate_clear;
    gate_type.tp_members = gate_members;
    describe<Gated>(
        gated_type, "dftrace_ai._native.Gated",
        "Gated(wrapped, node, gate): calls and items of something, recorded while a gate says so.",
        Py_TPFLAGS_HAVE_GC);
    Owning<Gated, &Gated::wrapped, &Gated::node, &Gated::gate>::put_into(gated_type);
    gated_type.tp_new = gated_new;
    gated_type.tp_getattro = gated_getattr;
    gated_type.tp_as_mapping = &gated_items;
    describe<PyObject>(counts_type, "dftrace_ai._native.ThreadCounts",
                       "How deep the calling thread is inside of what instrumentation records once only.");
    counts_type.tp_new = PyType_GenericNew;
    counts_type.tp_getset = count_properties;
    for (PyTypeObject* type : {&gate_type, &gated_type, &counts_type})
        if (add_type(module, *type) < 0) return -1;
    return 0;
}

}  // namespace dftrace::py
