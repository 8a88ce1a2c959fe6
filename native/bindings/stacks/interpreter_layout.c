/* The layout of the running interpreter: by its headers, and from 3.13 on by what it tells of itself. */
#define Py_BUILD_CORE 1
#include <Python.h>

#include <string.h>

#include "dftrace/stacks/interpreter_layout.h"
#include "stacks/interpreter_layout.h"

#if PY_VERSION_HEX >= 0x030d0000
#include <internal/pycore_runtime.h>
#elif PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#endif

#if PY_VERSION_HEX >= 0x030b0000

/* As much of a thread's state as is copied: what is asked for stands before. */
#define MOST_OF_A_STATE ((size_t)1024)

static unsigned kind_shift(void) {
    /* Bits are laid out by the compiler, and other ones stand below from 3.12 on. */
    union {
        PyASCIIObject text;
        uint32_t words[sizeof(PyASCIIObject) / sizeof(uint32_t)];
    } probe;
    memset(&probe, 0, sizeof probe);
    probe.text.state.kind = 1;
    return (unsigned)__builtin_ctz(probe.words[offsetof(PyASCIIObject, state) / sizeof(uint32_t)]);
}

const char* dftrace_interpreter_layout(InterpreterLayout* into) {
    memset(into, 0, sizeof *into);
    into->interpreter = (uint64_t)(uintptr_t)PyInterpreterState_Main();
    into->code_type = (uint64_t)(uintptr_t)&PyCode_Type;
    into->text_type = (uint64_t)(uintptr_t)&PyUnicode_Type;
    into->text.hash = offsetof(PyASCIIObject, hash);
    into->text.kind_shift = kind_shift();
    into->text.other_text = sizeof(PyCompactUnicodeObject);
#ifdef Py_GIL_DISABLED
    return "free-threaded";
#elif PY_VERSION_HEX >= 0x030d0000
    const struct _Py_DebugOffsets* told = &_PyRuntime.debug_offsets;
    if (memcmp(told->cookie, "xdebugpy", sizeof told->cookie))
        return "an interpreter that tells nothing of itself";
    if (told->version != PY_VERSION_HEX) return "another version than it was built for";
    if (told->free_threaded) return "free-threaded";
    into->threads = told->interpreter_state.threads_head;
    into->thread.size = told->thread_state.size < MOST_OF_A_STATE ? told->thread_state.size : MOST_OF_A_STATE;
    into->thread.next = told->thread_state.next;
    into->thread.interpreter = told->thread_state.interp;
    into->thread.native_id = told->thread_state.native_thread_id;
    into->thread.chunk = told->thread_state.datastack_chunk;
    into->thread.frame = told->thread_state.current_frame;
    into->frame.code = told->interpreter_frame.executable;
    into->frame.caller = told->interpreter_frame.previous;
    into->frame.instruction = told->interpreter_frame.instr_ptr;
    into->frame.owner = told->interpreter_frame.owner;
    into->frame.interpreters_own = 3;
    into->code.first_line = told->code_object.firstlineno;
    into->code.file = told->code_object.filename;
    into->code.qualified_name = told->code_object.qualname;
    into->code.line_table = told->code_object.linetable;
    into->code.instructions = told->code_object.co_code_adaptive;
    into->text.length = told->unicode_object.length;
    into->text.state = told->unicode_object.state;
    into->text.ascii_text = told->unicode_object.asciiobject_size;
    into->bytes.length = told->bytes_object.ob_size;
    into->bytes.data = told->bytes_object.ob_sval;
    into->type = told->pyobject.ob_type;
#else
    into->threads = offsetof(PyInterpreterState, threads.head);
    into->thread.size = sizeof(PyThreadState) < MOST_OF_A_STATE ? sizeof(PyThreadState) : MOST_OF_A_STATE;
    into->thread.next = offsetof(PyThreadState, next);
    into->thread.interpreter = offsetof(PyThreadState, interp);
    into->thread.native_id = offsetof(PyThreadState, native_thread_id);
    into->thread.chunk = offsetof(PyThreadState, datastack_chunk);
    into->thread.frame = offsetof(PyThreadState, cframe);
    into->thread.frame_is_behind = true;
    into->thread.current = offsetof(_PyCFrame, current_frame);
    into->frame.code = offsetof(_PyInterpreterFrame, f_code);
    into->frame.caller = offsetof(_PyInterpreterFrame, previous);
    into->frame.instruction = offsetof(_PyInterpreterFrame, prev_instr);
    into->frame.owner = offsetof(_PyInterpreterFrame, owner);
    into->frame.interpreters_own = PY_VERSION_HEX >= 0x030c0000 ? 3 : UINT8_MAX;
    into->code.first_line = offsetof(PyCodeObject, co_firstlineno);
    into->code.file = offsetof(PyCodeObject, co_filename);
    into->code.qualified_name = offsetof(PyCodeObject, co_qualname);
    into->code.line_table = offsetof(PyCodeObject, co_linetable);
    into->code.instructions = offsetof(PyCodeObject, co_code_adaptive);
    into->text.length = offsetof(PyASCIIObject, length);
    into->text.state = offsetof(PyASCIIObject, state);
    into->text.ascii_text = sizeof(PyASCIIObject);
    into->bytes.length = offsetof(PyVarObject, ob_size);
    into->bytes.data = offsetof(PyBytesObject, ob_sval);
    into->type = offsetof(PyObject, ob_type);
#endif
    return NULL;
}

#else

const char* dftrace_interpreter_layout(InterpreterLayout* into) {
    memset(into, 0, sizeof *into);
    return "Python 3.10";
}

#endif
