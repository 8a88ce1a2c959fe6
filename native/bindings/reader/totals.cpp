// The type `Totals`.
#include "reader/module.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "dftrace/reading/traces/members.hpp"
#include "dftrace/reading/traces/totals.hpp"
#include "reader/work.hpp"

namespace dftrace::py {

namespace {

constexpr std::size_t most_readers = 64;

struct TotalsObject {
    PyObject_HEAD std::unique_ptr<Totals> totals;
    PlainText text;
    std::size_t readers;
    bool busy;
};

TotalsObject* of(PyObject* self) { return as<TotalsObject>(self); }

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"readers", "most_bytes", nullptr};
    Py_ssize_t readers = 0, most_bytes = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "nn", const_cast<char**>(names), &readers,
                                     &most_bytes))
        return nullptr;
    if (readers < 1 || most_bytes < 1) {
        PyErr_SetString(PyExc_ValueError, "at least one reader and one byte");
        return nullptr;
    }
    Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    TotalsObject* const self = of(made.get());
    new (&self->totals) std::unique_ptr<Totals>();
    new (&self->text) PlainText();
    self->readers = std::min(static_cast<std::size_t>(readers), most_readers);
    try {
        self->totals = std::make_unique<Totals>(self->readers, static_cast<std::size_t>(most_bytes));
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return made.release();
}

void destroy(PyObject* object) {
    TotalsObject* const self = of(object);
    self->totals.~unique_ptr();
    self->text.~PlainText();
    PyTypeObject* const type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* read_file_blocks(PyObject* object, PyObject* arguments) {
    int file = -1;
    BlockCodec codec{};
    unsigned long long from = 0, end = 0;
    if (!PyArg_ParseTuple(arguments, "iO&KK", &file, take_codec, &codec, &from, &end)) return nullptr;
    TotalsObject* const self = of(object);
    BlocksRead read;
    const bool well = work(self->busy, [&](Interrupts& interrupts) {
        Totals& totals = *self->totals;
        const BlockWork block_work{
            [&](std::size_t reader, std::size_t slot, PlainText& text) {
                totals.scanner(reader).scan(text, totals.rows(slot));
            },
            [&](std::size_t slot) { totals.add_in_order(slot); },
            [&](std::size_t reader, std::size_t slot) { totals.add(reader, slot); },
            [&] { return interrupts.none(); },
        };
        read = read_blocks(file, codec, from, end, self->readers, block_work);
    });
    return well ? Py_BuildValue("KK", read.file_bytes, read.plain_bytes) : nullptr;
}

PyObject* add_lines(PyObject* object, PyObject* given) {
    Py_buffer lines;
    if (PyObject_GetBuffer(given, &lines, PyBUF_SIMPLE) < 0) return nullptr;
    TotalsObject* const self = of(object);
    const auto bytes = static_cast<std::size_t>(lines.len);
    bool well = false;
    if (bytes >> 30) {
        PyErr_SetString(PyExc_ValueError, "a GiB and more at a time");
    } else if (bytes && static_cast<const char*>(lines.buf)[bytes - 1] != '\n') {
        PyErr_SetString(PyExc_ValueError, "the last line has no end");
    } else {
        well = work(self->busy, [&](Interrupts&) {
            std::memcpy(self->text.room_for(bytes), lines.buf, bytes);
            self->text.close(bytes);
            self->totals->scanner(0).scan(self->text, self->totals->rows(0));
            self->totals->add_in_order(0);
            self->totals->add(0, 0);
        });
    }
    PyBuffer_Release(&lines);
    return well ? Py_NewRef(Py_None) : nullptr;
}

PyObject* add_known(PyObject* object, PyObject* arguments) {
    KnownFigures known;
    if (!known_figures(arguments, known)) {
        // What stands in a file may be anything.
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError)) return nullptr;
        PyErr_Clear();
        return Py_NewRef(Py_False);
    }
    bool added = false;
    const bool well =
        work(of(object)->busy, [&](Interrupts&) { added = of(object)->totals->add_known(known); });
    return well ? PyBool_FromLong(added) : nullptr;
}

