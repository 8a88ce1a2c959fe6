// The type `Checking`.
#include "reader/checking.hpp"

#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "dftrace/reading/traces/checking.hpp"
#include "dftrace/reading/traces/members.hpp"
#include "reader/work.hpp"

namespace dftrace::py {

namespace {

struct Parts {
    explicit Parts(std::size_t most_spans) : checking(most_spans) {}
    Checking checking;
    std::unique_ptr<BlockByBlock> blocks;
};

struct CheckingObject {
    PyObject_HEAD std::unique_ptr<Parts> parts;
    bool busy;
};

CheckingObject* of(PyObject* self) { return as<CheckingObject>(self); }

bool is_busy(PyObject* object) {
    if (of(object)->busy) PyErr_SetString(PyExc_RuntimeError, "another thread reads by this object");
    return of(object)->busy;
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"most_spans", nullptr};
    Py_ssize_t most_spans = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "n", const_cast<char**>(names), &most_spans))
        return nullptr;
    if (most_spans < 1) {
        PyErr_SetString(PyExc_ValueError, "at least one span");
        return nullptr;
    }
    Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    new (&of(made.get())->parts) std::unique_ptr<Parts>();
    try {
        of(made.get())->parts = std::make_unique<Parts>(static_cast<std::size_t>(most_spans));
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return made.release();
}

