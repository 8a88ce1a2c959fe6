// The function `hop_blocks`, and figures out of lists and tuples.
#include "reader/module.hpp"

#include <cerrno>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "dftrace/reading/traces/hopping.hpp"
#include "told.hpp"

namespace dftrace::py {

namespace {

// The recorder's have one letter, others may have a few.
constexpr Py_ssize_t most_phase = 64;

PyObject* hop(PyObject*, PyObject* arguments) {
    int file = -1;
    unsigned long long end = 0;
    if (!PyArg_ParseTuple(arguments, "iK", &file, &end)) return nullptr;
    Hops hops;
    int error = 0;
    Py_BEGIN_ALLOW_THREADS;
    try {
        hops = hop_blocks(file, end);
    } catch (const std::system_error& failed) {
        error = failed.code().value();
    } catch (const std::bad_alloc&) {
        error = ENOMEM;
    }
    Py_END_ALLOW_THREADS;
    if (error) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    PyObject* const index = hops.index ? tuple_told(hops.index->place, hops.index->packed_bytes,
                                                    hops.index->plain_before, hops.index->lines_before)
                                       : Py_NewRef(Py_None);
    PyObject* const untold = hops.untold.size() > most_untold
                                 ? Py_NewRef(Py_None)
                                 : list_told(hops.untold, [](const BlockPlace& of) {
                                       return tuple_told(of.place, of.packed_bytes);
                                   });
    return tuple_told(hops.file_bytes, hops.plain_bytes, hops.lines, hops.reach.first_ns, hops.reach.last_ns,
                      untold, index);
}

PyMethodDef functions[] = {{"hop_blocks", hop, METH_VARARGS,
                            "hop_blocks(descriptor, end, /): what the blocks of a compressed file say of "
                            "themselves: bytes of the file "
                            "that they take, of plain text, lines, first and last ns, place and bytes of "
                            "those that do not tell these (None where they are too many), and of the last "
                            "index its place, bytes, and the plain bytes and lines before it, or None."},
                           {nullptr, nullptr, 0, nullptr}};

bool numbers_of(PyObject* list, std::vector<std::int64_t>& numbers) {
    if (!PyList_Check(list)) return false;
    const Py_ssize_t size = PyList_GET_SIZE(list);
    numbers.reserve(static_cast<std::size_t>(size));
    for (Py_ssize_t i = 0; i < size; ++i) {
        PyObject* const item = PyList_GET_ITEM(list, i);
        if (!PyLong_Check(item)) return false;
        const long long number = PyLong_AsLongLong(item);
        if (number == -1 && PyErr_Occurred()) return false;
        numbers.push_back(number);
    }
    return true;
}

Label label_of(std::string_view category, std::string_view name) {
    return {std::string(category), std::string(name)};
}

bool spans_of(PyObject* row, KnownFigures& known) {
    const char *category = nullptr, *name = nullptr;
    Py_ssize_t category_bytes = 0, name_bytes = 0;
    long long count = 0, total = 0, self = 0, least = 0, greatest = 0;
    int exact = 0;
    PyObject* durations = nullptr;
    if (!PyTuple_Check(row) ||
        !PyArg_ParseTuple(row, "s#s#LLLLLpO", &category, &category_bytes, &name, &name_bytes, &count, &total,
                          &self, &least, &greatest, &exact, &durations) ||
        count < 0)
        return false;
    KnownFigures::Spans& of = known.spans.emplace_back();
    of.label = label_of({category, static_cast<std::size_t>(category_bytes)},
                        {name, static_cast<std::size_t>(name_bytes)});
    of.count = static_cast<std::uint64_t>(count);
    of.total = total;
    of.self = self;
    of.least = least;
    of.greatest = greatest;
    of.exact = exact != 0;
    return numbers_of(durations, of.durations);
}

PyObject* numbers_told(const std::vector<std::int64_t>& numbers) {
    return list_told(numbers, [](std::int64_t number) { return told(number); });
}

PyObject* spans_row(const KnownFigures::Spans& of) {
    return tuple_told(of.label.category, of.label.name, of.count, of.total, of.self, of.least, of.greatest,
                      of.exact, numbers_told(of.durations));
}

PyObject* others_row(const KnownFigures::Others& of) {
    return tuple_told(of.ph, of.label.category, of.label.name, of.count);
}

PyObject* track_row(const KnownFigures::Track& of) {
    std::vector<std::int64_t> numbers;
    for (const CoveredTime::Group& each : of.standing.groups)
        numbers.insert(numbers.end(), {each.first, each.last, each.end, each.covered,
                                       static_cast<std::int64_t>(each.parent)});
    return tuple_told(of.id.pid, of.id.tid, of.standing.end, of.standing.start, numbers_told(numbers));
}

bool others_of(PyObject* row, KnownFigures& known) {
    const char *ph = nullptr, *category = nullptr, *name = nullptr;
    Py_ssize_t ph_bytes = 0, category_bytes = 0, name_bytes = 0;
    long long count = 0;
    if (!PyTuple_Check(row) ||
        !PyArg_ParseTuple(row, "s#s#s#L", &ph, &ph_bytes, &category, &category_bytes, &name, &name_bytes,
                          &count) ||
        ph_bytes > most_phase || count < 0)
        return false;
    known.others.push_back({{ph, static_cast<std::size_t>(ph_bytes)},
                            label_of({category, static_cast<std::size_t>(category_bytes)},
                                     {name, static_cast<std::size_t>(name_bytes)}),
                            static_cast<std::uint64_t>(count)});
    return true;
}

bool track_of(PyObject* row, KnownFigures& known) {
    long long pid = 0, tid = 0, end = 0, start = 0;
    PyObject* list = nullptr;
    std::vector<std::int64_t> numbers;
    constexpr std::size_t members = 5;
    if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "LLLLO", &pid, &tid, &end, &start, &list) ||
        !numbers_of(list, numbers) || numbers.size() % members)
        return false;
    KnownFigures::Track& track = known.tracks.emplace_back();
    track.id = {pid, tid};
    track.standing.end = end;
    track.standing.start = start;
    for (std::size_t i = 0; i < numbers.size(); i += members)
        track.standing.groups.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3],
                                         static_cast<std::uint64_t>(numbers[i + 4])});
    return true;
}

