// Calls of many ranks: an order by small numbers, and what is odd about those that belong together.
#include <algorithm>
#include <array>
#include <exception>
#include <vector>

#include "dftrace/reading/traces/call_sets.hpp"
#include "reader/module.hpp"

namespace dftrace::py {

namespace {

// A buffer for as long as it is looked at.
class Held {
  public:
    Held() = default;
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
        if (view.obj) PyBuffer_Release(&view);
    }
    // Numbers of `bytes` bytes each, side by side or all the same one; false with an exception set.
    bool take(PyObject* from, Py_ssize_t bytes) {
        if (PyObject_GetBuffer(from, &view, PyBUF_STRIDED_RO) < 0) return false;
        const bool is_column = view.ndim == 1 && view.itemsize == bytes &&
                               (view.shape[0] < 2 || view.strides[0] == bytes || view.strides[0] == 0);
        if (!is_column) PyErr_SetString(PyExc_ValueError, "columns of numbers are needed, side by side");
        return is_column;
    }
    std::size_t size() const { return static_cast<std::size_t>(view.shape[0]); }
    bool is_one() const { return view.shape[0] > 0 && view.strides[0] == 0; }
    template <typename Value>
    std::span<const Value> values() const {
        return {static_cast<const Value*>(view.buf), size()};
    }

    Py_buffer view{};
};

// All side by side.
bool take_plain(Held& held, PyObject* from, Py_ssize_t bytes) {
    if (!held.take(from, bytes)) return false;
    if (held.is_one() && held.size() > 1)
        PyErr_SetString(PyExc_ValueError, "numbers are needed side by side");
    return !PyErr_Occurred();
}

constexpr Py_ssize_t number_bytes = sizeof(std::int64_t);

PyObject* counted_order(PyObject*, PyObject* given) {
    PyObject* keys_given = nullptr;
    Py_ssize_t width = 0;
    Held keys;
    if (!PyArg_ParseTuple(given, "On", &keys_given, &width) || !take_plain(keys, keys_given, number_bytes))
        return nullptr;
    Ref order(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(keys.size()) * number_bytes));
    if (!order || width < 0) return order ? PyErr_Format(PyExc_ValueError, "no width") : nullptr;
    std::vector<std::int64_t> first;
    bool well = false, room = true;
    auto* const into = reinterpret_cast<std::int64_t*>(PyBytes_AS_STRING(order.get()));
    Py_BEGIN_ALLOW_THREADS;
    try {
        well = order_by_keys(keys.values<std::int64_t>(), static_cast<std::size_t>(width), into, first);
    } catch (const std::exception&) {  // no memory, or a width beyond all there can be
        room = false;
    }
    Py_END_ALLOW_THREADS;
    if (!room) return PyErr_NoMemory();
    if (!well) return PyErr_Format(PyExc_ValueError, "a key is not from 0 to below the width");
    const auto begins = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(first.data()),
                                                  static_cast<Py_ssize_t>(first.size()) * number_bytes);
    return begins ? Py_BuildValue("NN", order.release(), begins) : nullptr;
}

// The columns of calls, in the order of `CallColumns`.
bool take_calls(PyObject* given, std::array<Held, 6>& held, CallColumns& calls, std::size_t& count) {
    if (PyTuple_GET_SIZE(given) != Py_ssize_t{6}) {
        PyErr_SetString(PyExc_ValueError, "six columns are needed");
        return false;
    }
    const std::array<CallColumn*, 6> into{&calls.rank, &calls.name,  &calls.start,
                                          &calls.end,  &calls.until, &calls.bytes};
    for (std::size_t at = 0; at < held.size(); ++at) {
        if (!held[at].take(PyTuple_GET_ITEM(given, static_cast<Py_ssize_t>(at)), number_bytes)) return false;
        if (at && held[at].size() != count) {
            PyErr_SetString(PyExc_ValueError, "columns are of different lengths");
            return false;
        }
        count = held[at].size();
        *into[at] = {static_cast<const std::int64_t*>(held[at].view.buf), held[at].is_one() ? 0u : 1u};
    }
    return true;
}

bool all_below(std::span<const std::int64_t> numbers, std::size_t bound) {
    for (const std::int64_t one : numbers)
        if (one < 0 || static_cast<std::size_t>(one) >= bound) return false;
    return true;
}
bool all_below(const CallColumn& column, std::span<const std::int64_t> rows, std::size_t bound) {
    for (const std::int64_t row : rows) {
        const std::int64_t one = column[static_cast<std::size_t>(row)];
        if (one < 0 || static_cast<std::size_t>(one) >= bound) return false;
    }
    return true;
}

PyObject* set_flags(PyObject*, PyObject* given) {
    PyObject *columns = nullptr, *rows_given = nullptr, *first_given = nullptr, *clock_given = nullptr,
             *any_given = nullptr;
    long long last_until = 0;
    std::array<Held, 6> held;
    Held rows, first, clock, any_bytes;
    CallColumns calls;
    std::size_t count = 0;
    if (!PyArg_ParseTuple(given, "O!OOOOL", &PyTuple_Type, &columns, &rows_given, &first_given, &clock_given,
                          &any_given, &last_until) ||
        !take_calls(columns, held, calls, count) || !take_plain(rows, rows_given, number_bytes) ||
        !take_plain(first, first_given, number_bytes) || !take_plain(clock, clock_given, number_bytes) ||
        !take_plain(any_bytes, any_given, 1))
        return nullptr;
    const auto of_rows = rows.values<std::int64_t>(), of_first = first.values<std::int64_t>();
    Ref flags(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(first.size())));
    if (!flags) return nullptr;
    bool well = false;
    Py_BEGIN_ALLOW_THREADS;
    well = all_below(of_rows, count) && all_below(of_first, rows.size() + 1) &&
           std::is_sorted(of_first.begin(), of_first.end()) && all_below(calls.rank, of_rows, clock.size()) &&
           all_below(calls.name, of_rows, any_bytes.size());
    if (well)
        flag_sets(calls, of_rows, of_first, clock.values<std::int64_t>(), any_bytes.values<std::uint8_t>(),
                  last_until, reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(flags.get())));
    Py_END_ALLOW_THREADS;
    if (!well) return PyErr_Format(PyExc_ValueError, "rows, ranks or names are not there");
    return flags.release();
}

PyMethodDef functions[] = {{"counted_order", counted_order, METH_VARARGS,
                            "counted_order(keys, width, /): rows in the order of keys from 0 to below width, "
                            "those of one key as they "
                            "stand, and where each key begins in them."},
                           {"set_flags", set_flags, METH_VARARGS,
                            "set_flags(columns, rows, first, clock, any_bytes, last_until, /): what is odd "
                            "about sets of rows, a byte "
                            "of bits each. Columns are rank, name, start, end, until, bytes."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_calls(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace dftrace::py
