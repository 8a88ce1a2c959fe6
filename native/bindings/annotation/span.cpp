// The rare ways of a span: errors, tasks, spans that end out of order or on another thread.
#include "annotation/span.hpp"

#include <mutex>
#include <string>
#include <vector>

#include "dftrace/text/names.hpp"

namespace dftrace::py {

struct TaskSpan {
    PyObject_HEAD std::uint64_t generation;
    std::uint64_t id;
    std::uint16_t level;
    std::uint32_t lane;
    int slot;
    bool open;
    bool owns_lane;
    std::uint32_t inner;  // events that name it as their parent
    const void* context;  // identity only
    TaskSpan* outer;      // owned
};

namespace {

// Holds the innermost open TaskSpan of a context; copied by asyncio into each new task.
PyObject* current_task_span = nullptr;

void task_span_dealloc(PyObject* self) {
    // A chain of closed spans may be long: unlink it without recursion.
    TaskSpan* span = as<TaskSpan>(self);
    TaskSpan* outer = std::exchange(span->outer, nullptr);
    PyObject_Free(self);
    while (outer && Py_REFCNT(object_of(outer)) == 1) {
        TaskSpan* next = std::exchange(outer->outer, nullptr);
        Py_DECREF(object_of(outer));
        outer = next;
    }
    Py_XDECREF(object_of(outer));
}

PyTypeObject task_span_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

TaskSpan* innermost_task_span(std::uint64_t generation) {
    PyObject* value = nullptr;
    if (PyContextVar_Get(current_task_span, Py_None, &value) < 0) {
        PyErr_Clear();
        return nullptr;
    }
    Ref keep(value);
    if (!Py_IS_TYPE(value, &task_span_type)) return nullptr;
    // Borrowed: the context holds it for as long as the caller looks.
    TaskSpan* span = as<TaskSpan>(value);
    while (span && !span->open) span = span->outer;
    return span && span->generation == generation ? span : nullptr;
}

void set_innermost(PyObject* value) {
    Ref token(PyContextVar_Set(current_task_span, value));
    if (!token) PyErr_Clear();
}

// Contexts whose threads have ended, where no reference can be given up; done by the next to look.
struct Graveyard {
    std::mutex mutex;
    std::vector<PyObject*> contexts;
};
Graveyard& graveyard() {
    static Graveyard* const yard = new Graveyard;  // threads may end after the process's statics
    return *yard;
}

void bury(PyObject* context) {
    if (!context) return;
    Graveyard& yard = graveyard();
    std::lock_guard lock(yard.mutex);
    yard.contexts.push_back(context);
}

// The contexts that a thread was last seen in. Owned, so that their addresses cannot come to mean
// others. Touched only when the context has changed: the hot path compares a copy of `plain`.
struct SeenContexts {
    PyObject* plain = nullptr;
    PyObject* task = nullptr;
    ~SeenContexts() {
        bury(plain);
        bury(task);
    }
};
thread_local SeenContexts seen_contexts;

bool asyncio_runs_a_task() {
    ErrorAside aside;
    PyObject* asyncio = PyDict_GetItemString(PyImport_GetModuleDict(), "asyncio");
    if (!asyncio) return false;
    Ref task(PyObject_CallMethod(asyncio, "current_task", nullptr));
    if (!task) PyErr_Clear();  // no running event loop
    return task && task.get() != Py_None;
}

}  // namespace

bool in_task(PyObject* context) {
    if (!context) {
        detail::this_thread.plain_context = nullptr;
        return false;
    }
    if (context == seen_contexts.task) return true;
    if (context == seen_contexts.plain) {
        detail::this_thread.plain_context = context;
        return false;
    }
    // The loop's own code may record, and so ask again: for the moment that is no task.
    static thread_local bool asking = false;
    if (asking) return false;
    Ref keep(Py_NewRef(context));
    asking = true;
    const bool task = asyncio_runs_a_task();
    asking = false;
    std::vector<PyObject*> released;
    {
        Graveyard& yard = graveyard();
        std::lock_guard lock(yard.mutex);
        released.swap(yard.contexts);
    }
    for (PyObject* dead : released) Py_DECREF(dead);
    PyObject*& seen = task ? seen_contexts.task : seen_contexts.plain;
    PyObject* before = std::exchange(seen, keep.release());
    if (!task) detail::this_thread.plain_context = context;
    Py_XDECREF(before);
    return task;
}

namespace {

void open_task_span(Node* node, std::uint32_t name, SpanState& state, Thread* thread) {
    ErrorAside aside;
    TaskSpan* span = PyObject_New(TaskSpan, &task_span_type);
    if (!span) {
        PyErr_Clear();
        state.generation = 0;
        return;
    }
    const void* context = this_thread_state()->context;
    TaskSpan* outer = innermost_task_span(thread->generation);
    const OpenSpan* around = outer ? nullptr : thread->top();
    span->generation = thread->generation;
    span->id = thread->new_id();
    span->open = true;
    span->inner = 0;
    if (outer) ++outer->inner;
    span->context = context;
    span->level = static_cast<std::uint16_t>(outer ? outer->level + 1 : around ? around->level + 1 : 1);
    // A task inherits the span it was made in as its parent, but not its track: they overlap.
    span->owns_lane = !outer || outer->context != context;
    span->lane = span->owns_lane ? thread->take_lane() : outer->lane;
    span->outer = outer;
    Py_XINCREF(object_of(outer));
    state.id = span->id;
    state.parent = outer ? outer->id : around ? around->id : 0;
    state.level = span->level;
    set_innermost(object_of(span));
    // It made objects, so the collector may have run, and with it whatever ends a run.
    if (*detail::live_generation != span->generation) {
        state.generation = 0;
        Py_DECREF(object_of(span));
        return;
    }
    state.generation = span->generation;
    state.task = span;
    state.start = thread->tick();
    span->slot = thread->take_task_slot(
        {state.id, state.start, state.parent, name, node->args_id, span->lane, state.level, 1});
}

}  // namespace

void open_nowhere(SpanState& state) noexcept {
    state.generation = 0;
    count_event_without_thread();
}

void open_in_context(Node* node, std::uint32_t name, SpanState& state) {
    state.generation = 0;
    const bool task = in_task(this_thread_state()->context);
    // Asking asyncio ran Python code, and with it perhaps another thread that ended the run.
    Thread* thread = recording_thread();
    if (!thread) count_event_without_thread();
    if (!thread || !prepare(node, thread, true)) return;
    if (task)
        open_task_span(node, name, state, thread);
    else
        open_on_thread(node, name, state, thread);
}

namespace {

// Ends the task's span and adds the flags that its record needs; false if the run ended meanwhile. Its
// slot among the open spans is the caller's to give back, once the record is stored.
bool leave_task(TaskSpan* span, Thread* thread, std::uint8_t& flags) {
    span->open = false;
    const TaskSpan* owner = span;
    while (owner && !owner->owns_lane) owner = owner->outer;
    if (!owner || (owner != span && !owner->open)) flags |= RecordFlag::overlaps;
    PyObject* value = nullptr;
    if (PyContextVar_Get(current_task_span, Py_None, &value) < 0) PyErr_Clear();
    Ref keep(value);
    if (value == object_of(span))
        set_innermost(span->outer ? object_of(span->outer) : Py_None);
    else
        flags |= RecordFlag::overlaps;
    // Making objects may run the collector, and with it whatever ends a run.
    if (*detail::live_generation != span->generation) return false;
    if (span->owns_lane) thread->give_lane(span->lane);
    return true;
}

// Takes a span off the open ones at the end of its scope, when its record is stored: killed between the
// two it has ended, and killed before it is still open.
struct OpenSpanGuard {
    Thread* thread;
    const TaskSpan* task;
    std::uint64_t id;
    bool innermost;

