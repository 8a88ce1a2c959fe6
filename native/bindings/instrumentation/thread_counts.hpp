// Small numbers of each thread, by which instrumentation knows what it is inside of.
#pragma once

#include "python.hpp"

namespace dftrace::py {

// What a thread is inside of, or how deep.
enum class Inside { forward, backward, optimizer, waiting, hooked, computing };

// The calling thread's number, 0 in one that begins.
long count_of(Inside what) noexcept;
void set_count(Inside what, long count) noexcept;

int add_thread_counts_type(PyObject* module);

}  // namespace dftrace::py
