// Columns of numbers: packed and unpacked, places among those that rise, what spans of threads are asked.
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "dftrace/reading/traces/moments.hpp"
#include "dftrace/reading/traces/packed_columns.hpp"
#include "dftrace/reading/traces/thread_spans.hpp"
#include "reader/buffers.hpp"
#include "reader/module.hpp"

namespace dftrace::py {

namespace {

// A bound for what a damaged file may ask for.
constexpr std::size_t most_numbers = std::size_t{1} << 27;

// The buffers of columns of numbers of 64 bits; false with an exception set.
bool take_columns(PyObject* given, Buffers& buffers, std::vector<std::span<const std::int64_t>>& columns) {
    const Ref list(PySequence_Fast(given, "columns are needed"));
    if (!list) return false;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(list.get());
    buffers.all.reserve(static_cast<std::size_t>(count) + 1);
    for (Py_ssize_t at = 0; at < count; ++at) {
        Py_buffer one;
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(list.get(), at), &one, PyBUF_SIMPLE) < 0)
            return false;
        buffers.all.push_back(one);
        if (one.len % 8) {
            PyErr_SetString(PyExc_ValueError, "numbers of 64 bits are needed");
            return false;
        }
        columns.emplace_back(static_cast<const std::int64_t*>(one.buf),
                             static_cast<std::size_t>(one.len) / sizeof(std::int64_t));
    }
    return true;
}

PyObject* pack(PyObject*, PyObject* given) {
    try {
        Buffers buffers;
        std::vector<std::span<const std::int64_t>> columns;
        if (!take_columns(given, buffers, columns)) return nullptr;
        const std::string packed = pack_columns(columns);
        return PyBytes_FromStringAndSize(packed.data(), static_cast<Py_ssize_t>(packed.size()));
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

PyObject* pack_rows(PyObject*, PyObject* given) {
    PyObject* list = nullptr;
    Py_buffer bounds;
    Buffers buffers;
    if (!PyArg_ParseTuple(given, "Oy*", &list, &bounds)) return nullptr;
    const Buffers of_bounds{{bounds}};
    try {
        std::vector<std::span<const std::int64_t>> columns;
        if (!take_columns(list, buffers, columns)) return nullptr;
        // A copy: somebody else may write to them meanwhile.
        const auto given_edges = values_of<std::int64_t>(bounds);
        const std::vector<std::int64_t> edges(given_edges.begin(), given_edges.end());
        const bool rise = !edges.empty() && edges.front() >= 0 && std::is_sorted(edges.begin(), edges.end());
        for (const auto& column : columns)
            if (!rise || column.size() < static_cast<std::size_t>(edges.back()))
                return PyErr_Format(PyExc_ValueError, "edges are of no rows of these columns");
        std::vector<std::string> packed;
        bool room = true;
        Py_BEGIN_ALLOW_THREADS;
        try {
            std::vector<std::span<const std::int64_t>> some(columns.size());
            for (std::size_t at = 0; at + 1 < edges.size(); ++at) {
                const auto begin = static_cast<std::size_t>(edges[at]);
                const std::size_t count = static_cast<std::size_t>(edges[at + 1]) - begin;
                for (std::size_t of = 0; of < some.size(); ++of) some[of] = columns[of].subspan(begin, count);
                packed.push_back(pack_columns(some));
            }
        } catch (const std::bad_alloc&) {
            room = false;
        }
        Py_END_ALLOW_THREADS;
        if (!room) return PyErr_NoMemory();
        Ref found(PyList_New(static_cast<Py_ssize_t>(packed.size())));
        for (std::size_t at = 0; found && at < packed.size(); ++at) {
            PyObject* const one =
                PyBytes_FromStringAndSize(packed[at].data(), static_cast<Py_ssize_t>(packed[at].size()));
            if (!one) return nullptr;
            PyList_SET_ITEM(found.get(), static_cast<Py_ssize_t>(at), one);
        }
        return found.release();
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

PyObject* unpack(PyObject*, PyObject* given) {
    Buffers packed;
    PyObject* lengths = nullptr;
    packed.all.resize(1);
    if (!PyArg_ParseTuple(given, "y*O!", packed.all.data(), &PyTuple_Type, &lengths)) {
        packed.all.clear();
        return nullptr;
    }
    std::vector<std::size_t> all;
    std::size_t numbers = 0;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(lengths); ++at) {
        const std::size_t one = PyLong_AsSize_t(PyTuple_GET_ITEM(lengths, at));
        if (PyErr_Occurred()) return nullptr;
        if (one > most_numbers - numbers) return PyErr_Format(PyExc_ValueError, "too many numbers");
        numbers += one;
        all.push_back(one);
    }
    Ref made(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(numbers * sizeof(std::int64_t))));
    if (!made) return nullptr;
    auto* const into = reinterpret_cast<std::int64_t*>(PyBytes_AS_STRING(made.get()));
    const std::string_view bytes(static_cast<const char*>(packed.all[0].buf),
                                 static_cast<std::size_t>(packed.all[0].len));
    bool well = false, room = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        well = unpack_columns(bytes, all, into);
    } catch (const std::bad_alloc&) {
        room = false;
    }
    Py_END_ALLOW_THREADS;
    if (!room) return PyErr_NoMemory();
    if (!well) return PyErr_Format(PyExc_ValueError, "these are no columns of such lengths");
    return made.release();
}

// Some of what `unpack_rows` is given: a column of numbers that it writes; none where it shall not.
bool take_columns(PyObject* given, Py_ssize_t most, Buffers& buffers, std::vector<std::int64_t*>& columns) {
    buffers.all.reserve(static_cast<std::size_t>(PyTuple_GET_SIZE(given)));
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(given); ++at) {
        columns.push_back(nullptr);
        if (PyTuple_GET_ITEM(given, at) == Py_None) continue;
        Py_buffer one;
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(given, at), &one, PyBUF_WRITABLE) < 0) return false;
        buffers.all.push_back(one);
        if (one.len < most * Py_ssize_t{8}) {
            PyErr_SetString(PyExc_ValueError, "there is no room for so many rows");
            return false;
        }
        columns.back() = static_cast<std::int64_t*>(one.buf);
    }
    return true;
}