    ~OpenSpanGuard() {
        if (task) {
            thread->give_task_slot(task->slot);
            return;
        }
        thread->remove(id);
        if (!innermost) thread->session->remove_open_elsewhere(*thread, id);
    }
};

}  // namespace

void close_rare(Node* node, std::uint32_t name, SpanState& state, Thread* thread, std::uint32_t error,
                std::uint64_t count, std::uint8_t flags) {
    ErrorAside aside;
    TaskSpan* task = std::exchange(state.task, nullptr);
    Ref keep(object_of(task));
    // Begun before a fork or in a run that is over: the process or run that began it tells of it.
    const std::uint64_t generation = std::exchange(state.generation, 0);
    if (!thread || generation != thread->generation) return;
    std::uint32_t lane = 0;
    if (task) {
        if (!leave_task(task, thread, flags)) return;
        lane = task->lane;
    }
    const bool prepared = prepare(node, thread);
    if (!prepared && *detail::live_generation != generation) return;
    const bool innermost = thread->depth && thread->top()->id == state.id;
    if (!task && !innermost) flags |= RecordFlag::overlaps;
    const OpenSpanGuard leaves_open_spans{thread, task, state.id, innermost};
    Record* record = prepared ? thread->reserve() : nullptr;
    if (!record) return;
    *record = Record{};
    record->start = state.start;
    record->end = thread->tick();
    // Begun on another core's clock: a duration is never negative.
    if (record->end <= record->start) record->end = record->start + tick_source.min_step;
    record->id = state.id;
    record->parent = state.parent;
    record->node = name;
    record->args = node->args_id;
    record->error = error;
    record->lane = lane;
    record->value = count;
    record->level = state.level;
    record->kind = Kind::span;
    record->flags = flags;
    thread->commit();
}

void cancel_span(SpanState& state) {
    Thread* thread = recording_thread();
    const bool empty = is_empty(state);
    TaskSpan* task = std::exchange(state.task, nullptr);
    Ref keep(object_of(task));
    const std::uint64_t generation = std::exchange(state.generation, 0);
    if (thread && thread->generation == generation) {
        ErrorAside aside;
        std::uint8_t flags = 0;
        if (task && !leave_task(task, thread, flags)) return;
        const bool innermost = thread->depth && thread->top()->id == state.id;
        const OpenSpanGuard leaves_open_spans{thread, task, state.id, innermost};
        // As if it had not been: the span around it may be empty, too.
        if (empty && task && task->outer) --task->outer->inner;
        if (empty && !task) thread->next_id = state.id;
    }
}

bool is_empty(const SpanState& state) noexcept {
    if (state.task) return state.task->inner == 0;
    const Thread* thread = recording_thread();
    return thread && thread->generation == state.generation && thread->next_id == state.id + 1;
}

const void* task_context() {
    PyObject* context = this_thread_state()->context;
    return context != detail::this_thread.plain_context && in_task(context) ? context : nullptr;
}

const void* task_context_of(const SpanState& state) noexcept {
    return state.task ? state.task->context : nullptr;
}

EnclosingSpan enclosing_span(Thread* thread) {
    PyObject* context = this_thread_state()->context;
    if (context != detail::this_thread.plain_context && in_task(context)) {
        TaskSpan* span = innermost_task_span(thread->generation);
        if (span) ++span->inner;
        // The span that a task was made in is on another track than the task.
        if (span) return {span->id, span->level, span->context == context ? span->lane : 0};
    }
    const OpenSpan* span = thread->top();
    return span ? EnclosingSpan{span->id, span->level, 0} : EnclosingSpan{};
}

std::uint32_t error_of(PyObject* exception_type) {
    if (!exception_type || exception_type == Py_None || !PyType_Check(exception_type)) return 0;
    const char* full = reinterpret_cast<PyTypeObject*>(exception_type)->tp_name;
    const std::string_view name(full);
    const auto dot = name.rfind('.');
    const std::uint32_t number =
        intern_exception_type(dot == std::string_view::npos ? name : name.substr(dot + 1));
    if (Thread* thread = recording_thread()) thread->session->define_names(number);
    return number;
}

std::uint32_t raised_error() { return error_of(PyErr_Occurred()); }

int add_task_span_type() {
    describe<TaskSpan>(task_span_type, "dftrace_ai._native.TaskSpan", nullptr);
    task_span_type.tp_dealloc = task_span_dealloc;
    if (PyType_Ready(&task_span_type) < 0) return -1;
    current_task_span = PyContextVar_New("dftrace_span", nullptr);
    return current_task_span ? 0 : -1;
}

}  // namespace dftrace::py
