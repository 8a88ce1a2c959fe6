// Opening and closing spans from Python, and the objects that stand for an open one.
#pragma once

#include <cstdint>
#include <utility>

#include "annotation/node.hpp"
#include "python.hpp"

namespace dftrace::py {

struct TaskSpan;  // an open span of an asyncio task

// An open span, held by whoever ends it.
struct SpanState {
    std::uint64_t generation = 0;  // 0: nothing is open
    std::uint64_t id = 0;
    std::uint64_t start = 0;
    std::uint64_t parent = 0;
    std::uint16_t level = 0;
    TaskSpan* task = nullptr;  // owned
};

// Opens a span named `name` with the node's arguments. Leaves `state` empty when nothing records.
void open_in_context(Node* node, std::uint32_t name, SpanState& state);
void open_nowhere(SpanState& state) noexcept;
void close_rare(Node* node, std::uint32_t name, SpanState& state, Thread* thread, std::uint32_t error,
                std::uint64_t count, std::uint8_t flags);
bool in_task(PyObject* context);
// Takes a span that gets no record off the open ones, where its session is there still.
inline void leave_unrecorded(std::uint64_t generation, Thread* thread, std::uint64_t id) noexcept {
    if (*detail::live_generation == generation) thread->remove(id);
}

inline void open_on_thread(Node* node, std::uint32_t name, SpanState& state, Thread* thread) noexcept {
    const OpenSpan* span = thread->push(name, node->args_id);
    if (!span) [[unlikely]] {  // deep down, and no memory
        state.generation = 0;
        return;
    }
    state.generation = thread->generation;
    state.id = span->id;
    state.start = span->start;
    state.parent = span->parent;
    state.level = span->level;
    state.task = nullptr;
}

inline void open_span(Node* node, std::uint32_t name, SpanState& state) {
    const detail::ThisThread& mine = detail::this_thread;
    Thread* thread = recording_thread(mine);
    // Tasks of an event loop interleave on a thread: each has its own context, and only then does
    // the context differ from the one that was last seen outside of a task.
    if (!thread) [[unlikely]]
        open_nowhere(state);
    else if (this_thread_state()->context != mine.plain_context) [[unlikely]]
        open_in_context(node, name, state);
    else if (prepare(node, thread, true)) [[likely]]
        open_on_thread(node, name, state, thread);
    else
        state.generation = 0;
}

// Ends the span and records it. `error` is the number of an exception type's name, 0 for none.
inline void close_span(Node* node, std::uint32_t name, SpanState& state, std::uint32_t error = 0,
                       std::uint64_t count = 0, std::uint8_t flags = 0) {
    Thread* thread = recording_thread();
    if (thread && thread->generation == state.generation && !state.task && thread->depth &&
        thread->top()->id == state.id) [[likely]] {
        const std::uint64_t generation = std::exchange(state.generation, 0);
        if (!prepare(node, thread)) [[unlikely]] {
            leave_unrecorded(generation, thread, state.id);
            return;
        }
        // Stored first and taken off the stack then: killed between the two it has ended, and killed
        // before it is still open.
        Record* record = thread->reserve();
        if (!record) [[unlikely]] {
            thread->pop(state.id);
            return;
        }
        record->start = state.start;
        record->end = thread->tick();
        record->id = state.id;
        record->parent = state.parent;
        record->node = name;
        record->args = node->args_id;
        record->error = error;
        record->lane = 0;
        record->value = count;
        record->level = state.level;
        record->kind = Kind::span;
        record->flags = flags;
        record->reserved = 0;
        thread->commit();
        thread->pop(state.id);
        return;
    }
    close_rare(node, name, state, thread, error, count, flags);
}

// The span in which the thread, or the task that runs on it, is now; all zero for none.
struct EnclosingSpan {
    std::uint64_t id = 0;
    std::uint16_t level = 0;
    std::uint32_t lane = 0;
};
EnclosingSpan enclosing_span(Thread* thread);

// The context of the task that runs now, or null outside of tasks; and of the task that a span
// was opened in. Identities, not to be followed.
const void* task_context();
const void* task_context_of(const SpanState& state) noexcept;

// Takes an open span back without a trace of it.
void cancel_span(SpanState& state);
// Whether nothing was recorded inside of the open span, and nothing is open there.
bool is_empty(const SpanState& state) noexcept;

// Number of the type name of the exception that is being raised; 0 for none.
std::uint32_t raised_error();
std::uint32_t error_of(PyObject* exception_type);

// Opens a span of `shown`, for who has no object that ends it; and ends the latest one that `node` opened in
// this thread, of the running task if it has one. False if there is none.
void start_span(Node* node, Node* shown);
bool stop_span(Node* node, std::uint32_t error = 0);

// Number of the name of a track.
std::uint32_t number_of_track(PyObject* track);

// Methods of Node, and `__enter__`, `__exit__` for its type.
PyObject* node_begin(PyObject* self, PyObject*);
PyObject* node_start(PyObject* self, PyObject*);
PyObject* node_stop(PyObject* self, PyObject*);
int add_with_protocol(PyTypeObject* type);

}  // namespace dftrace::py
