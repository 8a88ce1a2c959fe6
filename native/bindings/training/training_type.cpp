// Its classes of Python, to derive from.
#include "training/training_state.hpp"

#include <cstddef>
#include <new>
#include <utility>

#include "parts.hpp"

namespace dftrace::py {

namespace {

PyTypeObject pass_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

TrainingState* of(PyObject* object) { return as<TrainingState>(object); }

PyObject* none_if(bool well) { return well ? Py_NewRef(Py_None) : nullptr; }

template <bool (*what)(TrainingState*)>
PyObject* plainly(PyObject* object, PyObject*) {
    return none_if(what(of(object)));
}

template <void (*what)(TrainingState*)>
PyObject* plainly(PyObject* object, PyObject*) {
    what(of(object));
    Py_RETURN_NONE;
}

template <bool (*what)(TrainingState*, bool)>
PyObject* with_truth(PyObject* object, PyObject* given) {
    const int truth = PyObject_IsTrue(given);
    return none_if(truth >= 0 && what(of(object), truth != 0));
}

PyObject* forward_begins(PyObject* object, PyObject* learns) {
    const int truth = PyObject_IsTrue(learns);
    return none_if(truth >= 0 && forward(of(object), truth != 0, nullptr));
}

PyObject* fetch_batch(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2) return PyErr_Format(PyExc_TypeError, "fetch(iterator, first)");
    const int first = PyObject_IsTrue(arguments[1]);
    return none_if(first >= 0 && fetch(of(object), arguments[0], first != 0));
}

template <bool (*what)(TrainingState*, PyObject*)>
PyObject* of_optimizer(PyObject* object, PyObject* optimizer) {
    return none_if(what(of(object), optimizer));
}

PyObject* close_at(PyObject* object, PyObject* end) {
    const long long time = PyLong_AsLongLong(end);
    return none_if(!PyErr_Occurred() && close_step(of(object), time));
}

PyObject* here(PyObject* object, PyObject* made) {
    TrainingState* const found = state_here(of(object), made == Py_True);
    if (!found && PyErr_Occurred()) return nullptr;
    return Py_NewRef(found ? object_of(found) : Py_None);
}

PyObject* numbers_of_here(PyObject* object, PyObject*) {
    MaybeNumber step{}, epoch{};
    numbers_here(of(object), step, epoch);
    if (PyErr_Occurred()) return nullptr;
    Ref numbers(PyDict_New());
    const auto put = [&numbers](const char* name, const MaybeNumber& one) {
        const Ref value(numbers && one.known ? PyLong_FromLongLong(one.value) : nullptr);
        if (one.known && (!value || PyDict_SetItemString(numbers.get(), name, value.get()) < 0))
            numbers = Ref(nullptr);
    };
    put("epoch", epoch);
    put("step", step);
    return numbers.release();
}

// Of the thread that asks; nothing has ended in one that has none.
PyObject* get_optimizers_ended(PyObject* object, void*) {
    const TrainingState* const found = state_here(of(object), false);
    if (!found && PyErr_Occurred()) return nullptr;
    return PyLong_FromLongLong(found ? found->optimizers_ended : 0);
}

PyObject* get_others(PyObject* object, void*) { return Py_NewRef(of(object)->others); }

PyObject* is_step_recorded(PyObject* object, PyObject*) { return PyBool_FromLong(is_recorded(of(object))); }

PyObject* by_default(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2 || !PyObject_TypeCheck(arguments[0], &node_type))
        return PyErr_Format(PyExc_TypeError, "_by_default(root, on)");
    tell_by_default(as<Node>(arguments[0]), arguments[1] == Py_True);
    Py_RETURN_NONE;
}

PyObject* forget_all_told(PyObject*, PyObject*) {
    forget_told();
    Py_RETURN_NONE;
}

PyObject* rest(PyObject*, PyObject*) {
    resting = true;
    Py_RETURN_NONE;
}

PyObject* is_resting(PyObject*, PyObject*) { return PyBool_FromLong(resting); }

template <class Of, MaybeNumber Of::*number>
PyObject* get_maybe(PyObject* self, void*) {
    const MaybeNumber& found = as<Of>(self)->*number;
    return found.known ? PyLong_FromLongLong(found.value) : Py_NewRef(Py_None);
}

template <class Of, MaybeNumber Of::*number>
int set_maybe(PyObject* self, PyObject* value, void*) {
    MaybeNumber made{0, value && value != Py_None};
    if (made.known) made.value = PyLong_AsLongLong(value);
    if (PyErr_Occurred()) return -1;
    as<Of>(self)->*number = made;
    return 0;
}

PyObject* is_at_microbatch(PyObject* object, PyObject* given) {
    MaybeNumber number{0, given != Py_None};
    if (number.known) number.value = PyLong_AsLongLong(given);
    return none_if(!PyErr_Occurred() && at_microbatch(of(object), number));
}

