// An iterable whose items are recorded: the wait for each, and what is done with it.
#include <algorithm>
#include <cstddef>

#include "annotation/span.hpp"
#include "dftrace/text/names.hpp"
#include "parts.hpp"

namespace dftrace::py {

namespace {

struct TracedIterator {
    PyObject_HEAD PyObject* iterable;
    PyObject* source;  // iterator under way, or null
    Node* node;
    std::uint32_t wait_name;   // of the span around next(), 0 for none
    std::uint32_t block_name;  // of the span from one item to the next request, 0 for none
    std::uint64_t defined_in;  // session that knows the names
    std::uint64_t count;
    bool own_iterator;  // made by `iter()`: one walk through the iterable
    bool closed;
    SpanState block;
};

PyTypeObject iterator_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

void define_names(TracedIterator* self) {
    Thread* thread = recording_thread();
    if (!thread || thread->generation == self->defined_in) return;
    thread->session->define_names(std::max(self->wait_name, self->block_name));
    self->defined_in = thread->generation;
}

void end_block(TracedIterator* self, std::uint32_t error = 0) {
    if (self->block.generation)
        close_span(self->node, self->block_name, self->block, error, self->count, RecordFlag::has_count);
}

PyObject* iterator_next(PyObject* object) {
    TracedIterator* self = as<TracedIterator>(object);
    end_block(self);
    if (self->closed) return nullptr;
    if (!self->source && !(self->source = PyObject_GetIter(self->iterable))) return nullptr;
    // Held for the call: it may come back here, or another thread may be here meanwhile.
    const Ref source(Py_NewRef(self->source));
    const iternextfunc next = Py_TYPE(source.get())->tp_iternext;
    if (!self->node->enabled) {
        PyObject* item = next(source.get());
        if (item) ++self->count;
        return item;
    }
    define_names(self);
    SpanState wait;
    if (self->wait_name) open_span(self->node, self->wait_name, wait);
    PyObject* item = next(source.get());
    if (item) {
        ++self->count;
        if (wait.generation)
            close_span(self->node, self->wait_name, wait, 0, self->count, RecordFlag::has_count);
        if (self->block_name && !self->block.generation) open_span(self->node, self->block_name, self->block);
        return item;
    }
    const bool failed = PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_StopIteration);
    if (wait.generation) {
        // The last request only learns that there is nothing more: no event, unless something was
        // recorded meanwhile, which needs its parent.
        if (failed)
            close_span(self->node, self->wait_name, wait, raised_error(), self->count + 1,
                       RecordFlag::has_count);
        else if (is_empty(wait))
            cancel_span(wait);
        else
            close_span(self->node, self->wait_name, wait);
    }
    return nullptr;
}

// Each `for` gets a walk of its own, so that a loader starts over every epoch, loops may nest, and a
// loop that is left lets go of its open block. Whoever called next() on this object goes on with it.
PyObject* iterator_iter(PyObject* object) {
    TracedIterator* self = as<TracedIterator>(object);
    const bool walks_once = PyIter_Check(self->iterable);
    if (self->own_iterator || self->source || self->closed || walks_once) return Py_NewRef(object);
    Ref source(PyObject_GetIter(self->iterable));
    if (!source) return nullptr;
    TracedIterator* walk = as<TracedIterator>(iterator_type.tp_alloc(&iterator_type, 0));
    if (!walk) return nullptr;
    walk->node = as<Node>(Py_NewRef(object_of(self->node)));
    walk->iterable = Py_NewRef(self->iterable);
    walk->source = source.release();
    walk->wait_name = self->wait_name;
    walk->block_name = self->block_name;
    walk->own_iterator = true;
    return object_of(walk);
}

Py_ssize_t iterator_length(PyObject* object) { return PyObject_Size(as<TracedIterator>(object)->iterable); }

// Without a length an iterable is true, as a generator is.
int iterator_bool(PyObject* object) {
    const int truth = PyObject_IsTrue(as<TracedIterator>(object)->iterable);
    if (truth < 0) PyErr_Clear();
    return truth != 0;
}

PyObject* iterator_length_hint(PyObject* object, PyObject*) {
    TracedIterator* self = as<TracedIterator>(object);
    const Py_ssize_t hint = PyObject_LengthHint(self->source ? self->source : self->iterable, 0);
    return hint < 0 ? nullptr : PyLong_FromSsize_t(hint);
}

PyObject* iterator_close(PyObject* object, PyObject*) {
    TracedIterator* self = as<TracedIterator>(object);
    end_block(self);
    self->closed = true;
    if (self->source && PyObject_HasAttrString(self->source, "close")) {
        Ref closed(PyObject_CallMethod(self->source, "close", nullptr));
        if (!closed) return nullptr;
    }
    Py_RETURN_NONE;
}

PyObject* iterator_new(PyTypeObject* type, PyObject* positional, PyObject* keywords) {
    static const char* names[] = {"node", "iterable", "wait_name", "block_name", nullptr};
    PyObject *node = nullptr, *iterable = nullptr;
    const char *wait = nullptr, *block = nullptr;
    if (!PyArg_ParseTupleAndKeywords(positional, keywords, "O!Ozz", const_cast<char**>(names), &node_type,
                                     &node, &iterable, &wait, &block))
        return nullptr;
    if (!Py_TYPE(iterable)->tp_iter && !PySequence_Check(iterable))
        return PyErr_Format(PyExc_TypeError, "'%s' object is not iterable", Py_TYPE(iterable)->tp_name);
    const char* category = PyUnicode_AsUTF8(as<Node>(node)->category);
    if (!category) return nullptr;
    TracedIterator* self = as<TracedIterator>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->node = as<Node>(Py_NewRef(node));
    self->iterable = Py_NewRef(iterable);
    self->wait_name = wait ? intern_name(category, wait) : 0;
    self->block_name = block ? intern_name(category, block) : 0;
    return object_of(self);
}

using Owned =
    Owning<TracedIterator, &TracedIterator::source, &TracedIterator::iterable, &TracedIterator::node>;

int iterator_clear(PyObject* object) {
    Py_CLEAR(as<TracedIterator>(object)->source);
    return 0;
}

void iterator_dealloc(PyObject* object) {
    PyObject_GC_UnTrack(object);
    end_block(as<TracedIterator>(object));  // the loop was left by break, return or an exception
    Owned::dealloc(object);
}

PyObject* iterator_getattr(PyObject* object, PyObject* name) {
    if (PyObject* found = PyObject_GenericGetAttr(object, name)) return found;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
    // What the wrapped loader has besides (`dataset`, `sampler`, `set_epoch`) stays within reach.
    PyErr_Clear();
    return PyObject_GetAttr(as<TracedIterator>(object)->iterable, name);
}

int iterator_setattr(PyObject* object, PyObject* name, PyObject* value) {
    const int own = PyDict_Contains(iterator_type.tp_dict, name);
    if (own < 0) return -1;
    if (PyObject_GenericSetAttr(object, name, value) == 0) return 0;
    if (own || !PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    // Who finds an attribute of the loader here may set it, too, as Lightning does.
    PyErr_Clear();
    PyObject* iterable = as<TracedIterator>(object)->iterable;
    return value ? PyObject_SetAttr(iterable, name, value) : PyObject_DelAttr(iterable, name);
}

PyMethodDef methods[] = {
    {"close", iterator_close, METH_NOARGS, "End the open block and close the source if it can be."},
    {"__length_hint__", iterator_length_hint, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PySequenceMethods sequence = {};
PyNumberMethods number = {};

}  // namespace

int add_iterator_type(PyObject* module) {
    sequence.sq_length = iterator_length;
    describe<TracedIterator>(iterator_type, "dftrace_ai._native.TracedIterator", nullptr, Py_TPFLAGS_HAVE_GC);
    iterator_type.tp_new = iterator_new;
    iterator_type.tp_dealloc = iterator_dealloc;
    iterator_type.tp_traverse = Owned::traverse;
    iterator_type.tp_clear = iterator_clear;
    iterator_type.tp_iter = iterator_iter;
    iterator_type.tp_iternext = iterator_next;
    iterator_type.tp_getattro = iterator_getattr;
    iterator_type.tp_setattro = iterator_setattr;
    iterator_type.tp_as_sequence = &sequence;
    number.nb_bool = iterator_bool;
    iterator_type.tp_as_number = &number;
    iterator_type.tp_methods = methods;
    return add_type(module, iterator_type);
}

}  // namespace dftrace::py
