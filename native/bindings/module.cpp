// The module `dftrace_ai._native`: start and end of a run, and what it can tell of itself.
#include <pthread.h>

#include <stdexcept>
#include <string>
#include <system_error>

#include "dftrace/adoption.hpp"
#include "dftrace/codec.hpp"
#include "dftrace/drain_benchmark.hpp"
#include "dftrace/runtime.hpp"
#include "events.hpp"
#include "json_args.hpp"
#include "node.hpp"
#include "python.hpp"
#include "span.hpp"
#include "traced_function.hpp"
#include "traced_iterator.hpp"

namespace dftrace::py {

namespace {

class WithoutGil {
  public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    ~WithoutGil() { PyEval_RestoreThread(state_); }
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

  private:
    PyThreadState* state_;
};

// Reads members of the settings dict; the first that is missing or of the wrong type throws.
class SettingsReader {
  public:
    explicit SettingsReader(PyObject* dict) : dict_(dict) {}
    std::string text(const char* key) const {
        Py_ssize_t bytes = 0;
        const char* utf8 = PyUnicode_AsUTF8AndSize(item(key), &bytes);
        if (!utf8) throw std::invalid_argument(std::string(key) + " must be text");
        return {utf8, static_cast<std::size_t>(bytes)};
    }
    std::uint64_t number(const char* key) const {
        const unsigned long long value = PyLong_AsUnsignedLongLong(item(key));
        if (PyErr_Occurred()) throw std::invalid_argument(std::string(key) + " must be a positive integer");
        return value;
    }
    bool flag(const char* key) const { return PyObject_IsTrue(item(key)) == 1; }

