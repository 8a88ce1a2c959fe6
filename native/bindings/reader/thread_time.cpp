// Spans by time, and whose the time of a thread is; columns come and go as bytes.
#include "dftrace/reading/traces/thread_time.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "dftrace/reading/traces/thread_spans.hpp"
#include "reader/buffers.hpp"
#include "reader/module.hpp"

namespace dftrace::py {

namespace {

constexpr std::size_t most_rows = std::numeric_limits<std::int32_t>::max();

// Spans of a thread, and the table of parts.
struct GivenThread {
    // Copies of what leads to a place: somebody else may write to what was given meanwhile.
    std::vector<std::uint8_t> roles, within;
    ThreadSpans spans;
    PartTable table;

    // False with an exception set.
    bool take(std::span<const Py_buffer> of_spans, const Py_buffer& of_table, Py_ssize_t count) {
        const auto given_roles = values_of<std::uint8_t>(of_spans[2]);
        const auto given_parts = values_of<std::uint8_t>(of_table);
        roles.assign(given_roles.begin(), given_roles.end());
        within.assign(given_parts.begin(), given_parts.end());
        spans = {values_of<std::int64_t>(of_spans[0]), values_of<std::int64_t>(of_spans[1]), roles};
        table.within = within;
        table.roles = static_cast<std::size_t>(count);
        const std::size_t size = within.size();
        const bool is_table = count > 0 && size > 0 && size % table.roles == 0 && size / table.roles <= 256;
        const auto below = [](const std::vector<std::uint8_t>& codes, std::size_t bound) {
            return std::all_of(codes.begin(), codes.end(), [=](std::uint8_t code) { return code < bound; });
        };
        if (!is_table || !below(within, size / table.roles) || !below(roles, table.roles)) {
            PyErr_SetString(PyExc_ValueError, "codes are of no part or role");
            return false;
        }
        if (spans.starts.size() != spans.ends.size() || spans.starts.size() != roles.size() ||
            roles.size() > most_rows) {
            PyErr_SetString(PyExc_ValueError, "as many starts, ends and roles are needed");
            return false;
        }
        return true;
    }
};

PyObject* thread_pieces_of(PyObject*, PyObject* given) {
    std::array<Py_buffer, 5> all;
    Py_ssize_t roles = 0;
    long long near = 0;
    unsigned char other_part = 0, other_role = 0;
    if (!PyArg_ParseTuple(given, "(y*y*y*)y*(y*nbb)L", &all[0], &all[1], &all[2], &all[3], &all[4], &roles,
                          &other_part, &other_role, &near))
        return nullptr;
    const Buffers held{{all.begin(), all.end()}};
    GivenThread of;
    of.table.other_part = other_part;
    of.table.other_role = other_role;
    if (!of.take({all.data(), 3}, all[4], roles)) return nullptr;
    const auto counts = values_of<std::uint8_t>(all[3]);
    if (counts.size() != of.roles.size())
        return PyErr_Format(PyExc_ValueError, "it is to be told of each whether it counts");
    ThreadPieces found;
    without_gil([&] { found = thread_pieces(of.spans, counts, of.table, near); });
    return Py_BuildValue("NNNN", bytes_of(found.starts), bytes_of(found.ends), bytes_of(found.parts),
                         bytes_of(found.owners));
}

PyObject* outermost_work_of(PyObject*, PyObject* given) {
    std::array<Py_buffer, 5> all;
    Py_ssize_t roles = 0;
    unsigned char other_part = 0, other_role = 0;
    if (!PyArg_ParseTuple(given, "(y*y*y*)y*(y*nbb)", &all[0], &all[1], &all[2], &all[3], &all[4], &roles,
                          &other_part, &other_role))
        return nullptr;
    const Buffers held{{all.begin(), all.end()}};
    GivenThread of;
    of.table.other_part = other_part;
    of.table.other_role = other_role;
    if (!of.take({all.data(), 3}, all[4], roles)) return nullptr;
    const auto kinds = values_of<std::uint8_t>(all[3]);
    std::vector<Work> of_roles;
    for (const std::uint8_t kind : kinds)
        of_roles.push_back(kind == 1 ? Work::work : kind == 2 ? Work::other : Work::none);
    if (of_roles.size() != of.table.roles)
        return PyErr_Format(PyExc_ValueError, "it is to be told of each role whether it is work");
    OutermostWork found;
    without_gil([&] { found = outermost_work(of.spans, of_roles, of.table); });
    return Py_BuildValue("NN", bytes_of(found.whole), bytes_of(found.mixed));
}

PyObject* cut_pieces_of(PyObject*, PyObject* given) {
    std::array<Py_buffer, 3> all;
    if (!PyArg_ParseTuple(given, "y*y*y*", &all[0], &all[1], &all[2])) return nullptr;
    const Buffers held{{all.begin(), all.end()}};
    if (all[0].len != all[1].len) return PyErr_Format(PyExc_ValueError, "as many ends as starts are needed");
    CutPieces found;
    const auto column = [&](std::size_t at) { return values_of<std::int64_t>(all[at]); };
    without_gil([&] { found = cut_pieces(column(0), column(1), column(2)); });
    return Py_BuildValue("NNN", bytes_of(found.piece), bytes_of(found.low), bytes_of(found.high));
}

PyObject* time_order(PyObject*, PyObject* given) {
    std::array<Py_buffer, 4> all;
    if (!PyArg_ParseTuple(given, "y*y*y*y*", &all[0], &all[1], &all[2], &all[3])) return nullptr;
    const Buffers held{{all.begin(), all.end()}};
    const auto starts = values_of<std::int64_t>(all[1]);
    // A copy: somebody else may write to it meanwhile.
    const auto by_start = values_of<std::int64_t>(all[0]);
    std::vector<std::int64_t> order(by_start.begin(), by_start.end());
    const auto is_row = [&](std::int64_t row) {
        return row >= 0 && static_cast<std::size_t>(row) < starts.size();
    };
    if (all[1].len != all[2].len || all[1].len != all[3].len ||
        !std::all_of(order.begin(), order.end(), is_row))
        return PyErr_Format(PyExc_ValueError, "as many starts, ends and numbers are needed as rows");
    without_gil([&] {
        order_ties(starts, values_of<std::int64_t>(all[2]), values_of<std::uint64_t>(all[3]), order);
    });
    return bytes_of(order);
}

PyObject* event_reach_of(PyObject*, PyObject* given) {
    std::array<Py_buffer, 3> all;
    unsigned char without = 0;
    long long latest = 0;
    if (!PyArg_ParseTuple(given, "y*y*y*bL", &all[0], &all[1], &all[2], &without, &latest)) return nullptr;
    const Buffers held{{all.begin(), all.end()}};
    const auto phases = values_of<std::uint8_t>(all[0]);
    const auto starts = values_of<std::int64_t>(all[1]), lengths = values_of<std::int64_t>(all[2]);
    if (phases.size() != starts.size() || phases.size() != lengths.size() || latest < 0 ||
        latest > std::numeric_limits<std::int64_t>::max() / 2)
        return PyErr_Format(PyExc_ValueError, "as many phases, starts and lengths are needed");
    EventReach found{};
    without_gil([&] { found = event_reach(phases, starts, lengths, without, latest); });
    if (found.first > found.last) Py_RETURN_NONE;
    return Py_BuildValue("LL", static_cast<long long>(found.first), static_cast<long long>(found.last));
}

PyMethodDef functions[] = {
    {"thread_pieces", or_memory_error<thread_pieces_of>, METH_VARARGS,
     "thread_pieces((starts, ends, roles), counts, (within, roles, other part, other role), near, /): of "
     "spans of a thread by their start the innermost that counts at each moment: where pieces begin and "
     "end, their parts, and rows of 32 bits. `within` has a row of parts by role for each part."},
    {"outermost_work", or_memory_error<outermost_work_of>, METH_VARARGS,
     "outermost_work((starts, ends, roles), kinds, (within, roles, other part, other role), /): rows of work "
     "that lies in none, where all in it is its part; and of the other, with what lies in it. Of kinds of "
     "roles 1 is work, 2 other work, which counts where it does not begin in the former."},
    {"cut_pieces", or_memory_error<cut_pieces_of>, METH_VARARGS,
     "cut_pieces(starts, ends, cuts, /): pieces cut at moments that rise: number, begin and end of each."},
    {"time_order", or_memory_error<time_order>, METH_VARARGS,
     "time_order(order, starts, ends, numbers, /): rows that are in order of their starts, those that begin "
     "together by falling end and by number."},
    {"event_reach", or_memory_error<event_reach_of>, METH_VARARGS,
     "event_reach(phases, starts, lengths, without, latest, /): the first start and the last end of events "
     "with a time, but for those of a phase; None for none. Both count up to `latest`."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_thread_time(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace dftrace::py
