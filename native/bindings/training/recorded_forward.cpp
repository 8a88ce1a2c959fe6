#include "training/recorded_forward.hpp"

#include <cstddef>

#include "instrumentation/gate.hpp"
#include "parts.hpp"
#include "training/running_graph.hpp"
#include "training/training_state.hpp"

namespace dftrace::py {

struct RecordedForward {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject* wrapped;
    Gate* gate;
    TrainingState* training;
    Node *learning, *evaluating, *recomputing;
    PyObject* known;          // dict: models that were met, as weak references by their ids
    PyObject* is_model;       // called with a module and `known`
    PyObject* models;         // those that are meant; None for all
    PyObject* not_meant;      // list of functions that tell by the arguments that nothing is computed
    PyObject* leave_hooked;   // ends an optimizer's step that its hooks told of
    PyObject* running_graph;  // says which backward pass calls, -1 for none
    PyObject* grad_is_on;
    RunningGraph graph;
    bool plain;  // nothing accompanies the spans of the nodes
};

namespace {

PyObject *training_name, *judged_name, *compiling_name;

bool is_known(const RecordedForward* self, PyObject* module) {
    PyObject* const id = PyLong_FromVoidPtr(module);
    PyObject* const found = id ? PyDict_GetItemWithError(self->known, id) : nullptr;
    Py_XDECREF(id);
#if PY_VERSION_HEX >= 0x030D0000
    PyObject* there = nullptr;
    if (!found || PyWeakref_GetRef(found, &there) < 0) return false;
    const Ref held(there);
    return there == module;
#else
    return found && PyWeakref_GetObject(found) == module;
#endif
}

// 1 or 0, -1 with an error set.
int is_model(const RecordedForward* self, PyObject* module) {
    if (is_known(self, module)) return 1;
    if (PyErr_Occurred()) return -1;
    const Ref told(PyObject_CallFunctionObjArgs(self->is_model, module, self->known, nullptr));
    return told ? PyObject_IsTrue(told.get()) : -1;
}

int computes_nothing(const RecordedForward* self, PyObject* const* arguments, Py_ssize_t given) {
    if (PyList_GET_SIZE(self->not_meant) == 0) return 0;
    const Ref all(PyTuple_New(given - 1));
    if (!all) return -1;
    for (Py_ssize_t i = 1; i < given; ++i) PyTuple_SET_ITEM(all.get(), i - 1, Py_NewRef(arguments[i]));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(self->not_meant); ++i) {
        const Ref test(Py_NewRef(PyList_GET_ITEM(self->not_meant, i)));
        const Ref said(PyObject_CallOneArg(test.get(), all.get()));
        int truth = said ? PyObject_IsTrue(said.get()) : -1;
        if (truth < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear();  // whom it asks does not answer: as of what is computed with
            truth = 0;
        }
        if (truth) return truth;
    }
    return 0;
}

int is_meant(const RecordedForward* self, PyObject* const* arguments, Py_ssize_t given) {
    if (!self->gate->live || given < 1) return 0;
    int meant = is_model(self, arguments[0]);
    if (meant > 0 && self->models != Py_None) meant = PySequence_Contains(self->models, arguments[0]);
    if (meant > 0) {
        const int nothing = computes_nothing(self, arguments, given);
        meant = nothing < 0 ? -1 : !nothing;
    }
    return meant;
}

// Null with an error set.
Node* told(const RecordedForward* self, PyObject* module) {
    if (const int within = self->graph.is_on(self->running_graph))
        return within < 0 ? nullptr : self->recomputing;
    int learns = truth_of_owned(PyObject_GetAttr(module, training_name));
    // A property of the model's, which it may need nowhere itself; Ctrl-C goes on.
    if (learns < 0 && !PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
    if (learns < 0) PyErr_Clear();
    if (learns) learns = truth_of_owned(PyObject_CallNoArgs(self->grad_is_on));
    if (learns < 0 || !forward(self->training, learns != 0, module)) return nullptr;
    return learns ? self->learning : self->evaluating;
}

bool has_judged(const RecordedForward* self) {
    ErrorAside error;
    const Ref judged(PyObject_CallMethodNoArgs(object_of(self->training), judged_name));
    if (judged || goes_on(self->training)) return true;
    error.forget();
    return false;
}

PyObject* by_wrapped(RecordedForward* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    return PyObject_Vectorcall(self->wrapped, arguments, count, names);
}

PyObject* called(PyObject* object, PyObject* const* arguments, std::size_t count, PyObject* names) {
    return recorded_forward(as<RecordedForward>(object), arguments, count, names, by_wrapped);
}

PyObject* make(PyTypeObject* type, PyObject* positional, PyObject*) {
    PyObject *wrapped, *gate, *training, *learning, *evaluating, *recomputing, *is_model, *models, *not_meant,
        *leave_hooked, *running_graph, *grad_is_on;
    int plain = 1;
    if (!PyArg_ParseTuple(positional, "OO!O!O!O!O!OOO!OOOp", &wrapped, &gate_type, &gate,
                          &training_state_type, &training, &node_type, &learning, &node_type, &evaluating,
                          &node_type, &recomputing, &is_model, &models, &PyList_Type, &not_meant,
                          &leave_hooked, &running_graph, &grad_is_on, &plain))
        return nullptr;
    Ref known(PyDict_New());
    PyObject* const object = known ? type->tp_alloc(type, 0) : nullptr;
    if (!object) return nullptr;
    RecordedForward* const self = as<RecordedForward>(object);
    self->vectorcall = called;
    self->wrapped = Py_NewRef(wrapped);
    self->gate = as<Gate>(Py_NewRef(gate));
    self->training = as<TrainingState>(Py_NewRef(training));
    self->learning = as<Node>(Py_NewRef(learning));
    self->evaluating = as<Node>(Py_NewRef(evaluating));
    self->recomputing = as<Node>(Py_NewRef(recomputing));
    self->known = known.release();
    self->is_model = Py_NewRef(is_model);
    self->models = Py_NewRef(models);
    self->not_meant = Py_NewRef(not_meant);
    self->leave_hooked = Py_NewRef(leave_hooked);
    self->running_graph = Py_NewRef(running_graph);
    self->grad_is_on = Py_NewRef(grad_is_on);
    self->graph = RunningGraph(running_graph);
    self->plain = plain != 0;
    return object;
}

using Owned = Owning<RecordedForward, &RecordedForward::wrapped, &RecordedForward::gate,
                     &RecordedForward::training, &RecordedForward::learning, &RecordedForward::evaluating,
                     &RecordedForward::recomputing, &RecordedForward::known, &RecordedForward::is_model,
                     &RecordedForward::models, &RecordedForward::not_meant, &RecordedForward::leave_hooked,
                     &RecordedForward::running_graph, &RecordedForward::grad_is_on>;

}  // namespace

int is_compiling(PyObject* compiler) {
    PyObject* const there = PyModule_Check(compiler)
                                ? PyDict_GetItemWithError(PyModule_GetDict(compiler), compiling_name)
                                : nullptr;
    if (there) return there != Py_False;
    PyObject* const flag = PyErr_Occurred() ? nullptr : PyObject_GetAttr(compiler, compiling_name);
    Py_XDECREF(flag);
    return flag ? flag != Py_False : -1;
}

PyObject* recorded_forward(RecordedForward* self, PyObject* const* arguments, std::size_t count,
                           PyObject* names, ModuleCall call) {
    const int meant = is_meant(self, arguments, PyVectorcall_NARGS(count));
    if (meant < 0 && !goes_on(self->training)) return nullptr;
    if (meant <= 0) return call(self, arguments, count, names);
    if (count_of(Inside::hooked) && !Ref(PyObject_CallNoArgs(self->leave_hooked)) && !goes_on(self->training))
        return nullptr;
    Node* const node = told(self, arguments[0]);
    if (!node) return goes_on(self->training) ? call(self, arguments, count, names) : nullptr;
    set_count(Inside::forward, 1);
    CallSpan span(node, self->gate, self->plain);
    Ref result(span.open() ? call(self, arguments, count, names) : nullptr);
    if (!settle(self->training)) result = Ref();
    const bool closed = span.close(!result);
    set_count(Inside::forward, 0);
    const bool ended = node != self->evaluating || has_judged(self);
    return closed && ended ? result.release() : nullptr;
}

PyTypeObject recorded_forward_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int add_recorded_forward_type(PyObject* module) {
    if (intern({{&training_name, "training"},
                {&judged_name, "judged"},
                {&compiling_name, "_is_compiling_flag"}}) < 0)
        return -1;
    describe<RecordedForward>(
        recorded_forward_type, "dftrace_ai._native.RecordedForward",
        "RecordedForward(wrapped, gate, training, learning, evaluating, recomputing, is_model, models, "
        "not_meant, leave_hooked, running_graph, grad_is_on, plain): a call of modules, recorded where it is "
        "the outermost of a model.",
        Py_TPFLAGS_HAVE_GC);
    Owned::put_into(recorded_forward_type);
    recorded_forward_type.tp_new = make;
    return add_type(module, recorded_forward_type);
}

}  // namespace dftrace::py