bool each_of(PyObject* list, bool (*take)(PyObject*, KnownFigures&), KnownFigures& known) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i)
        if (!take(PyList_GET_ITEM(list, i), known)) return false;
    return true;
}

}  // namespace

bool known_figures(PyObject* arguments, KnownFigures& known) {
    unsigned long long lines = 0, without_duration = 0, unreadable = 0;
    PyObject *spans = nullptr, *others = nullptr, *tracks = nullptr;
    if (!PyArg_ParseTuple(arguments, "KO!O!O!|KK", &lines, &PyList_Type, &spans, &PyList_Type, &others,
                          &PyList_Type, &tracks, &without_duration, &unreadable))
        return false;
    known.lines = lines;
    known.without_duration = without_duration;
    known.unreadable = unreadable;
    return each_of(spans, spans_of, known) && each_of(others, others_of, known) &&
           each_of(tracks, track_of, known);
}

bool known_tracks(PyObject* list, KnownFigures& known) { return each_of(list, track_of, known); }

PyObject* reach_told(const BlockReach& reach) {
    if (reach.first_ns > reach.last_ns) return Py_NewRef(Py_None);
    return tuple_told(reach.first_ns, reach.last_ns);
}

PyObject* spans_told(const KnownFigures& known) { return list_told(known.spans, spans_row); }
PyObject* others_told(const KnownFigures& known) { return list_told(known.others, others_row); }
PyObject* tracks_told(const KnownFigures& known) { return list_told(known.tracks, track_row); }

int add_hopping(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace dftrace::py
