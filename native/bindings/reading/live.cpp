// What was read from a spool, as Python values.
#include "reading/live.hpp"

#include <cerrno>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <system_error>

#include "dftrace/reading/live_spool.hpp"

namespace dftrace::py {

namespace {

using Number = unsigned long long;

// Whatever bytes a spool holds.
PyObject* text(const std::string& bytes) {
    return PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
}

PyObject* number_or_none(const std::optional<std::uint64_t>& number) {
    return number ? PyLong_FromUnsignedLongLong(*number) : Py_NewRef(Py_None);
}

// A list of what `make` makes of each item; nullptr when that fails.
template <typename Items, typename Make>
PyObject* list_of(const Items& items, Make make) {
    Ref list(PyList_New(0));
    if (!list) return nullptr;
    for (const auto& item : items) {
        const Ref made(make(item));
        if (!made || PyList_Append(list.get(), made.get()) < 0) return nullptr;
    }
    return list.release();
}

PyObject* name_or_none(const std::optional<LiveName>& name) {
    return name ? Py_BuildValue("(NN)", text(name->name), text(name->category)) : Py_NewRef(Py_None);
}

PyObject* span_dict(const LiveSpan& span) {
    return Py_BuildValue("{s:K,s:K,s:K,s:k,s:N,s:N}", "id", static_cast<Number>(span.id), "parent",
                         static_cast<Number>(span.parent), "start_ns", static_cast<Number>(span.start_ns),
                         "level", static_cast<unsigned long>(span.level), "name", name_or_none(span.name),
                         "args", text(span.args));
}

PyObject* thread_dict(const LiveThread& thread) {
    const auto share = [](const auto& part) {
        return Py_BuildValue("(NK)", name_or_none(part.first), static_cast<Number>(part.second));
    };
    const auto arguments = [](const auto& one) {
        return Py_BuildValue("(KN)", static_cast<Number>(one.first), text(one.second));
    };
    return Py_BuildValue(
        "{s:k,s:N,s:N,s:K,s:k,s:N,s:N,s:N,s:K,s:K,s:N,s:N}", "tid", static_cast<unsigned long>(thread.tid),
        "name", text(thread.name), "ended", PyBool_FromLong(thread.ended), "records",
        static_cast<Number>(thread.records), "depth", static_cast<unsigned long>(thread.depth), "open",
        list_of(thread.open, span_dict), "tasks", list_of(thread.tasks, span_dict), "last_ns",
        number_or_none(thread.last_ns), "events", static_cast<Number>(thread.events), "covered_ns",
        static_cast<Number>(thread.covered_ns), "self_ns", list_of(thread.self_ns, share), "newest_args",
        list_of(thread.newest_args, arguments));
}

PyObject* spool_dict(const LiveSpool& spool) {
    static constexpr const char* states[] = {"alive", "dead", "other host"};
    return Py_BuildValue(
        "{s:k,s:k,s:N,s:N,s:N,s:s,s:K,s:K,s:K,s:N,s:N,s:K,s:K,s:K,s:K,s:k,s:K,s:N,s:N,s:N}", "pid",
        static_cast<unsigned long>(spool.pid), "parent_pid", static_cast<unsigned long>(spool.parent_pid),
        "host", text(spool.host), "run", text(spool.run), "header", text(spool.header), "state",
        states[static_cast<int>(spool.state)], "present_ns", static_cast<Number>(spool.present_ns), "now_ns",
        static_cast<Number>(spool.now_ns), "started_ns", static_cast<Number>(spool.started_ns), "prefix",
        path_text(spool.prefix), "trace_path", path_text(spool.trace_path), "spool_bytes",
        static_cast<Number>(spool.spool_bytes), "dropped", static_cast<Number>(spool.losses.dropped), "waits",
        static_cast<Number>(spool.losses.waits), "overwritten", static_cast<Number>(spool.overwritten),
        "write_error", static_cast<unsigned long>(spool.write_error), "drain_cpu_us",
        static_cast<Number>(spool.losses.drain_cpu_us), "flight_recorder",
        PyBool_FromLong(spool.flight_recorder), "finished", PyBool_FromLong(spool.finished), "threads",
        list_of(spool.threads, thread_dict));
}

// What `read` returns, with other threads going on meanwhile; nothing with an exception set.
template <typename Read>
auto read_from(PyObject* encoded, Read read) -> std::optional<decltype(read())> {
    std::optional<decltype(read())> found;
    int error = 0;
    bool no_memory = false;
    std::string refused;
    Py_BEGIN_ALLOW_THREADS;
    try {
        found = read();
    } catch (const std::system_error& failure) {
        error = failure.code().value();
    } catch (const std::bad_alloc&) {
        no_memory = true;
    } catch (const std::exception& failure) {
        refused = failure.what();
    }
    Py_END_ALLOW_THREADS;
    if (found) return found;
    errno = error;
    if (no_memory)
        PyErr_NoMemory();
    else if (error)
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, encoded);
    else
        PyErr_SetString(PyExc_ValueError, refused.c_str());
    return found;
}

}  // namespace

PyObject* look_into_spool(PyObject*, PyObject* arguments) {
    PyObject* encoded = nullptr;
    double window_s = 0.0;
    if (!PyArg_ParseTuple(arguments, "O&d", PyUnicode_FSConverter, &encoded, &window_s)) return nullptr;
    const Ref held(encoded);
    if (!(window_s >= 0.0 && window_s <= 86'400.0))
        return PyErr_Format(PyExc_ValueError, "a window of 0 to 86400 seconds is accepted");
    const std::string path = PyBytes_AS_STRING(encoded);
    const std::optional<LiveSpool> spool =
        read_from(encoded, [&] { return look_into(path, static_cast<std::uint64_t>(window_s * 1e9)); });
    return spool ? spool_dict(*spool) : nullptr;
}

PyObject* unwritten_in_spool(PyObject*, PyObject* given) {
    PyObject* encoded = nullptr;
    if (!PyUnicode_FSConverter(given, &encoded)) return nullptr;
    const Ref held(encoded);
    const std::string path = PyBytes_AS_STRING(encoded);
    const auto events = read_from(encoded, [&] { return unwritten_events(path); });
    return events ? PyLong_FromUnsignedLongLong(*events) : nullptr;
}

}  // namespace dftrace::py