void destroy(PyObject* object) {
    of(object)->parts.~unique_ptr();
    PyTypeObject* const type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* open_blocks(PyObject* object, PyObject* arguments) {
    int file = -1;
    const char* codec = nullptr;
    unsigned long long end = 0;
    if (is_busy(object) || !PyArg_ParseTuple(arguments, "isK", &file, &codec, &end)) return nullptr;
    const std::string_view name = codec;
    if (name != "gzip" && name != "zstd") {
        PyErr_SetString(PyExc_ValueError, "the codec is gzip or zstd");
        return nullptr;
    }
    const BlockCodec known = name == "gzip" ? BlockCodec::gzip : BlockCodec::zstd;
    try {
        of(object)->parts->blocks = std::make_unique<BlockByBlock>(file, known, end);
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return Py_NewRef(Py_None);
}

PyObject* read_block(PyObject* object, PyObject* given) {
    const unsigned long long from = PyLong_AsUnsignedLongLong(given);
    if (PyErr_Occurred() || is_busy(object)) return nullptr;
    Parts& parts = *of(object)->parts;
    if (!parts.blocks) return PyErr_Format(PyExc_ValueError, "no blocks are open");
    std::size_t bytes = 0;
    const bool well = work(of(object)->busy, [&](Interrupts&) {
        bytes = parts.blocks->read(from, parts.checking.next_text());
        if (bytes) parts.checking.begin();
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
            Checking& checking = of(object)->parts->checking;
            PlainText& text = checking.next_text();
            std::memcpy(text.room_for(bytes), lines.buf, bytes);
            text.close(bytes);
            checking.begin();
        });
    }
    PyBuffer_Release(&lines);
    return well ? Py_NewRef(Py_None) : nullptr;
}

PyObject* pass_over(PyObject* object, PyObject* given) {
    const unsigned long long bytes = PyLong_AsUnsignedLongLong(given);
    if (PyErr_Occurred() || is_busy(object)) return nullptr;
    of(object)->parts->checking.pass_over(bytes);
    return Py_NewRef(Py_None);
}

PyObject* next_line(PyObject* object, PyObject*) {
    std::optional<Checking::Line> line;
    if (is_busy(object) ||
        !work(of(object)->busy, [&](Interrupts&) { line = of(object)->parts->checking.next_line(); }))
        return nullptr;
    if (!line) return Py_NewRef(Py_None);
    return Py_BuildValue("KKy#", static_cast<unsigned long long>(line->number),
                         static_cast<unsigned long long>(line->plain_bytes), line->text.data(),
                         static_cast<Py_ssize_t>(line->text.size()));
}

PyObject* certify(PyObject* object, PyObject* given) {
    const long style = PyLong_AsLong(given);
    if (PyErr_Occurred() || is_busy(object)) return nullptr;
    if (style < 0 || style > static_cast<long>(TimeStyle::whole_micros))
        return PyErr_Format(PyExc_ValueError, "there is no style %ld", style);
    of(object)->parts->checking.certify(static_cast<TimeStyle>(style));
    return Py_NewRef(Py_None);
}

PyObject* add_span(PyObject* object, PyObject* arguments) {
    unsigned int pid = 0, tid = 0;
    long long start = 0, end = 0;
    if (!PyArg_ParseTuple(arguments, "IILL", &pid, &tid, &start, &end)) return nullptr;
    if (is_busy(object) || !work(of(object)->busy, [&](Interrupts&) {
            of(object)->parts->checking.add_span(pid, tid, start, end);
        }))
        return nullptr;
    return Py_NewRef(Py_None);
}

PyObject* end(PyObject* object, PyObject*) {
    bool again = false;
    if (is_busy(object) ||
        !work(of(object)->busy, [&](Interrupts&) { again = of(object)->parts->checking.end(); }))
        return nullptr;
    return PyBool_FromLong(again);
}

PyObject* overlaps(PyObject* object, PyObject* given) {
    const std::size_t most = PyLong_AsSize_t(given);
    if (PyErr_Occurred() || is_busy(object)) return nullptr;
    std::vector<NestedTracks::Overlap> first;
    std::uint64_t count = 0;
    if (!work(of(object)->busy,
              [&](Interrupts&) { count = of(object)->parts->checking.nesting().overlaps(most, first); }))
        return nullptr;
    Ref rows(PyList_New(0));
    if (!rows) return nullptr;
    for (const NestedTracks::Overlap& each : first) {
        const Ref row(Py_BuildValue("KKKK", static_cast<unsigned long long>(each.track >> 32),
                                    static_cast<unsigned long long>(each.track & 0xffffffffu),
                                    static_cast<unsigned long long>(each.line),
                                    static_cast<unsigned long long>(each.other_line)));
        if (!row || PyList_Append(rows.get(), row.get()) < 0) return nullptr;
    }
    return Py_BuildValue("KN", static_cast<unsigned long long>(count), rows.release());
}

PyObject* counts(PyObject* object, void*) {
    if (is_busy(object)) return nullptr;
    const CheckedCounts& of_lines = of(object)->parts->checking.counts();
    return Py_BuildValue("{sKsKsKsK}", "spans", static_cast<unsigned long long>(of_lines.spans), "instants",
                         static_cast<unsigned long long>(of_lines.instants), "counters",
                         static_cast<unsigned long long>(of_lines.counters), "flows",
                         static_cast<unsigned long long>(of_lines.flows));
}

PyObject* lines(PyObject* object, void*) {
    return is_busy(object) ? nullptr : PyLong_FromUnsignedLongLong(of(object)->parts->checking.lines());
}

PyObject* plain_bytes(PyObject* object, void*) {
    return is_busy(object) ? nullptr : PyLong_FromUnsignedLongLong(of(object)->parts->checking.plain_bytes());
}

PyObject* collected(PyObject* object, void*) {
    return is_busy(object) ? nullptr : PyLong_FromSize_t(of(object)->parts->checking.nesting().collected());
}

PyObject* left_out(PyObject* object, void*) {
    return is_busy(object) ? nullptr : PyLong_FromUnsignedLongLong(of(object)->parts->checking.left_out());
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
     "next_line(): the next line of the block that is not plainly right, as its number, the plain bytes "
     "before it and its text; None where there is none."},
    {"certify", certify, METH_O,
     "certify(style, /): what is plainly right from here on; 0 for nothing, 1 for times with three decimals, "
     "2 for whole microseconds."},
    {"add_span", add_span, METH_VARARGS,
     "add_span(pid, tid, start_ns, end_ns, /): the line that was given last is a span; one that never ended "
     "does so at 2^63 - 1."},
    {"end", end, METH_NOARGS, "end(): all was read; True where it is to be read once more."},
    {"overlaps", overlaps, METH_O,
     "overlaps(most, /): how many spans overlap another in part, and of the first ones by line: pid, tid, "
     "line, line of the other."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef members[] = {
    {"counts", counts, nullptr, "Events by kind among the lines that were plainly right.", nullptr},
    {"lines", lines, nullptr, "Lines so far.", nullptr},
    {"plain_bytes", plain_bytes, nullptr, "Bytes of plain text so far.", nullptr},
    {"collected", collected, nullptr, "Spans that were sorted.", nullptr},
    {"left_out", left_out, nullptr, "Spans beyond those that are sorted.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_doc,
     const_cast<char*>(
         "Checking(most_spans)\n--\n\nTells the lines of a trace that are plainly right, and sorts at "
         "most so many spans.")},
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {0, nullptr}};

PyType_Spec spec = {"dftrace_ai._reader.Checking", sizeof(CheckingObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

int add_checking_type(PyObject* module) {
    const Ref type(PyType_FromSpec(&spec));
    return type ? PyModule_AddObjectRef(module, "Checking", type.get()) : -1;
}

}  // namespace dftrace::py
