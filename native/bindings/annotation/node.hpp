// The native half of a profiler node: what a span needs to know of it.
#pragma once

#include <cstdint>

#include "arguments/numbers.hpp"
#include "dftrace/recording/runtime.hpp"
#include "python.hpp"

namespace dftrace::py {

struct NumberSet;

struct Node {
    PyObject_HEAD vectorcallfunc vectorcall;
    std::uint32_t name;              // number in the table of names
    bool enabled;                    // worked out when it is switched, not when a span runs
    bool follows;                    // carries the numbers that are told of a training, over its own
    bool takes_told;                 // ... or beside its own, while such numbers are told
    bool has_own;                    // never does the latter
    std::uint32_t args_id;           // snapshot of the arguments in the session below, 0 for none
    std::uint64_t args_generation;   // session that knows the name and the snapshot; 0: not up to date
    std::uint64_t told_generation;   // the same with numbers that are told of a training
    std::uint64_t told_version;      // of these numbers
    std::uint64_t plain_generation;  // session that knows the name of one that follows and carries nothing
    std::uint64_t name_generation;   // session that knows the name
    PyObject* arguments;             // Arguments, shared with other nodes, or null
    NumberSet* numbers;              // over the arguments, shared with other nodes, or null
    std::uint64_t own_version;       // of those that were told last before it got what it carries
    NumberSet* numbers_of_one;       // those of that snapshot, or null
    PyObject* arguments_of_one;      // those of the snapshot, which changed while it was taken; or null
    PyObject* children;              // list of Node, or null
    PyObject* category;
    PyObject* label;
    PyObject* weak_references;
};

extern PyTypeObject node_type;

// Makes name and arguments known to the session of `thread`. False where there is no room for the arguments,
// and the event counted as dropped; or if that session ended meanwhile. A span that begins needs no room yet:
// it opens all the same, for whoever ends the innermost must not end another.
[[nodiscard]] bool prepare_told(Node* node, Thread* thread, bool to_open);
[[nodiscard]] inline bool prepare(Node* node, Thread* thread, bool to_open = false) {
    return node->args_generation == thread->generation || prepare_told(node, thread, to_open);
}

// Merges numbers into the arguments of the node and of all below it; false with an error set.
[[nodiscard]] bool merge_numbers(Node* node, const Numbers& numbers);

// Numbers that are told of a training. Spans look for them, so that a number which changes is put down once,
// and not by each node: a step tells its own behind work that has taken all nodes out of the caches.
//
// Nodes that follow have what was told over their own, until they are given other arguments: all below
// `node`, and what comes below it later.
void follow_told(Node* node);
// To all who follow; what was told before by other names stays.
void tell_followers(const Numbers& numbers) noexcept;
void forget_told() noexcept;
// To this thread. `everywhere`: and to those that were told nothing. While they are `told_by_default`, nodes
// of the user's have these beside their own.
void put_in_thread(const Numbers& numbers, bool everywhere) noexcept;
// Has none by that name.
void drop_in_thread(std::uint8_t key) noexcept;
void tell_by_default(Node* root, bool on);
// Who follows has what is told to the thread that records. Switched off, that is forgotten in all threads.
void tell_by_thread(bool on) noexcept;

// `node(step=3)`, `node.start(step=3)` and `node.update(step=3)`, done without Python where all that is given
// are whole numbers: a node of `type` as `from` is now, with these; null, with no error set or a MemoryError,
// where the Python side has to make it.
Node* made_by_call(PyTypeObject* type, Node* from, const Numbers& numbers);
// What a node of that type is called by.
vectorcallfunc call_of(PyTypeObject* type) noexcept;

}  // namespace dftrace::py