  private:
    PyObject* item(const char* key) const {
        PyObject* value = PyDict_GetItemString(dict_, key);
        if (!value) throw std::invalid_argument(std::string("no setting ") + key);
        return value;
    }
    PyObject* dict_;
};

PyObject* start(PyObject*, PyObject* dict) {
    if (!PyDict_Check(dict)) return PyErr_Format(PyExc_TypeError, "settings must be a dict");
    try {
        const SettingsReader read(dict);
        TraceSettings s;
        s.prefix = read.text("prefix");
        s.host = read.text("host");
        s.host_hash = hash_hex(s.host);
        s.run = read.text("run");
        s.shown_pid = static_cast<std::uint32_t>(read.number("shown_pid"));
        s.process_name_json = read.text("process_name_json");
        s.header_json = read.text("header_json");
        s.cwd_json = read.text("cwd_json");
        s.command_json = read.text("command_json");
        s.time_base_us = read.number("time_base_us");
        s.compression = compression_from(read.text("compression"));
        s.compression_level = static_cast<int>(read.number("compression_level"));
        make_codec(s.compression, s.compression_level);  // refuses a level that does not exist
        s.epoch_us = read.flag("epoch_us");
        s.ids = read.flag("ids");
        s.user_args = read.flag("user_args");
        s.block_bytes = read.number("block_bytes");
        s.flush_interval_ms = static_cast<std::uint32_t>(read.number("flush_interval_ms"));
        s.spool_dir = read.text("spool_dir");
        s.spool_bytes = read.number("spool_bytes");
        s.wait_on_overflow = read.flag("wait_on_overflow");
        max_arg_bytes = read.number("max_arg_bytes");
        start_run(s);
    } catch (const std::logic_error& error) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
    Py_RETURN_NONE;
}

PyObject* outcome_dict(const Outcome& outcome) {
    return Py_BuildValue("{s:s,s:s,s:s,s:K,s:K,s:K,s:K,s:K,s:K}", "trace_path", outcome.trace_path.c_str(),
                         "spool_path", outcome.spool_path.c_str(), "error", outcome.error.c_str(), "events",
                         static_cast<unsigned long long>(outcome.events), "lost_lines",
                         static_cast<unsigned long long>(outcome.lost_lines), "dropped",
                         static_cast<unsigned long long>(outcome.losses.dropped), "waits",
                         static_cast<unsigned long long>(outcome.losses.waits), "unmatched_stops",
                         static_cast<unsigned long long>(outcome.losses.unmatched_stops), "args_sanitised",
                         static_cast<unsigned long long>(outcome.losses.args_sanitised));
}

PyObject* finish(PyObject*, PyObject* arguments) {
    const char* ended = nullptr;
    if (!PyArg_ParseTuple(arguments, "s", &ended)) return nullptr;
    Outcome outcome;
    {
        WithoutGil without;
        outcome = finish_run(ended);
    }
    return outcome_dict(outcome);
}

PyObject* is_on(PyObject*, PyObject*) { return PyBool_FromLong(run_is_on()); }

PyObject* flush(PyObject*, PyObject*) {
    Session* session = current_session();
    if (!session || !run_is_on()) Py_RETURN_NONE;
    int error = 0;
    {
        WithoutGil without;
        error = session->flush();
    }
    if (error) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

PyObject* stats(PyObject*, PyObject*) {
    Session* session = current_session();
    if (!session || !run_is_on()) return PyDict_New();
    SpoolHeader& h = session->header();
    const std::size_t path_bytes = h.trace_path_bytes.load(std::memory_order_acquire);
    const WriteMark& mark = h.marks[h.write_number.load(std::memory_order_acquire) % 2];
    return Py_BuildValue("{s:s#,s:s,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "trace_path", h.trace_path,
                         static_cast<Py_ssize_t>(path_bytes), "spool_path",
                         h.finalized.load() ? "" : session->spool_path().c_str(), "spool_bytes",
                         static_cast<unsigned long long>(session->spool_bytes_used()), "written_bytes",
                         static_cast<unsigned long long>(mark.file_bytes), "written_spans",
                         static_cast<unsigned long long>(mark.lines[static_cast<std::size_t>(Kind::span)]),
                         "dropped", static_cast<unsigned long long>(h.dropped.load()), "waits",
                         static_cast<unsigned long long>(h.waits.load()), "unmatched_stops",
                         static_cast<unsigned long long>(h.unmatched_stops.load()), "args_sanitised",
                         static_cast<unsigned long long>(h.args_sanitised.load()));
}

PyObject* adopt(PyObject*, PyObject* arguments) {
    const char* path = nullptr;
    if (!PyArg_ParseTuple(arguments, "s", &path)) return nullptr;
    const std::string spool_path = path;
    AdoptionResult result;
    {
        WithoutGil without;
        result = adopt_spool(spool_path);
    }
    static constexpr const char* states[] = {"finished", "alive", "failed"};
    Ref dict(outcome_dict(result.outcome));
    Ref state(PyUnicode_FromString(states[static_cast<int>(result.state)]));
    if (!dict || !state || PyDict_SetItemString(dict.get(), "state", state.get()) < 0) return nullptr;
    return dict.release();
}

PyObject* build_info(PyObject*, PyObject*) {
    return Py_BuildValue("{s:s,s:s,s:s,s:K,s:s,s:i,s:n}", "gzip", gzip_library().c_str(), "zstd",
                         zstd_library().c_str(), "clock", tick_source.name(), "clock_min_step_ticks",
                         static_cast<unsigned long long>(tick_source.min_step), "compiler", __VERSION__,
                         "spool_version", static_cast<int>(spool_version), "record_bytes",
                         static_cast<Py_ssize_t>(sizeof(Record)));
}

PyObject* drain_benchmark(PyObject*, PyObject* arguments) {
    unsigned long long events = 0;
    const char* compression = nullptr;
    int level = 0;
    if (!PyArg_ParseTuple(arguments, "Ks|i", &events, &compression, &level)) return nullptr;
    try {
        DrainFigures figures;
        const Compression wanted = compression_from(compression);
        {
            WithoutGil without;
            figures = measure_drain(events, wanted, level);
        }
        return Py_BuildValue("{s:K,s:d,s:K,s:K}", "events", events, "seconds_cpu", figures.seconds_cpu,
                             "bytes_plain", static_cast<unsigned long long>(figures.bytes_plain),
                             "bytes_file", static_cast<unsigned long long>(figures.bytes_file));
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
}

// The name that Python has for the calling thread, without making an entry for one it does not know.
std::string thread_name() {
    ErrorAside aside;
    PyObject* threading = PyDict_GetItemString(PyImport_GetModuleDict(), "threading");
    Ref active(threading ? PyObject_GetAttrString(threading, "_active") : nullptr);
    Ref ident(PyLong_FromUnsignedLong(PyThread_get_thread_ident()));
    PyObject* thread =
        active && ident && PyDict_Check(active.get()) ? PyDict_GetItem(active.get(), ident.get()) : nullptr;
    Ref name(thread ? PyObject_GetAttrString(thread, "name") : nullptr);
    const char* utf8 = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
    PyErr_Clear();
    if (utf8) return utf8;
    char native[64] = "";
    pthread_getname_np(pthread_self(), native, sizeof native);
    return native;
}

PyObject* host(PyObject*, PyObject*) { return PyUnicode_FromString(host_name().c_str()); }

PyMethodDef functions[] = {
    {"start", start, METH_O, "start(settings): turn recording on."},
    {"finish", finish, METH_VARARGS, "finish(ended): turn recording off and complete the trace."},
    {"is_on", is_on, METH_NOARGS, "Whether a run is on."},
    {"flush", flush, METH_NOARGS, "Write what was recorded so far to the file."},
    {"stats", stats, METH_NOARGS, "Counts of the run so far; empty before the first record."},
    {"adopt", adopt, METH_VARARGS, "adopt(spool): finish the trace of a process that died."},
    {"host_name", host, METH_NOARGS, "The host's name as it stands in file names."},
    {"build_info", build_info, METH_NOARGS, "What this module was built with."},
    {"drain_benchmark", drain_benchmark, METH_VARARGS,
     "drain_benchmark(events, compression, level=0): CPU time and bytes of writing a training loop's "
     "events."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "dftrace_ai._native",
                          "The native core of dftrace_ai.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

}  // namespace dftrace::py

PyMODINIT_FUNC PyInit__native() {
    using namespace dftrace::py;
    dftrace::prepare_runtime();
    dftrace::set_thread_namer(thread_name);
    Ref module(PyModule_Create(&definition));
    if (!module || PyModule_AddFunctions(module.get(), event_functions) < 0 ||
        add_span_types(module.get()) < 0 || add_node_type(module.get()) < 0 ||
        add_function_type(module.get()) < 0 || add_iterator_type(module.get()) < 0)
        return nullptr;
    return module.release();
}
