// Threads that stay, for work on large tensors.
//
// A pool serves one caller at a time; whoever finds it busy does the work alone. The caller works
// too, so that nothing is lost where threads cannot be started, or do not exist any more: a forked
// child makes new ones. The threads are never joined. They hold no lock while they rest, and the
// pool is never destroyed, so that the process may end at any moment.
#pragma once

#include <cstddef>

namespace dftrace::tensor {

// Calls `task(context, i)` for each i below `count`, in any order, on at most `threads` threads.
void for_each_index(std::size_t count, unsigned threads, void (*task)(void* context, std::size_t index),
                    void* context);

// As above, for a function object; it must not throw.
template <class Task>
void for_each_index(std::size_t count, unsigned threads, Task& task) {
    for_each_index(
        count, threads, [](void* context, std::size_t index) { (*static_cast<Task*>(context))(index); },
        &task);
}

// How many threads the process's pool has now.
unsigned pool_threads() noexcept;

}  // namespace dftrace::tensor
