/* Fills the layout of the running interpreter; what it is, where that cannot be done, else NULL. */
#pragma once

#include "dftrace/stacks/interpreter_layout.h"

#ifdef __cplusplus
extern "C" const char* dftrace_interpreter_layout(dftrace::InterpreterLayout* into);
#else
const char* dftrace_interpreter_layout(InterpreterLayout* into);
#endif
