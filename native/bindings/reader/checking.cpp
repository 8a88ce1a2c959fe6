// The types `Checking` and `Rewriting`.
#include "reader/module.hpp"

#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "dftrace/reading/traces/checking.hpp"
#include "dftrace/reading/traces/line_walk.hpp"
#include "dftrace/reading/traces/rewriting.hpp"
#include "reader/holding.hpp"
#include "told.hpp"

namespace dftrace::py {

namespace {

// Takes the blocks of a trace and gives some of its lines.
struct Walking {
    virtual ~Walking() = default;
    virtual LineWalk& walk() = 0;
    // To the next line that is given; false behind the last one.
    virtual bool step() = 0;
    // The walk has a block of so many bytes of the file, which says so much of itself.
    virtual void take_facts(const BlockFacts&, std::uint64_t) {}
    std::unique_ptr<BlockByBlock> blocks;
    BlockCodec codec{};
    std::string_view packed;  // the block as it lies in a file of gzip
};

PyObject* open_blocks(PyObject* object, PyObject* arguments) {
    int file = -1;
    BlockCodec codec{};
    unsigned long long end = 0;
    Walking* const walking = idle<Walking>(object);
    if (!walking || !PyArg_ParseTuple(arguments, "iO&K", &file, take_codec, &codec, &end)) return nullptr;
    try {
        walking->blocks = std::make_unique<BlockByBlock>(file, codec, end);
        walking->codec = codec;
        walking->packed = {};
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return Py_NewRef(Py_None);
}

PyObject* read_block(PyObject* object, PyObject* given) {
    const unsigned long long from = PyLong_AsUnsignedLongLong(given);
    if (PyErr_Occurred() || !idle<Walking>(object)) return nullptr;
    if (!held_by<Walking>(object).blocks) return PyErr_Format(PyExc_ValueError, "no blocks are open");
    std::size_t bytes = 0;
    const bool well = work_by<Walking>(object, [&](Walking& walking) {
        bytes = walking.blocks->read(from, walking.walk().next_text());
        walking.packed = {};
        if (!bytes) return;
        walking.walk().begin();
        if (walking.codec == BlockCodec::gzip) walking.packed = walking.blocks->block();
        if (const auto& facts = walking.blocks->facts()) walking.take_facts(*facts, bytes);
    });
    return well ? told(bytes) : nullptr;
}

PyObject* add_lines(PyObject* object, PyObject* given) {
    const bool well = idle<Walking>(object) && with_lines(given, [&](std::string_view lines) {
                          return work_by<Walking>(object, [&](Walking& walking) {
                              walking.packed = {};
                              put_into(walking.walk().next_text(), lines);
                              walking.walk().begin();
                          });
                      });
    return well ? Py_NewRef(Py_None) : nullptr;
}

PyObject* pass_over(PyObject* object, PyObject* given) {
    const unsigned long long bytes = PyLong_AsUnsignedLongLong(given);
    Walking* const walking = PyErr_Occurred() ? nullptr : idle<Walking>(object);
    if (!walking) return nullptr;
    walking->packed = {};
    walking->walk().pass_over(bytes);
    return Py_NewRef(Py_None);
}

PyObject* next_line(PyObject* object, PyObject*) {
    bool any = false;
    if (!work_by<Walking>(object, [&](Walking& walking) { any = walking.step(); })) return nullptr;
    if (!any) return Py_NewRef(Py_None);
    const LineWalk& walk = held_by<Walking>(object).walk();
    return tuple_told(walk.lines(), walk.bytes_before(), bytes_told(walk.line()));
}

template <auto count>
PyObject* count_of(PyObject* object, void*) {
    Walking* const walking = idle<Walking>(object);
    return walking ? told((walking->walk().*count)()) : nullptr;
}

const PyMethodDef shared_methods[] = {
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

const PyGetSetDef shared_members[] = {
    {"lines", count_of<&LineWalk::lines>, nullptr, "Lines so far.", nullptr},
    {"plain_bytes", count_of<&LineWalk::plain_bytes>, nullptr, "Bytes of plain text so far.", nullptr},
};

// What a type of its own has behind what both have, up to the end that Python looks for. The type refers to
// it, so it must live as long.
template <typename Row, std::size_t size>
std::vector<Row> with_shared(const Row (&shared)[size], std::initializer_list<Row> own) {
    std::vector<Row> all(std::begin(shared), std::end(shared));
    all.insert(all.end(), own);
    all.push_back({});
    return all;
}

struct CheckingWalk final : Walking {
    explicit CheckingWalk(std::size_t most_spans) : checking(most_spans) {}
    LineWalk& walk() override { return checking.walk(); }
    bool step() override { return checking.step(); }
    void take_facts(const BlockFacts& facts, std::uint64_t packed_bytes) override {
        checking.hold_block(facts, packed_bytes);
    }
    Checking checking;
};

struct RewritingWalk final : Walking {
    explicit RewritingWalk(Rewritten how) : rewriting(std::move(how)) {}
    LineWalk& walk() override { return rewriting.walk(); }
    bool step() override { return rewriting.step(); }
    Rewriting rewriting;
};

Rewriting& rewriting_of(Walking& walking) { return static_cast<RewritingWalk&>(walking).rewriting; }

Checking& checking_of(Walking& walking) { return static_cast<CheckingWalk&>(walking).checking; }

// Null with an exception set where another thread works by it.
Checking* idle_checking(PyObject* object) {
    Walking* const walking = idle<Walking>(object);
    return walking ? &checking_of(*walking) : nullptr;
}

template <typename Call>
bool work_by_checking(PyObject* object, Call call) {
    return work_by<Walking>(object, [&](Walking& walking) { call(checking_of(walking)); });
}

PyObject* make_checking(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"most_spans", nullptr};
    Py_ssize_t most_spans = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "n", const_cast<char**>(names), &most_spans))
        return nullptr;
    if (most_spans < 1) {
        PyErr_SetString(PyExc_ValueError, "at least one span");
        return nullptr;
    }
    return new_holding<Walking>(
        type, [&] { return std::make_unique<CheckingWalk>(static_cast<std::size_t>(most_spans)); });
}

// For "O&": a list of (from, shift, rate, at).
int take_clock(PyObject* given, void* into) {
    std::vector<ClockPiece> pieces;
    if (!PyList_Check(given)) return PyErr_SetString(PyExc_TypeError, "a list of pieces"), 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(given); ++i) {
        long long from = 0, shift = 0, at = 0;
        double rate = 0;
        if (!PyTuple_Check(PyList_GET_ITEM(given, i)) ||
            !PyArg_ParseTuple(PyList_GET_ITEM(given, i), "LLdL", &from, &shift, &rate, &at)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a piece is four numbers");
            return 0;
        }
        pieces.push_back({from, shift, rate, at});
    }
    *static_cast<ShownClock*>(into) = ShownClock(std::move(pieces));
    return 1;
}

