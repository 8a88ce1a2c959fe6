// Functions of torch that make up a step, each recorded as a span and told to the training. Each is called
// once a step, behind milliseconds of other work: what is Python of it would come from memory anew.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "instrumentation/gate.hpp"
#include "parts.hpp"
#include "training/recorded_forward.hpp"
#include "training/running_graph.hpp"
#include "training/training_state.hpp"

namespace dftrace::py {

namespace {

enum class Work : std::uint8_t { fetch, clearing, optimizer, backward, gradients };
constexpr std::array<std::string_view, 5> work_names{"fetch", "clearing", "optimizer", "backward",
                                                     "gradients"};

PyTypeObject recorded_call_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyObject *yielded_name, *meant_name, *fetched_nothing_name;

struct RecordedCall {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject* wrapped;
    Node* node;
    Gate* gate;
    TrainingState* training;
    PyObject* chosen;         // objects that are meant; None for all
    PyObject* leave_hooked;   // ends an optimizer's step that its hooks told of
    PyObject* running_graph;  // says which backward pass calls, -1 for none; of `backward` and `gradients`
    PyObject* compiler;       // a module with a flag; or None
    RunningGraph graph;
    Work work;
    bool plain;  // nothing accompanies the spans of `node`
};

bool is_none(PyObject* object) { return !object || object == Py_None; }

// 1 or 0, -1 with an error set.
int is_outside_of_backward(const RecordedCall* self) {
    if (count_of(Inside::backward)) return 0;
    if (!is_none(self->compiler)) {
        const int compiles = is_compiling(self->compiler);
        if (compiles) return compiles < 0 ? -1 : 0;
    }
    // Reentrant checkpointing calls it within a backward pass, on any thread.
    const int within = self->graph.is_on(self->running_graph);
    return within < 0 ? -1 : !within;
}

int is_fetch_meant(const RecordedCall* self, PyObject* iterator) {
    if (is_none(self->chosen)) return 1;
    const Ref meant(PyObject_GetAttr(iterator, meant_name));
    if (meant) return PyObject_IsTrue(meant.get());
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();  // it is older than `auto`
    return 1;
}

int is_meant(const RecordedCall* self, PyObject* const* arguments, Py_ssize_t given) {
    if (!self->gate->live) return 0;
    if (self->work == Work::backward || self->work == Work::gradients) return is_outside_of_backward(self);
    if (given < 1) return 0;
    if (self->work == Work::fetch) return is_fetch_meant(self, arguments[0]);
    if (self->work == Work::optimizer && count_of(Inside::optimizer)) return 0;  // a class calls its base's
    return is_none(self->chosen) ? 1 : PySequence_Contains(self->chosen, arguments[0]);
}

bool leave_hooked(const RecordedCall* self) {
    return !count_of(Inside::hooked) || static_cast<bool>(Ref(PyObject_CallNoArgs(self->leave_hooked)));
}

// How many batches a loader's iterator has given; -1 where it does not say so, which is the loader's affair.
long long batches_of(PyObject* iterator) {
    const long long number = number_of_owned(PyObject_GetAttr(iterator, yielded_name));
    if (PyErr_Occurred()) forget_error();
    return number >= 0 && number < std::numeric_limits<long long>::max() ? number : -1;
}

// Whether to go on behind something that is ours.
bool heard(const RecordedCall* self, bool well) { return well || goes_on(self->training); }

PyObject* recorded_fetch(const RecordedCall* self, PyObject* const* arguments, std::size_t count,
                         PyObject* names) {
    PyObject* const iterator = arguments[0];
    if (!heard(self, leave_hooked(self))) return nullptr;
    const long long number = batches_of(iterator);
    if (!heard(self, fetch(self->training, iterator, number == 0))) return nullptr;
    CallSpan span(self->node, self->gate, self->plain);
    if (!span.open()) return nullptr;
    set_count(Inside::waiting, 1);
    PyObject* const batch = PyObject_Vectorcall(self->wrapped, arguments, count, names);
    set_count(Inside::waiting, 0);
    if (batch) {
        span.close(false, static_cast<std::uint64_t>(number) + 1);
    } else if (PyErr_ExceptionMatches(PyExc_StopIteration)) {
        ErrorAside end;
        span.close_unless_empty();
        const Ref told(PyObject_CallMethodOneArg(object_of(self->training), fetched_nothing_name, iterator));
        if (!heard(self, static_cast<bool>(told))) end.forget();
    } else {
        span.close(true);
    }
    return batch;
}

bool begin(const RecordedCall* self, PyObject* const* arguments) {
    TrainingState* const training = self->training;
    if (self->work == Work::clearing)
        return heard(self, leave_hooked(self)) && heard(self, clears(training, arguments[0]));
    if (self->work == Work::optimizer && !heard(self, optimizer_begins(training, arguments[0]))) return false;
    if (self->work == Work::backward && !heard(self, backward_begins(training))) return false;
    set_count(self->work == Work::optimizer ? Inside::optimizer : Inside::backward, 1);
    return true;
}

// Behind a call that has raised, too.
bool end(const RecordedCall* self, PyObject* const* arguments, bool raised) {
    if (self->work == Work::clearing) {
        if (!raised) cleared(self->training);
        return true;
    }
    set_count(self->work == Work::optimizer ? Inside::optimizer : Inside::backward, 0);
    if (self->work == Work::gradients) return true;
    const auto tell = [&] {
        return heard(self, self->work == Work::optimizer
                               ? optimizer_ends(self->training, arguments[0])
                               : backward(self->training, count_of(Inside::optimizer) > 0));
    };
    if (!raised) return tell();
    ErrorAside error;
    if (tell()) return true;
    error.forget();
    return false;
}

PyObject* recorded(PyObject* object, PyObject* const* arguments, std::size_t count, PyObject* names) {
    const RecordedCall* const self = as<RecordedCall>(object);
    const int meant = is_meant(self, arguments, PyVectorcall_NARGS(count));
    if (meant < 0 && !goes_on(self->training)) return nullptr;
    if (meant <= 0) return PyObject_Vectorcall(self->wrapped, arguments, count, names);
    if (self->work == Work::fetch) return recorded_fetch(self, arguments, count, names);
    if (!begin(self, arguments)) return nullptr;
    CallSpan span(self->node, self->gate, self->plain);
    Ref result(span.open() ? PyObject_Vectorcall(self->wrapped, arguments, count, names) : nullptr);
    if (!settle(self->training)) result = Ref();
    const bool raised = !result;
    const bool closed = span.close(raised);
    const bool ended = end(self, arguments, raised || !closed);
    return closed && ended ? result.release() : nullptr;
}

PyObject* make(PyTypeObject* type, PyObject* positional, PyObject*) {
    const char* work = nullptr;
    PyObject *wrapped, *node, *gate, *training, *leave;
    PyObject *chosen = Py_None, *graph = Py_None, *compiler = Py_None;
    int plain = 1;
    if (!PyArg_ParseTuple(positional, "sOO!O!O!O|OOOp", &work, &wrapped, &node_type, &node, &gate_type, &gate,
                          &training_state_type, &training, &leave, &chosen, &graph, &compiler, &plain))
        return nullptr;
    const auto* const found = std::find(work_names.begin(), work_names.end(), std::string_view(work));
    if (found == work_names.end()) return PyErr_Format(PyExc_ValueError, "there is no work %s", work);
    PyObject* const object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    RecordedCall* const self = as<RecordedCall>(object);
    self->vectorcall = recorded;
    self->wrapped = Py_NewRef(wrapped);
    self->node = as<Node>(Py_NewRef(node));
    self->gate = as<Gate>(Py_NewRef(gate));
    self->training = as<TrainingState>(Py_NewRef(training));
    self->chosen = Py_NewRef(chosen);
    self->leave_hooked = Py_NewRef(leave);
    self->running_graph = Py_NewRef(graph);
    self->graph = RunningGraph(graph);
    self->compiler = Py_NewRef(compiler);
    self->work = static_cast<Work>(found - work_names.begin());
    self->plain = plain != 0;
    return object;
}

using Owned = Owning<RecordedCall, &RecordedCall::wrapped, &RecordedCall::node, &RecordedCall::gate,
                     &RecordedCall::training, &RecordedCall::chosen, &RecordedCall::leave_hooked,
                     &RecordedCall::running_graph, &RecordedCall::compiler>;

}  // namespace

int add_recorded_call_type(PyObject* module) {
    if (intern({{&yielded_name, "_num_yielded"},
                {&meant_name, "_dftrace_meant"},
                {&fetched_nothing_name, "fetched_nothing"}}) < 0)
        return -1;
    describe<RecordedCall>(
        recorded_call_type, "dftrace_ai._native.RecordedCall",
        "RecordedCall(work, wrapped, node, gate, training, leave_hooked, chosen=None, running_graph=None, "
        "compiler=None, plain=True): a function that is recorded as a span, and told to a training.",
        Py_TPFLAGS_HAVE_GC);
    Owned::put_into(recorded_call_type);
    recorded_call_type.tp_new = make;
    return add_type(module, recorded_call_type);
}

}  // namespace dftrace::py
