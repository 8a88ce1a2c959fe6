// The type `Totals`.
#include "reader/module.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dftrace/reading/traces/members.hpp"
#include "dftrace/reading/traces/totals.hpp"
#include "reader/holding.hpp"
#include "told.hpp"

namespace dftrace::py {

namespace {

constexpr std::size_t most_readers = 64;

struct Adding {
    Adding(std::size_t count, std::size_t most_bytes) : readers(count), totals(count, most_bytes) {}
    std::size_t readers;
    Totals totals;
    PlainText text;
};

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
    return new_holding<Adding>(type, [&] {
        return std::make_unique<Adding>(std::min(static_cast<std::size_t>(readers), most_readers),
                                        static_cast<std::size_t>(most_bytes));
    });
}

template <typename Call>
bool work_by_totals(PyObject* object, Call call) {
    return work_by<Adding>(object, [&](Adding& adding) { call(adding.totals); });
}

// What `call(totals)` gives, as Python has it.
template <typename Call>
PyObject* told_by_totals(PyObject* object, Call call) {
    decltype(call(held_by<Adding>(object).totals)) found{};
    return work_by_totals(object, [&](Totals& totals) { found = call(totals); }) ? told(found) : nullptr;
}

PyObject* read_file_blocks(PyObject* object, PyObject* arguments) {
    int file = -1;
    BlockCodec codec{};
    unsigned long long from = 0, end = 0;
    if (!PyArg_ParseTuple(arguments, "iO&KK", &file, take_codec, &codec, &from, &end)) return nullptr;
    BlocksRead read;
    const bool well = work(as<Holding<Adding>>(object)->busy, [&](Interrupts& interrupts) {
        Totals& totals = held_by<Adding>(object).totals;
        const BlockWork block_work{
            [&](std::size_t reader, std::size_t slot, PlainText& text) {
                totals.scanner(reader).scan(text, totals.rows(slot));
            },
            [&](std::size_t slot) { totals.add_in_order(slot); },
            [&](std::size_t reader, std::size_t slot) { totals.add(reader, slot); },
            [&] { return interrupts.none(); },
        };
        read = read_blocks(file, codec, from, end, held_by<Adding>(object).readers, block_work);
    });
    return well ? tuple_told(read.file_bytes, read.plain_bytes) : nullptr;
}

PyObject* add_lines(PyObject* object, PyObject* given) {
    const bool well = with_lines(given, [&](std::string_view lines) {
        return work_by<Adding>(object, [&](Adding& adding) {
            put_into(adding.text, lines);
            adding.totals.scanner(0).scan(adding.text, adding.totals.rows(0));
            adding.totals.add_in_order(0);
            adding.totals.add(0, 0);
        });
    });
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
    return told_by_totals(object, [&](Totals& totals) { return totals.add_known(known); });
}

PyObject* known(PyObject* object, PyObject*) {
    std::optional<KnownFigures> found;
    if (!work_by_totals(object, [&](Totals& totals) { found = totals.known(); })) return nullptr;
    if (!found) return Py_NewRef(Py_None);
    return tuple_told(found->lines, spans_told(*found), others_told(*found), tracks_told(*found),
                      found->without_duration, found->unreadable);
}

PyObject* end_process(PyObject* object, PyObject*) {
    return told_by_totals(object, [](Totals& totals) { return totals.end_process(); });
}

PyObject* add_wall(PyObject* object, PyObject* given) {
    std::optional<std::int64_t> ns;
    if (given != Py_None) ns = PyLong_AsLongLong(given);
    if (PyErr_Occurred()) return nullptr;
    return work_by_totals(object, [&](Totals& totals) { totals.add_wall(ns); }) ? Py_NewRef(Py_None)
                                                                                : nullptr;
}

PyObject* clock_of_process(PyObject* object, PyObject*) {
    SetBack clock;
    if (!work_by_totals(object, [&](Totals& totals) { clock = totals.clock(); })) return nullptr;
    return tuple_told(clock.ns, clock.places);
}

PyObject* taken(PyObject* object, PyObject*) {
    return told_by_totals(object, [](Totals& totals) { return totals.taken(); });
}

PyObject* take_reach(PyObject* object, PyObject*) {
    BlockReach reach;
    return work_by_totals(object, [&](Totals& totals) { reach = totals.take_reach(); }) ? reach_told(reach)
                                                                                        : nullptr;
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

}  // namespace

PyObject* figures_row(PyObject* first, PyObject* second, const SpanFigures& of) {
    return tuple_told(first, second, of.count, whole(of.total), whole_or_none(of.self), of.least, of.greatest,
                      of.p50, of.p95, of.p99, whole_or_none(of.wall));
}

namespace {

PyObject* span_row(const SpanFigures& of) {
    return figures_row(told(of.label->category), told(of.label->name), of);
}

PyObject* category_row(const CategoryFigures& of) {
    return figures_row(told(of.category), told(of.bodies), of.spans);
}

PyObject* other_row(const OtherFigures& of) {
    return tuple_told(of.ph, of.label->category, of.label->name, of.count);
}

// The greatest of some figures as rows, and how many there are with those that were not asked for.
template <auto figures, auto row>
PyObject* rows_and_all(PyObject* object, PyObject* given) {
    const std::size_t most = PyLong_AsSize_t(given);
    if (PyErr_Occurred()) return nullptr;
    std::size_t all = 0;
    decltype((std::declval<Totals&>().*figures)(most, all)) found;
    if (!work_by_totals(object, [&](Totals& totals) { found = (totals.*figures)(most, all); }))
        return nullptr;
    return tuple_told(list_told(found, row), all);
}

template <auto count>
PyObject* count_of(PyObject* object, void*) {
    Adding* const adding = idle<Adding>(object);
    return adding ? told((adding->totals.*count)()) : nullptr;
}

PyMethodDef methods[] = {
    {"read_blocks", read_file_blocks, METH_VARARGS,
     "read_blocks(descriptor, codec, start, end, /): add the blocks of a compressed file, up to the first "
     "that is torn, larger than 16 MiB, or cut within a line; bytes of the file and of plain text that were "
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
    {"spans", rows_and_all<&Totals::spans, span_row>, METH_O,
     "spans(most, /): rows of finished spans, and how many there are in all."},
    {"categories", rows_and_all<&Totals::categories, category_row>, METH_O,
     "categories(most, /): rows of the finished spans of whole categories, the bodies of loops apart, and "
     "how many there are in all."},
    {"others", rows_and_all<&Totals::others, other_row>, METH_O,
     "others(most, /): rows of other events, and how many there are in all."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef counts[] = {{"lines", count_of<&Totals::lines>, nullptr, "Lines that were read.", nullptr},
                        {"events", count_of<&Totals::events>, nullptr, "Lines that are events.", nullptr},
                        {"unreadable", count_of<&Totals::unreadable>, nullptr,
                         "Lines without an event, or a span without a duration.", nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

int add_totals_type(PyObject* module) {
    return add_holding_type<Adding>(module, "dftrace_ai._reader.Totals",
                                    "Totals(readers, most_bytes)\n--\n\nFigures of traces by phase, category "
                                    "and name, in memory of so many bytes.",
                                    make, methods, counts)
               ? 0
               : -1;
}

}  // namespace dftrace::py