// For "O&": None, or a list of (category, name).
int take_kept(PyObject* given, void* into) {
    if (given == Py_None) return 1;
    if (!PyList_Check(given)) return PyErr_SetString(PyExc_TypeError, "a list of names"), 0;
    std::vector<Label> kept;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(given); ++i) {
        const char *category = nullptr, *name = nullptr;
        if (!PyTuple_Check(PyList_GET_ITEM(given, i)) ||
            !PyArg_ParseTuple(PyList_GET_ITEM(given, i), "ss", &category, &name)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a name is two texts");
            return 0;
        }
        kept.push_back({category, name});
    }
    *static_cast<std::optional<std::vector<Label>>*>(into) = std::move(kept);
    return 1;
}

// For "O&": None, or (first, last).
int take_window(PyObject* given, void* into) {
    if (given == Py_None) return 1;
    long long first = 0, last = 0;
    if (!PyTuple_Check(given) || !PyArg_ParseTuple(given, "LL", &first, &last)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a window is two times");
        return 0;
    }
    *static_cast<std::optional<Rewritten::Window>*>(into) = Rewritten::Window{first, last};
    return 1;
}

PyObject* make_rewriting(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"pid",       "new_pid",        "clock",  "window", "kept",
                                  "gives_all", "gives_counters", "packed", nullptr};
    Rewritten how;
    long long pid = 0, new_pid = 0;
    int all = 0, counters = 0, packed = 0;
    try {
        if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "LLO&O&O&ppp", const_cast<char**>(names), &pid,
                                         &new_pid, take_clock, &how.clock, take_window, &how.window,
                                         take_kept, &how.kept, &all, &counters, &packed))
            return nullptr;
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    how.pid = pid;
    how.new_pid = new_pid;
    how.gives_all = all != 0;
    how.gives_counters = counters != 0;
    how.packed = packed != 0;
    return new_holding<Walking>(type, [&] { return std::make_unique<RewritingWalk>(std::move(how)); });
}

