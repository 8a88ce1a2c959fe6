// Spans that one thread begins and another ends: while one is open it stands among the open spans of a
// track that is no thread's, in the spool, and its record is stored there.
#include <new>
#include <optional>
#include <string>

#include "annotation/span.hpp"
#include "arguments/json_args.hpp"
#include "dftrace/text/names.hpp"
#include "parts.hpp"

namespace dftrace::py {

namespace {

// The GIL is held from the look at the run to the last store; nothing in between runs Python code.
struct ApartSpan {
    PyObject_HEAD std::uint64_t generation;  // 0: nothing is open
    Thread* track;                           // of the session of that generation
    PyObject* args;                          // dict of the arguments it began with, or null
    OpenSpan open;
    int slot;
};

PyTypeObject apart_span_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

bool is_open(const ApartSpan* span) noexcept {
    return span->generation && span->generation == *detail::live_generation;
}

// Makes the span's last arguments those it began with and, in their place or beside them, others.
std::uint64_t add_arguments(std::string& members, PyObject* before, PyObject* more) {
    if (!before) return append_members(members, more);
    Ref all(PyDict_Copy(before));
    if (!all || PyDict_Update(all.get(), more) < 0) {
        forget_error();
        return 1 + append_members(members, before);
    }
    return append_members(members, all.get());
}

// Ends the span where it is open still. `more`: a dict of what has become known, or null.
void end(ApartSpan* span, PyObject* more, std::uint32_t error) {
    if (!is_open(span)) {  // ended; or begun in a run that is over, or in the parent before a fork
        span->generation = 0;
        Py_CLEAR(span->args);
        return;
    }
    std::string members;
    const bool again = more && PyDict_GET_SIZE(more);
    const std::uint64_t sanitised = again ? add_arguments(members, span->args, more) : 0;
    Ref before(std::exchange(span->args, nullptr));
    // Values are converted by the user's code, which may have ended the span, or the run.
    if (!is_open(span)) return;
    span->generation = 0;
    Thread* track = span->track;
    Session* session = track->session;
    const std::uint32_t first = span->open.args;
    const std::optional<std::uint32_t> last = again ? session->put_arguments(members) : first;
    if (!last) session->count_dropped();
    if (Record* record = last ? track->reserve() : nullptr) {
        *record = Record{};
        record->start = span->open.start;
        record->end = track->tick();
        record->id = span->open.id;
        record->parent = span->open.parent;
        record->node = span->open.node;
        record->args = *last;
        record->error = error;
        record->level = span->open.level;
        record->kind = Kind::span;
        record->flags = RecordFlag::overlaps;
        track->commit();
        session->count_sanitised(sanitised);
    }
    // Killed before, it stands in both places, and a reader takes it for ended.
    track->give_task_slot(span->slot);
    session->release_arguments(first);
    if (last && *last != first) session->release_arguments(*last);
}

// The session in which the calling thread records, nullptr where there is none.
Session* session_here() {
    if (*detail::live_generation)
        if (Session* session = current_session()) return session;
    const Thread* thread = recording_thread();  // the first event of the process
    return thread ? thread->session : nullptr;
}

EnclosingSpan span_around() {
    const detail::ThisThread& mine = detail::this_thread;
    // A thread that has recorded nothing in this run has no span open, and need not be known to it.
    const bool known = mine.generation == *detail::live_generation && mine.thread;
    return known ? enclosing_span(mine.thread) : EnclosingSpan{};
}

void begin(ApartSpan* span, PyObject* category, PyObject* name, PyObject* arguments, PyObject* track_name) {
    const ErrorAside aside;
    const std::uint32_t number = intern_name(text_of(category), text_of(name));
    const std::uint32_t track_number = intern_name("track", text_of(track_name));
    std::string members;
    const std::uint64_t sanitised = append_members(members, arguments);
    if (!members.empty()) span->args = Py_NewRef(arguments);
    task_context();  // may run Python code, as values do, and with it whatever ends a run
    Session* session = session_here();
    const EnclosingSpan around = session ? span_around() : EnclosingSpan{};
    // Looked up again: to find the span around makes objects.
    if (!session || !*detail::live_generation || current_session() != session) {
        count_event_without_thread();
        return;
    }
    Thread* track = session->track_apart(track_number);
    if (!track) {
        count_event_without_thread();
        return;
    }
    session->define_names(number);
    const std::optional<std::uint32_t> args = session->put_arguments(members);
    if (!args) {
        session->count_dropped();
        return;
    }
    session->count_sanitised(sanitised);
    span->open = {
        track->new_id(), 0, around.id, number, *args, 0, static_cast<std::uint16_t>(around.level + 1), 1};
    span->open.start = track->tick();
    span->track = track;
    span->slot = track->take_task_slot(span->open);
    span->generation = track->generation;
}

PyObject* span_end(PyObject* self, PyObject* arguments) {
    PyObject *more = Py_None, *exception_type = Py_None;
    if (!PyArg_ParseTuple(arguments, "|OO", &more, &exception_type)) return nullptr;
    if (more != Py_None && !PyDict_Check(more))
        return PyErr_Format(PyExc_TypeError, "end() takes a dict of arguments, not %s",
                            Py_TYPE(more)->tp_name);
    ApartSpan* span = as<ApartSpan>(self);
    try {
        const std::uint32_t error = is_open(span) ? error_of(exception_type) : 0;
        end(span, more == Py_None ? nullptr : more, error);
    } catch (const std::bad_alloc&) {
        span->generation = 0;  // told as unfinished
    }
    Py_RETURN_NONE;
}

PyObject* span_is_open(PyObject* self, void*) { return PyBool_FromLong(is_open(as<ApartSpan>(self))); }

PyObject* span_moment(PyObject* self, void*) {
    const ApartSpan* const span = as<ApartSpan>(self);
    if (!is_open(span)) Py_RETURN_NONE;
    return Py_BuildValue(
        "KKKK", static_cast<unsigned long long>(epoch_ns()), static_cast<unsigned long long>(span->open.id),
        static_cast<unsigned long long>(span->open.level), static_cast<unsigned long long>(span->generation));
}

// Nobody can end it any more.
int span_clear(PyObject* self) {
    ApartSpan* span = as<ApartSpan>(self);
    if (is_open(span)) {
        const ErrorAside aside;
        try {
            const Ref said(Py_BuildValue("{s:O}", "dropped", Py_True));
            if (!said) PyErr_Clear();
            end(span, said.get(), 0);
        } catch (const std::bad_alloc&) {
            span->generation = 0;  // told as unfinished
        }
    }
    Py_CLEAR(span->args);
    return 0;
}

void span_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    span_clear(self);
    PyObject_GC_Del(self);
}

PyMethodDef span_methods[] = {
    {"end", span_end, METH_VARARGS,
     "end(args=None, exc_type=None): end the span, on any thread; a second end is nothing."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef span_members[] = {
    {"is_open", span_is_open, nullptr, "Whether it is recorded and has not ended.", nullptr},
    {"moment", span_moment, nullptr, "The present, in this span; None where it is not open.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

PyObject* begin_apart(PyObject*, PyObject* arguments) {
    PyObject *category = nullptr, *name = nullptr, *args = nullptr, *track = nullptr;
    if (!PyArg_ParseTuple(arguments, "OOO!U", &category, &name, &PyDict_Type, &args, &track)) return nullptr;
    ApartSpan* span = PyObject_GC_New(ApartSpan, &apart_span_type);
    if (!span) return nullptr;
    span->generation = 0;
    span->args = nullptr;
    span->slot = -1;
    PyObject_GC_Track(object_of(span));
    Ref held(object_of(span));
    if (!run_is_on()) return held.release();
    try {
        begin(span, category, name, args, track);
    } catch (const std::bad_alloc&) {
        count_event_without_thread();
    }
    return held.release();
}

int add_apart_span_type(PyObject* module) {
    describe<ApartSpan>(apart_span_type, "dftrace_ai._native.ApartSpan", "A span that any thread may end.",
                        Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION);
    apart_span_type.tp_dealloc = span_dealloc;
    apart_span_type.tp_traverse = Owning<ApartSpan, &ApartSpan::args>::traverse;
    apart_span_type.tp_clear = span_clear;
    apart_span_type.tp_methods = span_methods;
    apart_span_type.tp_getset = span_members;
    return add_type(module, apart_span_type);
}

}  // namespace dftrace::py