PyObject* known(PyObject* object, PyObject*) {
    std::optional<KnownFigures> found;
    if (!work(of(object)->busy, [&](Interrupts&) { found = of(object)->totals->known(); })) return nullptr;
    if (!found) return Py_NewRef(Py_None);
    Ref figures(figures_told(*found));
    if (!figures) return nullptr;
    return Py_BuildValue("KOOOKK", static_cast<unsigned long long>(found->lines),
                         PyTuple_GET_ITEM(figures.get(), 0), PyTuple_GET_ITEM(figures.get(), 1),
                         PyTuple_GET_ITEM(figures.get(), 2),
                         static_cast<unsigned long long>(found->without_duration),
                         static_cast<unsigned long long>(found->unreadable));
}

PyObject* end_process(PyObject* object, PyObject*) {
    bool again = false;
    const bool well = work(of(object)->busy, [&](Interrupts&) { again = of(object)->totals->end_process(); });
    return well ? PyBool_FromLong(again) : nullptr;
}

PyObject* add_wall(PyObject* object, PyObject* given) {
    std::optional<std::int64_t> ns;
    if (given != Py_None) ns = PyLong_AsLongLong(given);
    if (PyErr_Occurred()) return nullptr;
    return work(of(object)->busy, [&](Interrupts&) { of(object)->totals->add_wall(ns); }) ? Py_NewRef(Py_None)
                                                                                          : nullptr;
}

PyObject* clock_of_process(PyObject* object, PyObject*) {
    SetBack clock;
    if (!work(of(object)->busy, [&](Interrupts&) { clock = of(object)->totals->clock(); })) return nullptr;
    return Py_BuildValue("LK", static_cast<long long>(clock.ns),
                         static_cast<unsigned long long>(clock.places));
}

PyObject* taken(PyObject* object, PyObject*) {
    std::optional<std::int64_t> ns;
    if (!work(of(object)->busy, [&](Interrupts&) { ns = of(object)->totals->taken(); })) return nullptr;
    return ns ? PyLong_FromLongLong(*ns) : Py_NewRef(Py_None);
}

PyObject* take_reach(PyObject* object, PyObject*) {
    BlockReach reach;
    if (!work(of(object)->busy, [&](Interrupts&) { reach = of(object)->totals->take_reach(); }))
        return nullptr;
    return reach_told(reach);
}

PyObject* whole(WideNs value) {
    if (value >= INT64_MIN && value <= INT64_MAX) return PyLong_FromLongLong(static_cast<long long>(value));
    // Its digits, from the last one: a negative self time is no more than its children overlap.
    const bool negative = value < 0;
    std::string digits;
    for (WideNs rest = negative ? -value : value; rest > 0; rest /= 10)
        digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(rest % 10)));
    if (negative) digits.insert(digits.begin(), '-');
    return PyLong_FromString(digits.c_str(), nullptr, 10);
}

PyObject* whole_or_none(const std::optional<WideNs>& value) {
    return value ? whole(*value) : Py_NewRef(Py_None);
}

PyObject* text_of(const std::string& text) {
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
}

}  // namespace

PyObject* figures_row(PyObject* first, PyObject* second, const SpanFigures& of) {
    return Py_BuildValue("NNKNNLLdddN", first, second, static_cast<unsigned long long>(of.count),
                         whole(of.total), whole_or_none(of.self), static_cast<long long>(of.least),
                         static_cast<long long>(of.greatest), of.p50, of.p95, of.p99, whole_or_none(of.wall));
}