PyObject* put_line(PyObject* object, PyObject* arguments) {
    Py_buffer line;
    int timed = 0;
    if (!idle<Walking>(object) || !PyArg_ParseTuple(arguments, "y*p", &line, &timed)) return nullptr;
    const std::string_view text(static_cast<const char*>(line.buf), static_cast<std::size_t>(line.len));
    const bool well = text.find('\n') == text.npos;
    if (!well) PyErr_SetString(PyExc_ValueError, "a line holds no line break");
    const bool put = well && work_by<Walking>(object, [&](Walking& walking) {
                         rewriting_of(walking).put(text, timed != 0);
                     });
    PyBuffer_Release(&line);
    return put ? Py_NewRef(Py_None) : nullptr;
}

PyObject* take(PyObject* object, PyObject* given) {
    const int last = PyObject_IsTrue(given);
    std::string_view taken;
    if (last < 0 || !work_by<Walking>(object, [&](Walking& walking) {
            taken = rewriting_of(walking).take(walking.packed, last != 0);
            walking.packed = {};
        }))
        return nullptr;
    return bytes_told(taken);
}

PyObject* shown(PyObject* object, PyObject* given) {
    const long long ns = PyLong_AsLongLong(given);
    Walking* const walking = PyErr_Occurred() ? nullptr : idle<Walking>(object);
    return walking ? told(rewriting_of(*walking).clock().of(ns)) : nullptr;
}

PyObject* shown_end(PyObject* object, PyObject* arguments) {
    long long start = 0, duration = 0;
    if (!PyArg_ParseTuple(arguments, "LL", &start, &duration)) return nullptr;
    Walking* const walking = idle<Walking>(object);
    return walking ? told(rewriting_of(*walking).clock().end_of(start, duration)) : nullptr;
}

PyObject* keeps_durations(PyObject* object, void*) {
    Walking* const walking = idle<Walking>(object);
    return walking ? told(rewriting_of(*walking).clock().keeps_durations()) : nullptr;
}

PyObject* written(PyObject* object, void*) {
    Walking* const walking = idle<Walking>(object);
    return walking ? told(rewriting_of(*walking).written()) : nullptr;
}

PyObject* reach_seen(PyObject* object, void*) {
    Walking* const walking = idle<Walking>(object);
    return walking ? reach_told(rewriting_of(*walking).reach()) : nullptr;
}

PyObject* certify(PyObject* object, PyObject* given) {
    const long style = PyLong_AsLong(given);
    Checking* const checking = PyErr_Occurred() ? nullptr : idle_checking(object);
    if (!checking) return nullptr;
    if (style < 0 || style > static_cast<long>(TimeStyle::whole_micros))
        return PyErr_Format(PyExc_ValueError, "there is no style %ld", style);
    checking->certify(static_cast<TimeStyle>(style));
    return Py_NewRef(Py_None);
}

