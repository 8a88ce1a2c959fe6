// Spools of other processes as Python values: what one that lives is doing, the trace of one that died, and
// the places and processes that spools name.
#include <cerrno>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <system_error>

#include "dftrace/reading/adoption.hpp"
#include "dftrace/reading/live_spool.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/spool/spool_marker.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/system/host_name.hpp"
#include "parts.hpp"
#include "told.hpp"

namespace dftrace::py {

namespace {

// Whatever bytes a spool holds.
PyObject* text(const std::string& bytes) {
    return PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
}

PyObject* name_or_none(const std::optional<LiveName>& name) {
    return name ? tuple_told(text(name->name), text(name->category)) : Py_NewRef(Py_None);
}

PyObject* span_dict(const LiveSpan& span) {
    return dict_told({{"id", told(span.id)},
                      {"parent", told(span.parent)},
                      {"start_ns", told(span.start_ns)},
                      {"level", told(span.level)},
                      {"name", name_or_none(span.name)},
                      {"args", text(span.args)}});
}

PyObject* thread_dict(const LiveThread& thread) {
    const auto share = [](const auto& part) { return tuple_told(name_or_none(part.first), part.second); };
    const auto arguments = [](const auto& one) { return tuple_told(one.first, text(one.second)); };
    const auto call = [](const LiveCall& one) {
        return tuple_told(text(one.name.name), one.start_ns, one.end_ns, text(one.args));
    };
    return dict_told({{"tid", told(thread.tid)},
                      {"name", text(thread.name)},
                      {"ended", told(thread.ended)},
                      {"records", told(thread.records)},
                      {"depth", told(thread.depth)},
                      {"open", list_told(thread.open, span_dict)},
                      {"tasks", list_told(thread.tasks, span_dict)},
                      {"last_ns", told(thread.last_ns)},
                      {"events", told(thread.events)},
                      {"covered_ns", told(thread.covered_ns)},
                      {"self_ns", list_told(thread.self_ns, share)},
                      {"newest_args", list_told(thread.newest_args, arguments)},
                      {"calls", list_told(thread.calls, call)},
                      {"stack", text(thread.stack)},
                      {"stack_since_ns", told(thread.stack_since_ns)},
                      {"kernel", text(thread.kernel)}});
}

PyObject* spool_dict(const LiveSpool& spool) {
    static constexpr const char* states[] = {"alive", "dead", "other host"};
    return dict_told({{"pid", told(spool.pid)},
                      {"parent_pid", told(spool.parent_pid)},
                      {"host", text(spool.host)},
                      {"run", text(spool.run)},
                      {"header", text(spool.header)},
                      {"state", told(states[static_cast<int>(spool.state)])},
                      {"present_ns", told(spool.present_ns)},
                      {"now_ns", told(spool.now_ns)},
                      {"started_ns", told(spool.started_ns)},
                      {"prefix", path_text(spool.prefix)},
                      {"trace_path", path_text(spool.trace_path)},
                      {"spool_bytes", told(spool.spool_bytes)},
                      {"dropped", told(spool.losses.dropped)},
                      {"waits", told(spool.losses.waits)},
                      {"overwritten", told(spool.overwritten)},
                      {"write_error", told(spool.write_error)},
                      {"drain_cpu_us", told(spool.losses.drain_cpu_us)},
                      {"flight_recorder", told(spool.flight_recorder)},
                      {"finished", told(spool.finished)},
                      {"threads", list_told(spool.threads, thread_dict)}});
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

PyObject* adopt(PyObject*, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"spool",  "directory", "descriptor", "anew",
                                  "marker", "owner",     "by_loader",  nullptr};
    PyObject* given[3] = {nullptr, nullptr, nullptr};
    int descriptor = -1;
    int anew = 0, by_loader = 0;
    long long owner = -1;
    const bool well =
        PyArg_ParseTupleAndKeywords(arguments, by_name, "O&O&|$ipO&Lp", const_cast<char**>(names),
                                    PyUnicode_FSConverter, &given[0], PyUnicode_FSConverter, &given[1],
                                    &descriptor, &anew, PyUnicode_FSConverter, &given[2], &owner, &by_loader);
    const Ref path(given[0]), folder(given[1]), marker(given[2]);
    if (!well) return nullptr;
    const std::string spool_path = PyBytes_AS_STRING(path.get());
    AdoptionTerms terms;
    terms.directory = PyBytes_AS_STRING(folder.get());
    terms.descriptor = descriptor;
    terms.anew = anew != 0;
    terms.by_loader = by_loader != 0;
    if (marker) terms.marker = PyBytes_AS_STRING(marker.get());
    if (owner >= 0) terms.owner = static_cast<std::uint32_t>(owner);
    AdoptionResult result;
    without_gil([&] { result = adopt_spool(spool_path, terms); });
    static constexpr const char* states[] = {"finished", "alive", "failed", "gone"};
    Ref dict(outcome_dict(result.outcome));
    Ref state(PyUnicode_FromString(states[static_cast<int>(result.state)]));
    Ref damage(list_told(result.damage, path_text));
    if (!dict || !state || !damage || PyDict_SetItemString(dict.get(), "state", state.get()) < 0 ||
        PyDict_SetItemString(dict.get(), "was_complete", result.was_complete ? Py_True : Py_False) < 0 ||
        PyDict_SetItemString(dict.get(), "damage", damage.get()) < 0)
        return nullptr;
    return dict.release();
}

PyObject* spool_trace_directory(PyObject*, PyObject* path) {
    PyObject* encoded = nullptr;
    if (!PyUnicode_FSConverter(path, &encoded)) return nullptr;
    const Ref held(encoded);
    try {
        const std::string directory = trace_directory_of(PyBytes_AS_STRING(encoded));
        return PyUnicode_DecodeFSDefault(directory.c_str());
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
}

PyObject* host(PyObject*, PyObject*) { return PyUnicode_FromString(host_name().c_str()); }

PyObject* place(PyObject*, PyObject*) { return PyUnicode_FromString(marker_place().c_str()); }

PyObject* process_gone(PyObject*, PyObject* arguments) {
    unsigned int pid = 0;
    unsigned long long started = 0;
    if (!PyArg_ParseTuple(arguments, "IK", &pid, &started)) return nullptr;
    ProcessIdentity process = ProcessIdentity::self();
    process.pid = pid;
    process.start = started;
    return PyBool_FromLong(process.gone());
}

PyObject* on_network(PyObject*, PyObject* path) {
    PyObject* bytes = nullptr;
    if (!PyUnicode_FSConverter(path, &bytes)) return nullptr;
    const Ref held(bytes);
    return PyBool_FromLong(is_network_file_system(PyBytes_AS_STRING(bytes)));
}

}  // namespace

PyMethodDef spool_functions[] = {
    {"look_into", or_memory_error<look_into_spool>, METH_VARARGS,
     "look_into(spool, window_s): what its process is doing."},
    {"unwritten_events", or_memory_error<unwritten_in_spool>, METH_O,
     "unwritten_events(spool, /): how many events it holds that its trace lacks."},
    {"adopt", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(adopt)),
     METH_VARARGS | METH_KEYWORDS,
     "adopt(spool, directory, *, descriptor=-1, anew=False, marker='', owner=-1, by_loader=False): finish "
     "the trace of a process that died."},
    {"spool_trace_directory", spool_trace_directory, METH_O,
     "spool_trace_directory(spool): where the trace of a spool is."},
    {"marker_place", or_memory_error<place>, METH_NOARGS,
     "Boot of the machine and container, as markers tell them."},
    {"process_gone", or_memory_error<process_gone>, METH_VARARGS,
     "process_gone(pid, start): whether a process of this boot and container has ended."},
    {"on_network", or_memory_error<on_network>, METH_O,
     "on_network(directory): whether it lies on a file system that other hosts may share."},
    {"host_name", or_memory_error<host>, METH_NOARGS, "The host's name as it stands in file names."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dftrace::py
