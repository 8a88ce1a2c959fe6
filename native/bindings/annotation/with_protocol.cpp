// `with node:` - the span is the object that the interpreter keeps to call at the end.
//
// A `with` statement looks both methods up on the type before it calls either. The lookup of
// `__exit__` is answered with a fresh Span, opened at that moment, so that the state of a span
// lives on the interpreter's own stack and not on the shared node: re-entrant, thread-safe, and
// cheaper than two bound methods.
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "annotation/span.hpp"
#include "parts.hpp"

namespace dftrace::py {

int add_task_span_type();

namespace {

struct Span {
    PyObject_HEAD vectorcallfunc vectorcall;
    Node* node;
    bool entered;  // by `__enter__` or `_begin`; else it was only looked up
    SpanState state;
};

PyTypeObject span_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject enter_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject exit_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject off_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

struct Callable {
    PyObject_HEAD vectorcallfunc vectorcall;
};

// What `__exit__` of a disabled node is: one object for all.
PyObject* off_span = nullptr;

// Spans to use again. Guarded by the GIL, which this module does not declare to do without.
constexpr int max_free = 64;
Span* free_spans[max_free];
int free_count = 0;

// What the two lookups of a `with` leave for the call of `__enter__` that follows them. The
// interpreter does not give up the GIL between the three, so one for all threads will do.
struct Lookup {
    PyObject* node;  // owned: `__enter__` was looked up on it
    PyObject* span;  // borrowed: `__exit__` was answered with it
};
Lookup lookup{nullptr, nullptr};

struct ManualSpan {
    Node* node;                // owned: what ends it
    Node* shown;               // owned: whose arguments it has
    std::uint64_t generation;  // of the run that it was started in
    SpanState state;           // empty where the thread had no place to record: its stop ends nothing else
};
// Opened by start(), ExitStack or a called `__enter__`. Freed with the thread, when no reference
// can be given up any more: what is still open then leaks its node, and is told as unfinished.
using ManualSpans = std::vector<ManualSpan>;
thread_local std::unique_ptr<ManualSpans> manual_spans;

PyObject* span_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject*);

Span* new_span(Node* node) noexcept {
    Span* span;
    if (free_count) {
        span = free_spans[--free_count];
#if defined(Py_REF_DEBUG) || defined(Py_GIL_DISABLED)
        _Py_NewReference(object_of(span));
#else
        Py_SET_REFCNT(object_of(span), 1);  // all that it does here, without the call
#endif
    } else {
        span = PyObject_New(Span, &span_type);
        if (!span) return nullptr;
        span->vectorcall = span_call;
    }
    Py_INCREF(object_of(node));
    span->node = node;
    span->entered = false;
    span->state.generation = 0;
    span->state.task = nullptr;
    return span;
}

// What a run that is over left open is not open in this one. Looked for once a run: a program may leave
// many open.
void sweep_manual_spans() {
    static thread_local std::uint64_t swept_generation = 0;
    const std::uint64_t now = *detail::live_generation;
    if (now == 0 || now == swept_generation) return;
    swept_generation = now;
    std::vector<Node*> stale;
    std::erase_if(*manual_spans, [&stale, now](const ManualSpan& span) {
        const bool gone = span.generation != now;
        if (gone) {
            stale.push_back(span.node);
            stale.push_back(span.shown);
            Py_XDECREF(object_of(span.state.task));
        }
        return gone;
    });
    for (Node* left : stale) Py_DECREF(object_of(left));
}

}  // namespace

