// What a thread that begins to record is called.
#pragma once

#include <string>

namespace dftrace::py {

// The name that Python has for the calling thread, or else the system's.
std::string thread_name();

}  // namespace dftrace::py
