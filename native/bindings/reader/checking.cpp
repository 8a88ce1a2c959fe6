// The types `Checking` and `WindowLines`.
#include "reader/module.hpp"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dftrace/reading/traces/checking.hpp"
#include "dftrace/reading/traces/passing_window.hpp"
#include "reader/walking.hpp"
#include "reader/work.hpp"

namespace dftrace::py {

namespace {

struct CheckingWalk final : Walking {
    explicit CheckingWalk(std::size_t most_spans) : checking(most_spans) {}
    LineWalk& walk() override { return checking.walk(); }
    bool step() override { return checking.step(); }
    void take_facts(const BlockFacts& facts, std::uint64_t packed_bytes) override {
        checking.hold_block(facts, packed_bytes);
    }
    Checking checking;
};

struct WindowWalk final : Walking {
    WindowWalk(std::int64_t first, std::int64_t last, std::int64_t least) : window(first, last, least) {}
    LineWalk& walk() override { return window.walk(); }
    bool step() override { return window.step(); }
    PassingWindow window;
};

WalkingObject* of(PyObject* self) { return as<WalkingObject>(self); }
Checking& checking_of(PyObject* self) { return static_cast<CheckingWalk&>(*of(self)->walking).checking; }

PyObject* make_checking(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"most_spans", nullptr};
    Py_ssize_t most_spans = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "n", const_cast<char**>(names), &most_spans))
        return nullptr;
    if (most_spans < 1) {
        PyErr_SetString(PyExc_ValueError, "at least one span");
        return nullptr;
    }
    return new_walking(type,
                       [&] { return std::make_unique<CheckingWalk>(static_cast<std::size_t>(most_spans)); });
}

PyObject* make_window(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"first_ns", "last_ns", "least_ns", nullptr};
    long long first = 0, last = 0, least = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "LLL", const_cast<char**>(names), &first, &last,
                                     &least))
        return nullptr;
    return new_walking(type, [&] { return std::make_unique<WindowWalk>(first, last, least); });
}

PyObject* certify(PyObject* object, PyObject* given) {
    const long style = PyLong_AsLong(given);
    if (PyErr_Occurred() || is_busy(object)) return nullptr;
    if (style < 0 || style > static_cast<long>(TimeStyle::whole_micros))
        return PyErr_Format(PyExc_ValueError, "there is no style %ld", style);
    checking_of(object).certify(static_cast<TimeStyle>(style));
    return Py_NewRef(Py_None);
}

PyObject* add_span(PyObject* object, PyObject* arguments) {
    unsigned int pid = 0, tid = 0;
    long long start = 0, end = 0;
    if (!PyArg_ParseTuple(arguments, "IILL", &pid, &tid, &start, &end)) return nullptr;
    if (is_busy(object) ||
        !work(of(object)->busy, [&](Interrupts&) { checking_of(object).add_span(pid, tid, start, end); }))
        return nullptr;
    return Py_NewRef(Py_None);
}

PyObject* end(PyObject* object, PyObject*) {
    bool again = false;
    if (is_busy(object) || !work(of(object)->busy, [&](Interrupts&) { again = checking_of(object).end(); }))
        return nullptr;
    return PyBool_FromLong(again);
}