void start_span(Node* node, Node* shown) {
    if (!shown->enabled) return;
    try {
        if (!manual_spans) manual_spans = std::make_unique<ManualSpans>();
        if (manual_spans->size() == manual_spans->capacity())
            manual_spans->reserve(2 * manual_spans->size() + 8);
    } catch (const std::bad_alloc&) {
        if (Session* session = current_session())
            session->header().dropped.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    SpanState state;
    open_span(shown, shown->name, state);
    const std::uint64_t generation = state.generation ? state.generation : *detail::live_generation;
    if (!generation) return;
    Py_INCREF(object_of(node));
    Py_INCREF(object_of(shown));
    manual_spans->push_back({node, shown, generation, state});
}

bool stop_span(Node* node, std::uint32_t error) {
    if (!manual_spans) return false;
    sweep_manual_spans();
    const void* here = task_context();
    std::size_t best = manual_spans->size();
    for (std::size_t i = manual_spans->size(); i-- > 0;) {
        const ManualSpan& candidate = (*manual_spans)[i];
        if (candidate.node != node) continue;
        const bool same_task = task_context_of(candidate.state) == here;
        if (same_task || best == manual_spans->size()) best = i;
        if (same_task) break;
    }
    if (best == manual_spans->size()) return false;
    ManualSpan found = (*manual_spans)[best];
    manual_spans->erase(manual_spans->begin() + static_cast<std::ptrdiff_t>(best));
    close_span(found.shown, found.shown->name, found.state, error);
    Py_DECREF(object_of(found.shown));
    Py_DECREF(object_of(found.node));
    return true;
}

namespace {

void span_dealloc(PyObject* self) {
    Span* span = as<Span>(self);
    if (lookup.span == self) lookup.span = nullptr;
    if (span->state.generation) {
        if (span->entered)
            close_span(span->node, span->node->name, span->state);
        else
            cancel_span(span->state);
    }
    Node* node = span->node;
    if (free_count < max_free)
        free_spans[free_count++] = span;
    else
        PyObject_Free(self);
    Py_DECREF(object_of(node));
}

PyObject* span_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject*) {
    Span* span = as<Span>(self);
    Node* node = span->node;
    const std::uint32_t error =
        PyVectorcall_NARGS(count) > 0 && arguments[0] != Py_None ? error_of(arguments[0]) : 0;
    if (span->entered) [[likely]] {
        if (span->state.generation) close_span(node, node->name, span->state, error);
    } else {
        // `node.__exit__(...)` called by hand: it ends what `node.__enter__()` opened.
        cancel_span(span->state);
        stop_span(node, error);
    }
    Py_RETURN_NONE;
}

PyObject* exit_lookup(PyObject* descriptor, PyObject* object, PyObject*) {
    if (!object) return Py_NewRef(descriptor);
    Node* node = as<Node>(object);
    if (!node->enabled) {
        // What was opened by hand while the node was on can still be ended by hand.
        if (manual_spans && !manual_spans->empty() && lookup.node != object)
            return PyMethod_New(descriptor, object);
        lookup.span = off_span;
        return Py_NewRef(off_span);
    }
    Span* span = new_span(node);
    if (!span) return nullptr;
    // Opening may run the user's code (an argument's __str__), with other `with` statements in it.
    PyObject* looked_up = std::exchange(lookup.node, nullptr);
    open_span(node, node->name, span->state);
    PyObject* left_over = std::exchange(lookup.node, looked_up);
    Py_XDECREF(left_over);
    lookup.span = object_of(span);
    return lookup.span;
}

// type(node).__exit__(node, type, value, traceback): what ExitStack calls.
PyObject* exit_call(PyObject*, PyObject* const* arguments, std::size_t count, PyObject*) {
    const Py_ssize_t n = PyVectorcall_NARGS(count);
    if (n < 1 || !PyObject_TypeCheck(arguments[0], &node_type))
        return PyErr_Format(PyExc_TypeError, "__exit__ is called with a node");
    stop_span(as<Node>(arguments[0]), n > 1 ? error_of(arguments[1]) : 0);
    Py_RETURN_NONE;
}

PyObject* enter_lookup(PyObject* descriptor, PyObject* object, PyObject*) {
    if (!object) return Py_NewRef(descriptor);
    PyObject* before = std::exchange(lookup.node, Py_NewRef(object));
    Py_XDECREF(before);
#if PY_VERSION_HEX < 0x030E0000
    // Up to 3.13 a `with` looks `__enter__` up first: what is there is of an older lookup.
    lookup.span = nullptr;
#endif
    return Py_NewRef(descriptor);
}

PyObject* enter_call(PyObject*, PyObject* const* arguments, std::size_t count, PyObject*) {
    if (PyVectorcall_NARGS(count) > 0) {
        // type(node).__enter__(node): what ExitStack calls.
        if (!PyObject_TypeCheck(arguments[0], &node_type))
            return PyErr_Format(PyExc_TypeError, "__enter__ is called with a node");
        start_span(as<Node>(arguments[0]), as<Node>(arguments[0]));
        return Py_NewRef(arguments[0]);
    }
    PyObject* node = std::exchange(lookup.node, nullptr);
    PyObject* span = std::exchange(lookup.span, nullptr);
    if (!node) return PyErr_Format(PyExc_TypeError, "__enter__ is called with a node");
    if (span && span != off_span && reinterpret_cast<PyObject*>(as<Span>(span)->node) == node) [[likely]]
        as<Span>(span)->entered = true;
    else if (!span)
        start_span(as<Node>(node), as<Node>(node));
    return node;
}

PyObject* off_call(PyObject*, PyObject* const*, std::size_t, PyObject*) { Py_RETURN_NONE; }

PyObject* span_end(PyObject* self, PyObject* arguments) {
    PyObject* exception_type = Py_None;
    unsigned long long count = 0;
    if (!PyArg_ParseTuple(arguments, "|OK", &exception_type, &count)) return nullptr;
    Span* span = as<Span>(self);
    if (span->state.generation)
        close_span(span->node, span->node->name, span->state, error_of(exception_type), count,
                   count ? RecordFlag::has_count : 0);
    Py_RETURN_NONE;
}

PyObject* span_cancel(PyObject* self, PyObject*) {
    cancel_span(as<Span>(self)->state);
    Py_RETURN_NONE;
}

PyObject* span_end_unless_empty(PyObject* self, PyObject*) {
    Span* span = as<Span>(self);
    if (span->state.generation && !is_empty(span->state))
        close_span(span->node, span->node->name, span->state);
    else
        cancel_span(span->state);
    Py_RETURN_NONE;
}

PyMethodDef span_methods[] = {
    {"end", span_end, METH_VARARGS,
     "end(exc_type=None, count=0): end the span; a count is that of an iterator's item."},
    {"end_unless_empty", span_end_unless_empty, METH_NOARGS,
     "End the span, or take it back if nothing was recorded inside: the last request for an item."},
    {"cancel", span_cancel, METH_NOARGS, "Take the span back: nothing is recorded."},
    {nullptr, nullptr, 0, nullptr}};

int ready_callable(PyTypeObject& type, const char* name, descrgetfunc lookup_function) {
    describe<Callable>(type, name, nullptr);
    type.tp_descr_get = lookup_function;
    return PyType_Ready(&type);
}

PyObject* new_callable(PyTypeObject& type, vectorcallfunc call) {
    Callable* object = PyObject_New(Callable, &type);
    if (object) object->vectorcall = call;
    return object_of(object);
}

}  // namespace