PyObject* follow(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2 || !PyDict_Check(arguments[0]))
        return PyErr_Format(PyExc_TypeError, "follow(under_way, settle)");
    const Ref under_way(std::exchange(of(object)->under_way, Py_NewRef(arguments[0])));
    const Ref settle(std::exchange(of(object)->settle, Py_NewRef(arguments[1])));
    Py_RETURN_NONE;
}

PyObject* get_pass(PyObject* self, void*) {
    PassState* const pass = of(self)->pass;
    return Py_NewRef(pass ? object_of(pass) : Py_None);
}

int set_pass(PyObject* self, PyObject* value, void*) {
    if (value == Py_None) value = nullptr;
    if (value && !PyObject_TypeCheck(value, &pass_type)) {
        PyErr_SetString(PyExc_TypeError, "a pass, or None");
        return -1;
    }
    PassState* const before = of(self)->pass;
    of(self)->pass = as<PassState>(Py_XNewRef(value));
    Py_XDECREF(object_of(before));
    return 0;
}

PyObject* training_new(PyTypeObject* type, PyObject* positional, PyObject*) {
    PyObject *gate, *node, *everyone, *track, *all = Py_None;
    long long first, end;
    if (!PyArg_ParseTuple(positional, "O!O!O!ULL|O", &gate_type, &gate, &node_type, &node, &node_type,
                          &everyone, &track, &first, &end, &all))
        return nullptr;
    if (all != Py_None && !PyObject_TypeCheck(all, &training_state_type))
        return PyErr_Format(PyExc_TypeError, "the first of all is a training, or None");
    Ref others(PyDict_New());
    PyObject* const object = others ? type->tp_alloc(type, 0) : nullptr;
    if (!object) return nullptr;
    TrainingState* const self = of(object);
    self->first = all == Py_None ? self : of(Py_NewRef(all));
    self->others = others.release();
    new (&self->stepped) std::vector<const void*>();
    new (&self->roster) std::vector<const void*>();
    self->gate = as<Gate>(Py_NewRef(gate));
    self->node = as<Node>(Py_NewRef(node));
    self->everyone = as<Node>(Py_NewRef(everyone));
    follow_told(self->everyone);
    self->track = Py_NewRef(track);
    self->epoch_track = Py_NewRef(track);
    self->first_step = first;
    self->end_step = end;
    return object;
}

using Owned = Owning<TrainingState, &TrainingState::pass, &TrainingState::gate, &TrainingState::node,
                     &TrainingState::everyone, &TrainingState::others, &TrainingState::track,
                     &TrainingState::epoch_track, &TrainingState::under_way, &TrainingState::settle>;

// The first of all does not own itself.
TrainingState* owned_first(PyObject* object) {
    return of(object)->first != of(object) ? of(object)->first : nullptr;
}

int training_traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(object_of(owned_first(object)));
    return Owned::traverse(object, visit, arg);
}

// What they refer to each other by goes with the dict.
int training_clear(PyObject* object) {
    PyDict_Clear(of(object)->others);
    return set_pass(object, nullptr, nullptr);
}

void training_dealloc(PyObject* object) {
    PyObject_GC_UnTrack(object);
    Py_XDECREF(object_of(owned_first(object)));
    of(object)->stepped.~vector();
    of(object)->roster.~vector();
    Owned::dealloc(object);
}

#define OF_NUMBER(of, text, name) \
    { text, get_maybe<of, &of::name>, set_maybe<of, &of::name>, nullptr, nullptr }

