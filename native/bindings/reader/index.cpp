// The function `hop_blocks`, and figures out of lists and tuples.
#include "reader/module.hpp"

#include <cerrno>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "dftrace/reading/traces/hopping.hpp"

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
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    Ref index(hops.index ? Py_BuildValue("KKKK", number(hops.index->place), number(hops.index->packed_bytes),
                                         number(hops.index->plain_before), number(hops.index->lines_before))
                         : Py_NewRef(Py_None));
    Ref untold(PyList_New(0));
    if (!index || !untold) return nullptr;
    for (const BlockPlace& of : hops.untold) {
        const Ref place(Py_BuildValue("KK", number(of.place), number(of.packed_bytes)));
        if (!place || PyList_Append(untold.get(), place.get()) < 0) return nullptr;
    }
    if (hops.untold.size() > most_untold) untold = Ref(Py_NewRef(Py_None));
    return Py_BuildValue("KKKLLNN", number(hops.file_bytes), number(hops.plain_bytes), number(hops.lines),
                         static_cast<long long>(hops.reach.first_ns),
                         static_cast<long long>(hops.reach.last_ns), untold.release(), index.release());
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

PyObject* list_of(const std::vector<std::int64_t>& numbers) {
    Ref list(PyList_New(static_cast<Py_ssize_t>(numbers.size())));
    for (std::size_t i = 0; list && i < numbers.size(); ++i) {
        PyObject* const number = PyLong_FromLongLong(numbers[i]);
        if (!number) return nullptr;
        PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), number);
    }
    return list.release();
}

PyObject* text_of(const std::string& text) {
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
}

PyObject* told(const KnownFigures::Spans& of) {
    return Py_BuildValue("NNKLLLLNN", text_of(of.label.category), text_of(of.label.name),
                         static_cast<unsigned long long>(of.count), static_cast<long long>(of.total),
                         static_cast<long long>(of.self), static_cast<long long>(of.least),
                         static_cast<long long>(of.greatest), PyBool_FromLong(of.exact),
                         list_of(of.durations));
}

PyObject* told(const KnownFigures::Others& of) {
    return Py_BuildValue("NNNK", text_of(of.ph), text_of(of.label.category), text_of(of.label.name),
                         static_cast<unsigned long long>(of.count));
}

PyObject* told(const KnownFigures::Track& of) {
    std::vector<std::int64_t> numbers;
    for (const CoveredTime::Group& each : of.standing.groups)
        numbers.insert(numbers.end(), {each.first, each.last, each.end, each.covered,
                                       static_cast<std::int64_t>(each.parent)});
    return Py_BuildValue("LLLLN", static_cast<long long>(of.id.pid), static_cast<long long>(of.id.tid),
                         static_cast<long long>(of.standing.end), static_cast<long long>(of.standing.start),
                         list_of(numbers));
}

template <typename Each>
PyObject* list_told(const std::vector<Each>& figures) {
    Ref list(PyList_New(0));
    for (const Each& each : figures) {
        const Ref row(told(each));
        if (!list || !row || PyList_Append(list.get(), row.get()) < 0) return nullptr;
    }
    return list.release();
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
    return Py_BuildValue("LL", static_cast<long long>(reach.first_ns), static_cast<long long>(reach.last_ns));
}

PyObject* figures_told(const KnownFigures& known) {
    return Py_BuildValue("NNNN", list_told(known.spans), list_told(known.others), list_told(known.tracks),
                         reach_told(known.reach));
}

int add_hopping(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace dftrace::py
