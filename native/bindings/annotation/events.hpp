// Events that are not spans: instants, counters, flows, metadata, spans with given times.
#pragma once

#include "python.hpp"

namespace dftrace::py {

extern PyMethodDef event_functions[];

}  // namespace dftrace::py