// A row of the table of pieces.
struct PackedPiece {
    std::int64_t begin, bytes, check, rows, place;
};

PyObject* unpack_rows(PyObject*, PyObject* given) {
    Buffers fixed, columns_held;
    PyObject *contents = nullptr, *columns = nullptr;
    fixed.all.resize(2);
    if (!PyArg_ParseTuple(given, "O!y*O!w*", &PyTuple_Type, &contents, fixed.all.data(), &PyTuple_Type,
                          &columns, fixed.all.data() + 1)) {
        fixed.all.clear();
        return nullptr;
    }
    const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(contents));
    const auto width = static_cast<std::size_t>(PyTuple_GET_SIZE(columns));
    auto* const bounds = static_cast<ColumnBounds*>(fixed.all[1].buf);
    if (static_cast<std::size_t>(fixed.all[0].len) != count * sizeof(PackedPiece) ||
        static_cast<std::size_t>(fixed.all[1].len) != count * width * sizeof(ColumnBounds))
        return PyErr_Format(PyExc_ValueError, "a piece is needed of each, and room for what it holds");
    // Its own: another thread may write to what was given.
    const auto* const told = static_cast<const PackedPiece*>(fixed.all[0].buf);
    const std::vector<PackedPiece> pieces(told, told + count);
    std::vector<std::string_view> packed;
    std::int64_t most = 0;
    for (std::size_t at = 0; at < count; ++at) {
        const PackedPiece& one = pieces[at];
        PyObject* const content = PyTuple_GET_ITEM(contents, static_cast<Py_ssize_t>(at));
        if (!PyBytes_Check(content)) return PyErr_Format(PyExc_TypeError, "bytes are needed");
        const std::int64_t size = PyBytes_GET_SIZE(content);
        const auto fits = [](std::int64_t number, std::int64_t limit) {
            return number >= 0 && number <= limit;
        };
        if (!fits(one.rows, std::int64_t{most_numbers}) || !fits(one.place, std::int64_t{most_numbers}))
            return PyErr_Format(PyExc_ValueError, "too many numbers");
        most = std::max(most, one.place + one.rows);
        // One that is shorter than it was told is found by its check.
        const std::int64_t begin = fits(one.begin, size) ? one.begin : size;
        packed.emplace_back(PyBytes_AS_STRING(content) + begin,
                            fits(one.bytes, size - begin) ? static_cast<std::size_t>(one.bytes) : 0);
    }
    std::vector<std::int64_t*> all;
    if (!take_columns(columns, most, columns_held, all)) return nullptr;
    std::size_t whole = 0;
    bool room = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        UnpackedRows rows;
        std::vector<std::int64_t*> into(width);
        for (; whole < count; ++whole) {
            const PackedPiece& one = pieces[whole];
            for (std::size_t at = 0; at < width; ++at) into[at] = all[at] ? all[at] + one.place : nullptr;
            if (!rows.take(packed[whole], static_cast<std::uint32_t>(one.check),
                           static_cast<std::size_t>(one.rows), into, bounds + whole * width))
                break;
        }
    } catch (const std::bad_alloc&) {
        room = false;
    }
    Py_END_ALLOW_THREADS;
    if (!room) return PyErr_NoMemory();
    return PyLong_FromSize_t(whole);
}

