// What the types `Checking` and `WindowLines` have in common.
#include "reader/walking.hpp"

#include <cstring>
#include <string_view>

#include "reader/module.hpp"
#include "reader/work.hpp"

namespace dftrace::py {

namespace {

WalkingObject* of(PyObject* self) { return as<WalkingObject>(self); }

PyObject* open_blocks(PyObject* object, PyObject* arguments) {
    int file = -1;
    BlockCodec codec{};
    unsigned long long end = 0;
    if (is_busy(object) || !PyArg_ParseTuple(arguments, "iO&K", &file, take_codec, &codec, &end))
        return nullptr;
    try {
        of(object)->walking->blocks = std::make_unique<BlockByBlock>(file, codec, end);
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return Py_NewRef(Py_None);
}

PyObject* read_block(PyObject* object, PyObject* given) {
    const unsigned long long from = PyLong_AsUnsignedLongLong(given);
    if (PyErr_Occurred() || is_busy(object)) return nullptr;
    Walking& walking = *of(object)->walking;
    if (!walking.blocks) return PyErr_Format(PyExc_ValueError, "no blocks are open");
    std::size_t bytes = 0;
    const bool well = work(of(object)->busy, [&](Interrupts&) {
        bytes = walking.blocks->read(from, walking.walk().next_text());
        if (!bytes) return;
        walking.walk().begin();
        if (const auto& facts = walking.blocks->facts()) walking.take_facts(*facts, bytes);
    });
    return well ? PyLong_FromSize_t(bytes) : nullptr;
}

PyObject* add_lines(PyObject* object, PyObject* given) {
    Py_buffer lines;
    if (is_busy(object) || PyObject_GetBuffer(given, &lines, PyBUF_SIMPLE) < 0) return nullptr;
    const auto bytes = static_cast<std::size_t>(lines.len);
    bool well = false;
    if (bytes >> 30) {
        PyErr_SetString(PyExc_ValueError, "a GiB and more at a time");
    } else if (bytes && static_cast<const char*>(lines.buf)[bytes - 1] != '\n') {
        PyErr_SetString(PyExc_ValueError, "the last line has no end");
    } else {
        well = work(of(object)->busy, [&](Interrupts&) {
            LineWalk& walk = of(object)->walking->walk();
            PlainText& text = walk.next_text();
            std::memcpy(text.room_for(bytes), lines.buf, bytes);
            text.close(bytes);
            walk.begin();
        });
    }
    PyBuffer_Release(&lines);
    return well ? Py_NewRef(Py_None) : nullptr;
}

PyObject* pass_over(PyObject* object, PyObject* given) {
    const unsigned long long bytes = PyLong_AsUnsignedLongLong(given);
    if (PyErr_Occurred() || is_busy(object)) return nullptr;
    of(object)->walking->walk().pass_over(bytes);
    return Py_NewRef(Py_None);
}

PyObject* next_line(PyObject* object, PyObject*) {
    bool any = false;
    if (is_busy(object) || !work(of(object)->busy, [&](Interrupts&) { any = of(object)->walking->step(); }))
        return nullptr;
    if (!any) return Py_NewRef(Py_None);
    const LineWalk& walk = of(object)->walking->walk();
    return Py_BuildValue("KKy#", static_cast<unsigned long long>(walk.lines()),
                         static_cast<unsigned long long>(walk.bytes_before()), walk.line().data(),
                         static_cast<Py_ssize_t>(walk.line().size()));
}

PyObject* lines(PyObject* object, void*) {
    return is_busy(object) ? nullptr : PyLong_FromUnsignedLongLong(of(object)->walking->walk().lines());
}

PyObject* plain_bytes(PyObject* object, void*) {
    return is_busy(object) ? nullptr : PyLong_FromUnsignedLongLong(of(object)->walking->walk().plain_bytes());
}

PyMethodDef methods[] = {
    {"open_blocks", open_blocks, METH_VARARGS,
     "open_blocks(descriptor, codec, end, /): read blocks of a compressed file from now on."},
    {"read_block", read_block, METH_O,
     "read_block(start, /): take the block that begins at a byte, and return its bytes; 0 where it is torn, "
     "larger than 16 MiB, or cut within a line."},
    {"add_lines", add_lines, METH_O,
     "add_lines(text, /): take lines, each with its line break, for a block."},
    {"pass_over", pass_over, METH_O, "pass_over(bytes, /): count a line that is in no block."},
    {"next_line", next_line, METH_NOARGS,
     "next_line(): the next line of the block that is given, as its number, the plain bytes "
     "before it and its text; None where there is none."},
};

PyGetSetDef members[] = {
    {"lines", lines, nullptr, "Lines so far.", nullptr},
    {"plain_bytes", plain_bytes, nullptr, "Bytes of plain text so far.", nullptr},
};

}  // namespace

bool is_busy(PyObject* object) {
    if (of(object)->busy) PyErr_SetString(PyExc_RuntimeError, "another thread reads by this object");
    return of(object)->busy;
}

void destroy_walking(PyObject* object) {
    of(object)->walking.~unique_ptr();
    PyTypeObject* const type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

std::vector<PyMethodDef> with_walking_methods(std::initializer_list<PyMethodDef> own) {
    std::vector<PyMethodDef> all(std::begin(methods), std::end(methods));
    all.insert(all.end(), own);
    all.push_back({nullptr, nullptr, 0, nullptr});
    return all;
}

std::vector<PyGetSetDef> with_walking_members(std::initializer_list<PyGetSetDef> own) {
    std::vector<PyGetSetDef> all(std::begin(members), std::end(members));
    all.insert(all.end(), own);
    all.push_back({nullptr, nullptr, nullptr, nullptr, nullptr});
    return all;
}

}  // namespace dftrace::py