#define OF_PASS(kind, name) \
    { #name, kind, offsetof(PassState, name), 0, nullptr }
PyMemberDef pass_members[] = {OF_PASS(T_ULONGLONG, of),  OF_PASS(T_LONGLONG, begun),
                              OF_PASS(T_LONGLONG, last), OF_PASS(T_LONGLONG, fetched),
                              OF_PASS(T_LONGLONG, used), OF_PASS(T_BOOL, trained),
                              OF_PASS(T_BOOL, drained),  OF_PASS(T_BOOL, told),
                              OF_PASS(T_BOOL, learns),   {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef pass_properties[] = {OF_NUMBER(PassState, "number", number),
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};

#define OF_TRAINING(kind, name) \
    { "_" #name, kind, offsetof(TrainingState, name), 0, nullptr }
PyMemberDef training_members[] = {{"step", T_LONGLONG, offsetof(TrainingState, step), 0, nullptr},
                                  {"recorded", T_BOOL, offsetof(TrainingState, recorded), 0, nullptr},
                                  OF_TRAINING(T_LONGLONG, begun),
                                  OF_TRAINING(T_LONGLONG, last),
                                  OF_TRAINING(T_LONGLONG, epoch_begun),
                                  OF_TRAINING(T_LONGLONG, epoch_last),
                                  OF_TRAINING(T_ULONG, thread),
                                  OF_TRAINING(T_OBJECT, track),
                                  OF_TRAINING(T_OBJECT, epoch_track),
                                  OF_TRAINING(T_BOOL, epoch_is_told),
                                  OF_TRAINING(T_BOOL, closing),
                                  OF_TRAINING(T_BOOL, trained),
                                  OF_TRAINING(T_BOOL, judged),
                                  OF_TRAINING(T_BOOL, between),
                                  OF_TRAINING(T_BOOL, unfed),
                                  OF_TRAINING(T_BOOL, fed),
                                  OF_TRAINING(T_BOOL, clears_first),
                                  OF_TRAINING(T_BOOL, together),
                                  OF_TRAINING(T_BOOL, follows),
                                  {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef training_properties[] = {
    OF_NUMBER(TrainingState, "epoch", epoch),
    OF_NUMBER(TrainingState, "_step_told", step_told),
    {"_pass", get_pass, set_pass, nullptr, nullptr},
    {"_others", get_others, nullptr, "Those of other threads, by their numbers.", nullptr},
    {"optimizers_ended", get_optimizers_ended, nullptr,
     "How many steps of optimizers have ended in this thread, those left out as well.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef training_methods[] = {
    {"fetch", fast(fetch_batch), METH_FASTCALL,
     "fetch(iterator, first): a batch is about to be fetched from a loader; it has not given any yet."},
    {"forward", forward_begins, METH_O,
     "forward(learns): a model's forward is about to begin; gradients are recorded, in its training mode."},
    {"clears", of_optimizer<clears>, METH_O,
     "clears(optimizer): it is about to clear its gradients: before a forward, or behind its step."},
    {"cleared", plainly<cleared>, METH_NOARGS, "It has: behind its step that belongs to it."},
    {"backward_begins", plainly<backward_begins>, METH_NOARGS, "A backward pass is about to begin."},
    {"backward", with_truth<backward>, METH_O,
     "backward(in_optimizer): a backward pass has ended; it was part of an optimizer's step."},
    {"optimizer_begins", of_optimizer<optimizer_begins>, METH_O,
     "optimizer_begins(optimizer): it is about to step."},
    {"optimizer_ends", of_optimizer<optimizer_ends>, METH_O,
     "optimizer_ends(optimizer): it has stepped, or its step was left out for its gradients."},
    {"at_microbatch", is_at_microbatch, METH_O,
     "at_microbatch(number): a schedule computes a microbatch; None: it has done so."},
    {"follow", fast(follow), METH_FASTCALL,
     "follow(under_way, settle): before a span of torch's ends, `settle` is called if the dict is not "
     "empty."},
    {"_close", close_at, METH_O, "_close(end): the step that is on ends."},
    {"_forget_epoch", plainly<forget_epoch>, METH_NOARGS, "The epoch is recorded, or none."},
    {"_tell", plainly<tell>, METH_NOARGS, "Have the step's numbers reach all that carry them."},
    {"_tell_epoch", plainly<tell_epoch>, METH_NOARGS, "Have the number of the epoch reach them."},
    {"_leave_step", plainly<leave_step>, METH_NOARGS, "What is recorded from now on belongs to no step."},
    {"_enter_step", plainly<enter_step>, METH_NOARGS, "It belongs to one again."},
    {"_clear", plainly<clear>, METH_NOARGS, "Nothing of a step has been seen."},
    {"_here", here, METH_O, "_here(made): that of this thread, which gets one if `made`; or None."},
    {"numbers_here", numbers_of_here, METH_NOARGS,
     "Numbers of the step and the epoch that this thread is in, by name; those that are known."},
    {"_by_default", fast(by_default), METH_FASTCALL | METH_STATIC,
     "_by_default(root, on): numbers of the step are told of spans that the user annotates, too."},
    {"forget_told", forget_all_told, METH_NOARGS | METH_STATIC, "Have no numbers of the step told."},
    {"_forget_threads", plainly<forget_threads>, METH_NOARGS, "No thread trains."},
    {"_is_recorded", is_step_recorded, METH_NOARGS, "Whether steps become spans now."},
    {"rest", rest, METH_NOARGS | METH_STATIC, "Have no steps told in this process."},
    {"is_resting", is_resting, METH_NOARGS | METH_STATIC, "Whether none are."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyTypeObject training_state_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int add_training_types(PyObject* module) {
    describe<PassState>(pass_type, "dftrace_ai._native.PassState",
                        "How many batches of a loader were fetched and used.", Py_TPFLAGS_BASETYPE);
    // What a derived class is made with is its own.
    pass_type.tp_new = [](PyTypeObject* type, PyObject*, PyObject*) { return type->tp_alloc(type, 0); };
    pass_type.tp_members = pass_members;
    pass_type.tp_getset = pass_properties;
    describe<TrainingState>(training_state_type, "dftrace_ai._native.TrainingState",
                            "TrainingState(gate, node, everyone, track, first_step, end_step, first=None)",
                            Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC);
    training_state_type.tp_new = training_new;
    training_state_type.tp_dealloc = training_dealloc;
    training_state_type.tp_traverse = training_traverse;
    training_state_type.tp_clear = training_clear;
    training_state_type.tp_members = training_members;
    training_state_type.tp_getset = training_properties;
    training_state_type.tp_methods = training_methods;
    if (prepare_training_state() < 0 || add_type(module, pass_type) < 0) return -1;
    return add_type(module, training_state_type);
}

}  // namespace dftrace::py