PyObject* add_span(PyObject* object, PyObject* arguments) {
    unsigned int pid = 0, tid = 0;
    long long start = 0, end = 0;
    if (!PyArg_ParseTuple(arguments, "IILL", &pid, &tid, &start, &end) ||
        !work_by_checking(object, [&](Checking& checking) { checking.add_span(pid, tid, start, end); }))
        return nullptr;
    return Py_NewRef(Py_None);
}

PyObject* end(PyObject* object, PyObject*) {
    bool again = false;
    return work_by_checking(object, [&](Checking& checking) { again = checking.end(); }) ? told(again)
                                                                                         : nullptr;
}

PyObject* overlaps(PyObject* object, PyObject* given) {
    const std::size_t most = PyLong_AsSize_t(given);
    if (PyErr_Occurred()) return nullptr;
    std::vector<NestedTracks::Overlap> first;
    std::uint64_t count = 0;
    if (!work_by_checking(object,
                          [&](Checking& checking) { count = checking.nesting().overlaps(most, first); }))
        return nullptr;
    return tuple_told(count, list_told(first, [](const NestedTracks::Overlap& each) {
                          return tuple_told(each.track >> 32, each.track & 0xffffffffu, each.line,
                                            each.other_line);
                      }));
}

PyObject* block_faults(PyObject* object, PyObject*) {
    Checking* const checking = idle_checking(object);
    if (!checking) return nullptr;
    return tuple_told(checking->block_fault_count(),
                      list_told(checking->block_faults(), [](const BlockFault& each) {
                          return tuple_told(each.line, static_cast<int>(each.what), each.said, each.found);
                      }));
}

PyObject* repeated_ids(PyObject* object, PyObject*) {
    Checking* const checking = idle_checking(object);
    if (!checking) return nullptr;
    return tuple_told(
        checking->repeated_id_count(),
        list_told(checking->repeated_ids(),
                  [](const Checking::RepeatedId& each) { return tuple_told(each.line, each.id); }),
        checking->used_ids().full());
}

PyObject* take_ids(PyObject* object, PyObject* before) {
    if (!Py_IS_TYPE(before, Py_TYPE(object)) || before == object)
        return PyErr_Format(PyExc_TypeError, "another Checking is needed");
    Checking* const into = idle_checking(object);
    Checking* const from = into ? idle_checking(before) : nullptr;
    if (!from) return nullptr;
    into->used_ids() = std::exchange(from->used_ids(), {});
    return Py_NewRef(Py_None);
}

PyObject* figures(PyObject* object, PyObject*) {
    std::optional<KnownFigures> found;
    bool aside = false;
    const bool well = work_by_checking(object, [&](Checking& checking) {
        found = checking.figures().told();
        aside = checking.figures().aside();
    });
    if (!well) return nullptr;
    if (!found) return Py_NewRef(Py_None);
    return tuple_told(
        tuple_told(spans_told(*found), others_told(*found), tracks_told(*found), reach_told(found->reach)),
        aside);
}

PyObject* resume(PyObject* object, PyObject* given) {
    KnownFigures known;
    if (!idle_checking(object)) return nullptr;
    if (!PyList_Check(given) || !known_tracks(given, known)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no tracks");
        return nullptr;
    }
    if (!work_by_checking(object, [&](Checking& checking) { checking.figures().resume(known.tracks); }))
        return nullptr;
    return Py_NewRef(Py_None);
}

PyObject* counts(PyObject* object, void*) {
    Checking* const checking = idle_checking(object);
    if (!checking) return nullptr;
    const CheckedCounts& of = checking->counts();
    return Py_BuildValue("{sNsNsNsN}", "spans", told(of.spans), "instants", told(of.instants), "counters",
                         told(of.counters), "flows", told(of.flows));
}

PyObject* collected(PyObject* object, void*) {
    Checking* const checking = idle_checking(object);
    return checking ? told(checking->nesting().collected()) : nullptr;
}

PyObject* left_out(PyObject* object, void*) {
    Checking* const checking = idle_checking(object);
    return checking ? told(checking->left_out()) : nullptr;
}