PyObject* node_begin(PyObject* self, PyObject*) {
    Node* node = as<Node>(self);
    if (!node->enabled) Py_RETURN_NONE;
    Span* span = new_span(node);
    if (!span) return nullptr;
    span->entered = true;
    open_span(node, node->name, span->state);
    return object_of(span);
}

PyObject* node_start(PyObject* self, PyObject* arguments) {
    PyObject* shown = self;
    if (!PyArg_ParseTuple(arguments, "|O!", &node_type, &shown)) return nullptr;
    start_span(as<Node>(self), as<Node>(shown));
    Py_RETURN_NONE;
}

PyObject* node_stop(PyObject* self, PyObject*) { return PyBool_FromLong(stop_span(as<Node>(self))); }

int add_with_protocol(PyTypeObject* type) {
    if (ready_callable(enter_type, "dftrace_ai._native.enter", enter_lookup) < 0 ||
        ready_callable(exit_type, "dftrace_ai._native.exit", exit_lookup) < 0 ||
        ready_callable(off_type, "dftrace_ai._native.off", nullptr) < 0)
        return -1;
    Ref enter(new_callable(enter_type, enter_call));
    Ref exit(new_callable(exit_type, exit_call));
    off_span = new_callable(off_type, off_call);
    if (!enter || !exit || !off_span) return -1;
    if (PyDict_SetItemString(type->tp_dict, "__enter__", enter.get()) < 0 ||
        PyDict_SetItemString(type->tp_dict, "__exit__", exit.get()) < 0)
        return -1;
    PyType_Modified(type);
    return 0;
}

int add_span_types(PyObject* module) {
    if (add_task_span_type() < 0) return -1;
    describe<Span>(span_type, "dftrace_ai._native.Span", "An open span; calling it ends it.");
    span_type.tp_dealloc = span_dealloc;
    span_type.tp_methods = span_methods;
    return add_type(module, span_type);
}

}  // namespace dftrace::py
