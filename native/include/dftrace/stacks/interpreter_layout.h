/* Where in the memory of an interpreter stands what tells of its stacks. In C, too: CPython's own headers,
   from which it is filled, are no C++. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
namespace dftrace {
extern "C" {
#endif

/* Offsets in bytes, and addresses that stay while the interpreter lives. */
typedef struct InterpreterLayout {
    uint64_t interpreter; /* its state */
    size_t threads;       /* in it, the first thread */
    struct {
        size_t size; /* of a state, as much as is read */
        size_t next;
        size_t interpreter;
        size_t native_id;
        size_t chunk;         /* of frames, the one on top, before where it ends */
        size_t frame;         /* the innermost one, or what points to it */
        bool frame_is_behind; /* a pointer that stands at `current` */
        size_t current;
    } thread;
    struct {
        size_t code;
        size_t caller;
        size_t instruction;
        size_t owner;
        uint8_t interpreters_own; /* owners from here on are no frames of functions */
    } frame;
    struct {
        size_t first_line;
        size_t file;
        size_t qualified_name;
        size_t line_table;
        size_t instructions;
    } code;
    struct {
        size_t length;
        size_t hash;
        size_t state;
        unsigned kind_shift; /* in the state; whether it is compact and ASCII follows it */
        size_t ascii_text;
        size_t other_text;
    } text;
    struct {
        size_t length;
        size_t data;
    } bytes;
    size_t type; /* of any object */
    uint64_t code_type;
    uint64_t text_type;
} InterpreterLayout;

#ifdef __cplusplus
}
}
#endif