// As many numbers of 64 bits as there are in a column, which `fill` gives without the GIL.
template <typename Fill>
PyObject* numbers_like(const Py_buffer& column, Fill fill) {
    Ref made(PyBytes_FromStringAndSize(nullptr, column.len));
    if (!made) return nullptr;
    auto* const into = reinterpret_cast<std::int64_t*>(PyBytes_AS_STRING(made.get()));
    Py_BEGIN_ALLOW_THREADS;
    fill(into);
    Py_END_ALLOW_THREADS;
    return made.release();
}

PyObject* places(PyObject*, PyObject* given) {
    Py_buffer moments, asked;
    int right = 0;
    if (!PyArg_ParseTuple(given, "y*y*p", &moments, &asked, &right)) return nullptr;
    const Buffers all{{moments, asked}};
    return numbers_like(asked, [&](std::int64_t* into) {
        find_places(values_of<std::int64_t>(moments), values_of<std::int64_t>(asked), right != 0, into);
    });
}

PyObject* covered(PyObject*, PyObject* given) {
    std::array<Py_buffer, 4> all;
    if (!PyArg_ParseTuple(given, "(y*y*)y*y*", &all[0], &all[1], &all[2], &all[3])) return nullptr;
    const Buffers held{{all.begin(), all.end()}};
    if (all[0].len != all[1].len || all[2].len != all[3].len)
        return PyErr_Format(PyExc_ValueError, "as many ends as starts are needed");
    const auto column = [&](std::size_t at) { return values_of<std::int64_t>(all[at]); };
    Ref made(PyBytes_FromStringAndSize(nullptr, all[2].len));
    if (!made) return nullptr;
    auto* const into = reinterpret_cast<std::int64_t*>(PyBytes_AS_STRING(made.get()));
    without_gil([&] { find_covered(column(0), column(1), column(2), column(3), into); });
    return made.release();
}

PyObject* broken_silences_of(PyObject*, PyObject* given) {
    std::array<Py_buffer, 8> all;
    long long soon = 0;
    if (!PyArg_ParseTuple(given, "(y*y*y*)(y*y*y*y*y*)L", &all[0], &all[1], &all[2], &all[3], &all[4],
                          &all[5], &all[6], &all[7], &soon))
        return nullptr;
    const Buffers held{{all.begin(), all.end()}};
    const std::size_t calls = static_cast<std::size_t>(all[7].len);
    for (std::size_t at = 3; at < 7; ++at)
        if (values_of<std::int64_t>(all[at]).size() != calls)
            return PyErr_Format(PyExc_ValueError, "columns of calls are of different lengths");
    std::vector<Silence> found;
    bool room = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        const auto column = [&](std::size_t at) { return values_of<std::int64_t>(all[at]); };
        found = broken_silences({column(0), column(1), column(2)},
                                {column(3), column(4), column(5), column(6), values_of<std::uint8_t>(all[7])},
                                soon);
    } catch (const std::bad_alloc&) {
        room = false;
    }
    Py_END_ALLOW_THREADS;
    if (!room) return PyErr_NoMemory();
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(found.data()),
                                     static_cast<Py_ssize_t>(found.size() * sizeof(Silence)));
}