int add_checking(PyObject* module) {
    static auto methods = with_shared<PyMethodDef>(
        shared_methods,
        {
            {"certify", certify, METH_O,
             "certify(style, /): what is plainly right from here on; 0 for nothing, 1 for times with three "
             "decimals, 2 for whole microseconds."},
            {"add_span", add_span, METH_VARARGS,
             "add_span(pid, tid, start_ns, end_ns, /): the line that was given last is a span; one that "
             "never ended does so at 2^63 - 1."},
            {"block_faults", block_faults, METH_NOARGS,
             "block_faults(): how many blocks are not what they say, and of the first ones the line, what it "
             "is (packed bytes, plain bytes, lines, first, last, index), what is said and what there is."},
            {"repeated_ids", repeated_ids, METH_NOARGS,
             "repeated_ids(): how many lines have the number of an event before them, of the first ones line "
             "and number, and whether there were too many numbers for all to be looked at."},
            {"take_ids", take_ids, METH_O,
             "take_ids(checking, /): before the first line, those numbers of the part before this one."},
            {"figures", figures, METH_NOARGS,
             "figures(): spans, others, tracks and first and last ns of the lines so far, as an index line "
             "has them, and whether spans stand in disorder; None where there were too many names."},
            {"resume", resume, METH_O,
             "resume(tracks, /): before the first line, where tracks stood at the end of the part before."},
            {"end", end, METH_NOARGS, "end(): all was read; True where it is to be read once more."},
            {"overlaps", overlaps, METH_O,
             "overlaps(most, /): how many spans overlap another in part, and of the first ones by line: pid, "
             "tid, line, line of the other."},
        });
    static auto members = with_shared<PyGetSetDef>(
        shared_members,
        {
            {"counts", counts, nullptr, "Events by kind among the lines that were plainly right.", nullptr},
            {"collected", collected, nullptr, "Spans that were sorted.", nullptr},
            {"left_out", left_out, nullptr, "Spans beyond those that are sorted.", nullptr},
        });
    return add_holding_type<Walking>(module, "dftrace_ai._reader.Checking",
                                     "Checking(most_spans)\n--\n\nGives the lines of a trace that are not "
                                     "plainly right, and sorts at most so many spans.",
                                     make_checking, methods.data(), members.data())
               ? 0
               : -1;
}

int add_rewriting(PyObject* module) {
    static auto methods = with_shared<PyMethodDef>(
        shared_methods,
        {
            {"put", put_line, METH_VARARGS,
             "put(line, timed, /): write a line, bare, in place of the one that was given last, or before "
             "the "
             "first; whether it may have a time."},
            {"take", take, METH_O,
             "take(last, /): behind a block, what is to be written now: nothing while that is little, unless "
             "it is the last."},
            {"shown", shown, METH_O, "shown(ns, /): as which time one of the lines is written, in ns."},
            {"shown_end", shown_end, METH_VARARGS,
             "shown_end(start_ns, duration_ns, /): as which time the end of a span is written, in ns."},
        });
    static auto members = with_shared<PyGetSetDef>(
        shared_members,
        {{"keeps_durations", keeps_durations, nullptr, "Durations stay as they are.", nullptr},
         {"written", written, nullptr, "Lines that were written without being given.", nullptr},
         {"reach", reach_seen, nullptr,
          "From the first beginning to the last end of the lines that were not given, in ns as they are "
          "written; None for none.",
          nullptr}});
    return add_holding_type<Walking>(
               module, "dftrace_ai._reader.Rewriting",
               "Rewriting(pid, new_pid, clock, window, kept, gives_all, gives_counters, packed)\n--\n\n"
               "Writes the lines of a trace for a file of several: a process in place of another, times by "
               "the pieces (from, shift, rate, at) of a clock, what touches a window (first, last) alone, "
               "spans of what is kept (category, name) alone. Gives those on which the caller decides.",
               make_rewriting, methods.data(), members.data())
               ? 0
               : -1;
}

}  // namespace

int add_walking_types(PyObject* module) { return add_checking(module) < 0 ? -1 : add_rewriting(module); }

}  // namespace dftrace::py