PyObject* overlaps(PyObject* object, PyObject* given) {
    const std::size_t most = PyLong_AsSize_t(given);
    if (PyErr_Occurred() || is_busy(object)) return nullptr;
    std::vector<NestedTracks::Overlap> first;
    std::uint64_t count = 0;
    if (!work(of(object)->busy,
              [&](Interrupts&) { count = checking_of(object).nesting().overlaps(most, first); }))
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

PyObject* block_faults(PyObject* object, PyObject*) {
    if (is_busy(object)) return nullptr;
    const Checking& checking = checking_of(object);
    Ref rows(PyList_New(0));
    if (!rows) return nullptr;
    for (const BlockFault& each : checking.block_faults()) {
        const Ref row(Py_BuildValue("KiLL", static_cast<unsigned long long>(each.line),
                                    static_cast<int>(each.what), static_cast<long long>(each.said),
                                    static_cast<long long>(each.found)));
        if (!row || PyList_Append(rows.get(), row.get()) < 0) return nullptr;
    }
    return Py_BuildValue("KN", static_cast<unsigned long long>(checking.block_fault_count()), rows.release());
}

PyObject* repeated_ids(PyObject* object, PyObject*) {
    if (is_busy(object)) return nullptr;
    Checking& checking = checking_of(object);
    Ref rows(PyList_New(0));
    for (const Checking::RepeatedId& each : checking.repeated_ids()) {
        const Ref row(Py_BuildValue("KK", static_cast<unsigned long long>(each.line),
                                    static_cast<unsigned long long>(each.id)));
        if (!rows || !row || PyList_Append(rows.get(), row.get()) < 0) return nullptr;
    }
    return Py_BuildValue("KNO", static_cast<unsigned long long>(checking.repeated_id_count()), rows.release(),
                         checking.used_ids().full() ? Py_True : Py_False);
}

PyObject* take_ids(PyObject* object, PyObject* before) {
    if (!Py_IS_TYPE(before, Py_TYPE(object)) || before == object)
        return PyErr_Format(PyExc_TypeError, "another Checking is needed");
    if (is_busy(object) || is_busy(before)) return nullptr;
    checking_of(object).used_ids() = std::exchange(checking_of(before).used_ids(), {});
    return Py_NewRef(Py_None);
}

PyObject* figures(PyObject* object, PyObject*) {
    if (is_busy(object)) return nullptr;
    std::optional<KnownFigures> told;
    bool aside = false;
    const bool well = work(of(object)->busy, [&](Interrupts&) {
        told = checking_of(object).figures().told();
        aside = checking_of(object).figures().aside();
    });
    if (!well) return nullptr;
    if (!told) return Py_NewRef(Py_None);
    Ref lists(figures_told(*told));
    return lists ? Py_BuildValue("NO", lists.release(), aside ? Py_True : Py_False) : nullptr;
}

PyObject* resume(PyObject* object, PyObject* given) {
    KnownFigures known;
    if (is_busy(object)) return nullptr;
    if (!PyList_Check(given) || !known_tracks(given, known)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no tracks");
        return nullptr;
    }
    if (!work(of(object)->busy, [&](Interrupts&) { checking_of(object).figures().resume(known.tracks); }))
        return nullptr;
    return Py_NewRef(Py_None);
}

PyObject* counts(PyObject* object, void*) {
    if (is_busy(object)) return nullptr;
    const CheckedCounts& of_lines = checking_of(object).counts();
    return Py_BuildValue("{sKsKsKsK}", "spans", static_cast<unsigned long long>(of_lines.spans), "instants",
                         static_cast<unsigned long long>(of_lines.instants), "counters",
                         static_cast<unsigned long long>(of_lines.counters), "flows",
                         static_cast<unsigned long long>(of_lines.flows));
}

PyObject* collected(PyObject* object, void*) {
    return is_busy(object) ? nullptr : PyLong_FromSize_t(checking_of(object).nesting().collected());
}

PyObject* left_out(PyObject* object, void*) {
    return is_busy(object) ? nullptr : PyLong_FromUnsignedLongLong(checking_of(object).left_out());
}

PyObject* range_left_out(PyObject* object, void*) {
    if (is_busy(object)) return nullptr;
    const auto& range = static_cast<WindowWalk&>(*of(object)->walking).window.left_out();
    if (!range) return Py_NewRef(Py_None);
    return Py_BuildValue("LL", static_cast<long long>(range->start), static_cast<long long>(range->end));
}

PyObject* checking_type() {
    static auto methods = with_walking_methods({
        {"certify", certify, METH_O,
         "certify(style, /): what is plainly right from here on; 0 for nothing, 1 for times with three "
         "decimals, "
         "2 for whole microseconds."},
        {"add_span", add_span, METH_VARARGS,
         "add_span(pid, tid, start_ns, end_ns, /): the line that was given last is a span; one that never "
         "ended "
         "does so at 2^63 - 1."},
        {"block_faults", block_faults, METH_NOARGS,
         "block_faults(): how many blocks are not what they say, and of the first ones the line, what it is "
         "(packed bytes, plain bytes, lines, first, last, index), what is said and what there is."},
        {"repeated_ids", repeated_ids, METH_NOARGS,
         "repeated_ids(): how many lines have the number of an event before them, of the first ones line and "
         "number, and whether there were too many numbers for all to be looked at."},
        {"take_ids", take_ids, METH_O,
         "take_ids(checking, /): before the first line, those numbers of the part before this one."},
        {"figures", figures, METH_NOARGS,
         "figures(): spans, others, tracks and first and last ns of the lines so far, as an index line has "
         "them, and whether spans stand in disorder; None where there were too many names."},
        {"resume", resume, METH_O,
         "resume(tracks, /): before the first line, where tracks stood at the end of the part before."},
        {"end", end, METH_NOARGS, "end(): all was read; True where it is to be read once more."},
        {"overlaps", overlaps, METH_O,
         "overlaps(most, /): how many spans overlap another in part, and of the first ones by line: pid, "
         "tid, "
         "line, line of the other."},
    });
    static auto members = with_walking_members({
        {"counts", counts, nullptr, "Events by kind among the lines that were plainly right.", nullptr},
        {"collected", collected, nullptr, "Spans that were sorted.", nullptr},
        {"left_out", left_out, nullptr, "Spans beyond those that are sorted.", nullptr},
    });
    PyType_Slot slots[] = {
        {Py_tp_doc, const_cast<char*>(
                        "Checking(most_spans)\n--\n\nGives the lines of a trace that are not plainly right, "
                        "and sorts at most so many spans.")},
        {Py_tp_new, reinterpret_cast<void*>(make_checking)},
        {Py_tp_dealloc, reinterpret_cast<void*>(destroy_walking)},
        {Py_tp_methods, methods.data()},
        {Py_tp_getset, members.data()},
        {0, nullptr}};
    PyType_Spec spec = {"dftrace_ai._reader.Checking", sizeof(WalkingObject), 0, Py_TPFLAGS_DEFAULT, slots};
    return PyType_FromSpec(&spec);
}

PyObject* window_type() {
    static auto methods = with_walking_methods({});
    static auto members = with_walking_members(
        {{"left_out", range_left_out, nullptr,
          "From the first beginning to the last end of what was left out, in ns; None for nothing.",
          nullptr}});
    PyType_Slot slots[] = {
        {Py_tp_doc, const_cast<char*>("WindowLines(first_ns, last_ns, least_ns)\n--\n\nGives the lines of a "
                                      "trace, but for those that plainly end before the first time or begin "
                                      "behind the last; what begins before the least one is given.")},
        {Py_tp_new, reinterpret_cast<void*>(make_window)},
        {Py_tp_dealloc, reinterpret_cast<void*>(destroy_walking)},
        {Py_tp_methods, methods.data()},
        {Py_tp_getset, members.data()},
        {0, nullptr}};
    PyType_Spec spec = {"dftrace_ai._reader.WindowLines", sizeof(WalkingObject), 0, Py_TPFLAGS_DEFAULT,
                        slots};
    return PyType_FromSpec(&spec);
}

}  // namespace

int add_walking_types(PyObject* module) {
    const Ref checking(checking_type()), window(window_type());
    if (!checking || !window || PyModule_AddObjectRef(module, "Checking", checking.get()) < 0) return -1;
    return PyModule_AddObjectRef(module, "WindowLines", window.get());
}

}  // namespace dftrace::py
