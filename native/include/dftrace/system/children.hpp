// What the processes that this one has started use of the processors.
#pragma once

#include <optional>

namespace dftrace {

// Processor seconds of all below this process, those that have ended and were waited for, too; grows, but for
// a child that ends without being waited for by who started it. None where the kernel does not tell
// (CONFIG_PROC_CHILDREN), and where a process ends meanwhile: it would be counted twice, or not at all. May
// throw std::bad_alloc.
std::optional<double> children_seconds();

}  // namespace dftrace