namespace {

PyObject* span_row(const SpanFigures& of) {
    return figures_row(text_of(of.label->category), text_of(of.label->name), of);
}

PyObject* category_row(const CategoryFigures& of) {
    return figures_row(text_of(of.category), Py_NewRef(of.bodies ? Py_True : Py_False), of.spans);
}

PyObject* other_row(const OtherFigures& of) {
    return Py_BuildValue("NNNK", text_of(of.ph), text_of(of.label->category), text_of(of.label->name),
                         static_cast<unsigned long long>(of.count));
}

// Rows, and how many there are with those that were not asked for.
template <typename Figures, typename Row>
PyObject* rows_and_all(const Figures& figures, std::size_t all, Row row) {
    Ref rows(PyList_New(0));
    if (!rows) return nullptr;
    for (const auto& each : figures) {
        const Ref made(row(each));
        if (!made || PyList_Append(rows.get(), made.get()) < 0) return nullptr;
    }
    return Py_BuildValue("NK", rows.release(), static_cast<unsigned long long>(all));
}

PyObject* spans(PyObject* object, PyObject* given) {
    const std::size_t most = PyLong_AsSize_t(given);
    if (PyErr_Occurred()) return nullptr;
    std::vector<SpanFigures> found;
    std::size_t all = 0;
    if (!work(of(object)->busy, [&](Interrupts&) { found = of(object)->totals->spans(most, all); }))
        return nullptr;
    return rows_and_all(found, all, span_row);
}

PyObject* others(PyObject* object, PyObject* given) {
    const std::size_t most = PyLong_AsSize_t(given);
    if (PyErr_Occurred()) return nullptr;
    std::vector<OtherFigures> found;
    std::size_t all = 0;
    if (!work(of(object)->busy, [&](Interrupts&) { found = of(object)->totals->others(most, all); }))
        return nullptr;
    return rows_and_all(found, all, other_row);
}

PyObject* categories(PyObject* object, PyObject* given) {
    const std::size_t most = PyLong_AsSize_t(given);
    if (PyErr_Occurred()) return nullptr;
    std::vector<CategoryFigures> found;
    std::size_t all = 0;
    if (!work(of(object)->busy, [&](Interrupts&) { found = of(object)->totals->categories(most, all); }))
        return nullptr;
    return rows_and_all(found, all, category_row);
}

template <auto count>
PyObject* count_of(PyObject* object, void*) {
    if (of(object)->busy) return PyErr_Format(PyExc_RuntimeError, "another thread reads by this object");
    return PyLong_FromUnsignedLongLong(((*of(object)->totals).*count)());
}

PyMethodDef methods[] = {
    {"read_blocks", read_file_blocks, METH_VARARGS,
     "read_blocks(descriptor, codec, start, end, /): add the blocks of a compressed file, up to the first "
     "that "
     "is torn, larger than 16 MiB, or cut within a line; bytes of the file and of plain text that were "
     "read."},
    {"add_lines", add_lines, METH_O, "add_lines(text, /): add lines, each with its line break."},
    {"add_known", add_known, METH_VARARGS,
     "add_known(lines, spans, others, tracks, without_duration=0, unreadable=0, /): add what an index line "
     "says of the lines before it; False, and nothing is added, where that cannot be."},
    {"known", known, METH_NOARGS,
     "known(): all that was read, as `add_known` takes it; None where it cannot be told."},
    {"end_process", end_process, METH_NOARGS,
     "end_process(): the files of a process have been read; True where they are to be read once more."},
    {"add_wall", add_wall, METH_O,
     "add_wall(ns, /): how long the process went that has ended, None where that is not known."},
    {"clock", clock_of_process, METH_NOARGS,
     "clock(): by how many ns the clock was set back by which the process that has ended was recorded, and "
     "how often."},
    {"taken", taken, METH_NOARGS,
     "taken(): ns that the spans of the main thread take together, of the process that has ended; of the "
     "thread with most of that where it has none, None where none has or that is not known."},
    {"take_reach", take_reach, METH_NOARGS,
     "take_reach(): from when to when, in ns as the lines have them, the events reach that were read since "
     "the last call; None where there are none."},
    {"spans", spans, METH_O, "spans(most, /): rows of finished spans, and how many there are in all."},
    {"categories", categories, METH_O,
     "categories(most, /): rows of the finished spans of whole categories, the bodies of loops apart, and "
     "how "
     "many there are in all."},
    {"others", others, METH_O, "others(most, /): rows of other events, and how many there are in all."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef counts[] = {{"lines", count_of<&Totals::lines>, nullptr, "Lines that were read.", nullptr},
                        {"events", count_of<&Totals::events>, nullptr, "Lines that are events.", nullptr},
                        {"unreadable", count_of<&Totals::unreadable>, nullptr,
                         "Lines without an event, or a span without a duration.", nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_doc,
     const_cast<char*>("Totals(readers, most_bytes)\n--\n\nFigures of traces by phase, category and "
                       "name, in memory of so many bytes.")},
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_methods, methods},
    {Py_tp_getset, counts},
    {0, nullptr}};

PyType_Spec spec = {"dftrace_ai._reader.Totals", sizeof(TotalsObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

int add_totals_type(PyObject* module) {
    const Ref type(PyType_FromSpec(&spec));
    return type ? PyModule_AddObjectRef(module, "Totals", type.get()) : -1;
}

}  // namespace dftrace::py
