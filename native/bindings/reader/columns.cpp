// Columns of numbers: packed and unpacked, places among those that rise.
#include <algorithm>
#include <string_view>
#include <vector>

#include "dftrace/reading/traces/moments.hpp"
#include "dftrace/reading/traces/packed_columns.hpp"
#include "reader/module.hpp"

namespace dftrace::py {

namespace {

// A bound for what a damaged file may ask for.
constexpr std::size_t most_numbers = std::size_t{1} << 27;

struct Buffers {
    std::vector<Py_buffer> all;
    ~Buffers() {
        for (Py_buffer& one : all) PyBuffer_Release(&one);
    }
};

PyObject* pack(PyObject*, PyObject* given) {
    const Ref list(PySequence_Fast(given, "columns are needed"));
    if (!list) return nullptr;
    try {
        Buffers buffers;
        std::vector<std::span<const std::int64_t>> columns;
        const Py_ssize_t count = PySequence_Fast_GET_SIZE(list.get());
        buffers.all.reserve(static_cast<std::size_t>(count));
        for (Py_ssize_t at = 0; at < count; ++at) {
            Py_buffer one;
            if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(list.get(), at), &one, PyBUF_SIMPLE) < 0)
                return nullptr;
            buffers.all.push_back(one);
            if (one.len % 8) {
                PyErr_SetString(PyExc_ValueError, "numbers of 64 bits are needed");
                return nullptr;
            }
            columns.emplace_back(static_cast<const std::int64_t*>(one.buf),
                                 static_cast<std::size_t>(one.len) / sizeof(std::int64_t));
        }
        const std::string packed = pack_columns(columns);
        return PyBytes_FromStringAndSize(packed.data(), static_cast<Py_ssize_t>(packed.size()));
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

template <typename Value>
std::span<const Value> values_of(const Py_buffer& buffer) {
    return {static_cast<const Value*>(buffer.buf), static_cast<std::size_t>(buffer.len) / sizeof(Value)};
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

PyObject* longest(PyObject*, PyObject* given) {
    Py_buffer moments, first, last, ends;
    if (!PyArg_ParseTuple(given, "y*y*y*y*", &moments, &first, &last, &ends)) return nullptr;
    const Buffers all{{moments, first, last, ends}};
    if (first.len != last.len || (ends.len && ends.len != moments.len / 8)) {
        PyErr_SetString(PyExc_ValueError, "as many ends as beginnings and moments");
        return nullptr;
    }
    return numbers_like(first, [&](std::int64_t* into) {
        find_longest(values_of<std::int64_t>(moments), values_of<std::int64_t>(first),
                     values_of<std::int64_t>(last), values_of<std::uint8_t>(ends), into);
    });
}

PyMethodDef functions[] = {
    {"pack_columns", pack, METH_O, "pack_columns(columns, /): columns of 64 bits each in few bytes."},
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
    {"longest", longest, METH_VARARGS,
     "longest(moments, first, last, ends, /): where in each stretch of moments that rise the longest step "
     "between "
     "neighbours begins, the last of several; -1 for none. Those count that end where `ends` is not 0."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_columns(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace dftrace::py