PyObject* nest_of(PyObject*, PyObject* given) {
    Py_buffer starts, ends;
    long long near = 0;
    if (!PyArg_ParseTuple(given, "y*y*L", &starts, &ends, &near)) return nullptr;
    const Buffers all{{starts, ends}};
    if (starts.len != ends.len) {
        PyErr_SetString(PyExc_ValueError, "as many ends as starts");
        return nullptr;
    }
    bool found = false, room = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        found = nest(values_of<std::int64_t>(starts), values_of<std::int64_t>(ends), near);
    } catch (const std::bad_alloc&) {
        room = false;
    }
    Py_END_ALLOW_THREADS;
    return room ? PyBool_FromLong(found) : PyErr_NoMemory();
}

PyObject* counted_pairs(PyObject*, PyObject* given) {
    Py_buffer first, second;
    if (!PyArg_ParseTuple(given, "y*y*", &first, &second)) return nullptr;
    const Buffers all{{first, second}};
    if (first.len != 8 * second.len) {
        PyErr_SetString(PyExc_ValueError, "as many numbers of 8 bits as of 64");
        return nullptr;
    }
    std::vector<PairCount> found;
    bool room = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        found = count_pairs(values_of<std::int64_t>(first), values_of<std::uint8_t>(second));
    } catch (const std::bad_alloc&) {
        room = false;
    }
    Py_END_ALLOW_THREADS;
    if (!room) return PyErr_NoMemory();
    Ref list(PyList_New(static_cast<Py_ssize_t>(found.size())));
    for (std::size_t at = 0; list && at < found.size(); ++at) {
        const PairCount& one = found[at];
        PyObject* const row = Py_BuildValue("LiL", static_cast<long long>(one.first), int{one.second},
                                            static_cast<long long>(one.count));
        if (!row) return nullptr;
        PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(at), row);
    }
    return list.release();
}

PyObject* release_free_memory(PyObject*, PyObject*) {
#ifdef __GLIBC__
    Py_BEGIN_ALLOW_THREADS;
    malloc_trim(0);
    Py_END_ALLOW_THREADS;
#endif
    return Py_NewRef(Py_None);
}

PyMethodDef functions[] = {
    {"pack_columns", pack, METH_O, "pack_columns(columns, /): columns of 64 bits each in few bytes."},
    {"pack_rows", pack_rows, METH_VARARGS,
     "pack_rows(columns, edges, /): the rows between neighbouring edges, packed as by pack_columns."},
    {"unpack_columns", unpack, METH_VARARGS,
     "unpack_columns(packed, lengths, /): columns of these lengths, one behind the other."},
    {"unpack_rows", unpack_rows, METH_VARARGS,
     "unpack_rows(contents, pieces, columns, bounds, /): of each content a piece to its place in columns. "
     "Pieces are five numbers each: begin, bytes, checksum, rows, place. Bounds are four of each piece and "
     "column: the first number, the lowest, the greatest, the least step. A column that is None is all its "
     "first number. Returns how many are whole, up to the first that is not."},
    {"places", places, METH_VARARGS,
     "places(moments, asked, right, /): how many of moments that rise are less than each asked for, or not "
     "greater. All of 64 bits."},
    {"covered", or_memory_error<covered>, METH_VARARGS,
     "covered((starts, ends), lows, highs, /): how much of stretches that are in order lies in each window."},
    {"release_free_memory", release_free_memory, METH_NOARGS,
     "release_free_memory(): gives the kernel back what the library of C holds of columns that are gone."},
    {"counted_pairs", counted_pairs, METH_VARARGS,
     "counted_pairs(first, second, /): how often numbers of 64 and of 8 bits stand side by side: pairs, each "
     "with its count, in the order in which they come."},
    {"nest", nest_of, METH_VARARGS,
     "nest(starts, ends, near, /): whether of spans by their start none cuts another, or begins so near to "
     "the end of one that holds its start."},
    {"broken_silences", broken_silences_of, METH_VARARGS,
     "broken_silences((starts, ends, others), (start, end, late, until, within), soon, /): of calls the "
     "longest silence of a thread that the end of each broke, between moments of three kinds that rise: "
     "begin, end and number of the call, three numbers each."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_columns(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace dftrace::py
