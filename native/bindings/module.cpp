// The module `dftrace_ai._native`: start and end of a run, and what it can tell of itself.
#include <pthread.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>

#include "annotation/events.hpp"
#include "annotation/json_args.hpp"
#include "annotation/node.hpp"
#include "annotation/span.hpp"
#include "annotation/traced_function.hpp"
#include "annotation/traced_iterator.hpp"
#include "dftrace/bench/drain_benchmark.hpp"
#include "dftrace/reading/adoption.hpp"
#include "dftrace/recording/dump_signal.hpp"
#include "dftrace/recording/runtime.hpp"
#include "dftrace/spool/spool_marker.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/writing/codec.hpp"
#include "python.hpp"
#include "reading/live.hpp"
#include "tensor/tensor.hpp"

namespace dftrace::py {

namespace {

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
    // As the file system has it, which need not be text.
    std::string path(const char* key) const {
        PyObject* encoded = nullptr;
        if (!PyUnicode_FSConverter(item(key), &encoded))
            throw std::invalid_argument(std::string(key) + " must be a path");
        const Ref held(encoded);
        return {PyBytes_AS_STRING(encoded), static_cast<std::size_t>(PyBytes_GET_SIZE(encoded))};
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
        s.prefix = read.path("prefix");
        s.host = read.text("host");
        s.host_hash = hash_hex(s.host);
        s.run = read.text("run");
        s.shown_pid = static_cast<std::uint32_t>(read.number("shown_pid"));
        s.process_name_json = read.text("process_name_json");
        s.header_json = read.text("header_json");
        s.cwd_json = read.text("cwd_json");
        s.command_json = read.text("command_json");
        s.time_base_us = read.number("time_base_us");
        s.epoch_offset_ns = read.number("epoch_offset_ns");
        s.compression = compression_from(read.text("compression"));
        s.compression_level = static_cast<int>(read.number("compression_level"));
        make_codec(s.compression, s.compression_level);  // refuses a level that does not exist
        s.epoch_us = read.flag("epoch_us");
        s.ids = read.flag("ids");
        s.user_args = read.flag("user_args");
        s.block_bytes = read.number("block_bytes");
        s.flush_interval_ms = static_cast<std::uint32_t>(read.number("flush_interval_ms"));
        s.spool_dir = read.path("spool_dir");
        s.spool_bytes = read.number("spool_bytes");
        s.wait_on_overflow = read.flag("wait_on_overflow");
        s.finish_timeout_ms = static_cast<std::uint32_t>(read.number("finish_timeout_ms"));
        s.file_mode = static_cast<std::uint32_t>(read.number("file_mode"));
        s.max_file_bytes = read.number("max_file_bytes");
        s.max_files = static_cast<std::uint32_t>(read.number("max_files"));
        s.flight_recorder = read.flag("flight_recorder");
        s.flight_ns = read.number("flight_ns");
        max_arg_bytes = read.number("max_arg_bytes");
        return PyLong_FromUnsignedLongLong(start_run(s));
    } catch (const std::logic_error& error) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
}

// Paths, and messages that name them, are bytes; no byte of them may fail here.
PyObject* path_text(const std::string& bytes) {
    return PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()));
}

PyObject* outcome_dict(const Outcome& outcome) {
    return Py_BuildValue("{s:N,s:N,s:N,s:N,s:O,s:O,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "trace_path",
                         path_text(outcome.trace_path), "spool_path", path_text(outcome.spool_path),
                         "spool_refusal", path_text(outcome.spool_refusal), "error", path_text(outcome.error),
                         "abandoned", outcome.abandoned ? Py_True : Py_False, "marked",
                         outcome.marked ? Py_True : Py_False, "events",
                         static_cast<unsigned long long>(outcome.events), "lost_lines",
                         static_cast<unsigned long long>(outcome.lost_lines), "spoilt_lines",
                         static_cast<unsigned long long>(outcome.spoilt_lines), "spool_bytes",
                         static_cast<unsigned long long>(outcome.spool_bytes), "dropped",
                         static_cast<unsigned long long>(outcome.losses.dropped), "waits",
                         static_cast<unsigned long long>(outcome.losses.waits), "unmatched_stops",
                         static_cast<unsigned long long>(outcome.losses.unmatched_stops), "args_sanitised",
                         static_cast<unsigned long long>(outcome.losses.args_sanitised));
}

PyObject* finish(PyObject*, PyObject* arguments) {
    unsigned long long number = 0;
    const char* how = nullptr;
    const char *error = "", *message = nullptr, *stack = "";
    Py_ssize_t message_bytes = 0, stack_bytes = 0;
    if (!PyArg_ParseTuple(arguments, "Ks|ss#s#", &number, &how, &error, &message, &message_bytes, &stack,
                          &stack_bytes))
        return nullptr;
    Ending ending{how, error};
    if (message) {
        ending.details = ",\"message\":";
        append_json_string(ending.details, {message, static_cast<std::size_t>(message_bytes)});
        ending.details += ",\"stack\":";
        append_json_string(ending.details, {stack, static_cast<std::size_t>(stack_bytes)});
    }
    // With the GIL: no thread is in the middle of a record.
    const bool ends = run_number() == number;
    stop_run(number);
    Outcome outcome;
    without_gil([&] { outcome = complete_run(ending, number); });
    if (ends) set_dump_signal(0);
    return outcome_dict(outcome);
}

PyObject* is_on(PyObject*, PyObject*) { return PyBool_FromLong(run_is_on()); }

PyObject* number_of_run(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(run_number()); }

// The Run object of this process, which outlives the run. Changed in one step, since a signal handler
// may begin or end a run between any two byte codes.
PyObject* the_run = nullptr;

PyObject* current_run(PyObject*, PyObject*) { return Py_NewRef(the_run ? the_run : Py_None); }

PyObject* exchange_run(PyObject*, PyObject* arguments) {
    PyObject* expected = nullptr;
    PyObject* wanted = nullptr;
    if (!PyArg_ParseTuple(arguments, "OO", &expected, &wanted)) return nullptr;
    if (expected != (the_run ? the_run : Py_None)) Py_RETURN_FALSE;
    const Ref before(std::exchange(the_run, wanted == Py_None ? nullptr : Py_NewRef(wanted)));
    Py_RETURN_TRUE;
}

// Runs handlers of signals that came while the interpreter was not held; true if one raised.
bool signal_raised() {
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool raised = PyErr_CheckSignals() < 0;
    PyGILState_Release(state);
    return raised;
}

PyObject* none_or_error(int error) {
    if (PyErr_Occurred()) return nullptr;
    if (!error) Py_RETURN_NONE;
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

PyObject* write_out(const char* reason, double limit_s) {
    const std::shared_ptr<Session> session = held_session();
    if (!session) Py_RETURN_NONE;
    const std::chrono::milliseconds limit(static_cast<std::int64_t>(limit_s * 1e3));
    int error = 0;
    without_gil([&] { error = session->dump(reason, signal_raised, limit); });
    return none_or_error(error);
}

PyObject* flush(PyObject*, PyObject* arguments) {
    double limit_s = 0;
    if (!PyArg_ParseTuple(arguments, "|d", &limit_s)) return nullptr;
    return write_out("flush", limit_s);
}

PyObject* dump(PyObject*, PyObject* arguments) {
    const char* reason = nullptr;
    return PyArg_ParseTuple(arguments, "s", &reason) ? write_out(reason, 0) : nullptr;
}

PyObject* take_dump_signal_number(PyObject*, PyObject* number) {
    const long signal = PyLong_AsLong(number);
    if (signal == -1 && PyErr_Occurred()) return nullptr;
    try {
        set_dump_signal(static_cast<int>(signal));
    } catch (const std::invalid_argument& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
    Py_RETURN_NONE;
}

PyObject* stats(PyObject*, PyObject*) {
    // Held: the collector may run as the dict is made, and with it whatever ends the run.
    const std::shared_ptr<Session> session = held_session();
    if (!session) return PyDict_New();
    SpoolHeader& h = session->header();
    const WriteMark& mark = h.marks[h.landed.load() % 2];  // what is in the file, not what is on its way
    const std::string spool = h.finalized.load() ? std::string() : session->spool_path();
    const std::size_t spans = static_cast<std::size_t>(Kind::span);
    return Py_BuildValue("{s:N,s:N,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "trace_path",
                         path_text(h.trace_paths[mark.part % 2].get()), "spool_path", path_text(spool),
                         "spool_bytes", static_cast<unsigned long long>(session->spool_bytes_used()),
                         "written_bytes", static_cast<unsigned long long>(mark.file_bytes), "written_spans",
                         static_cast<unsigned long long>(mark.lines[spans] + mark.earlier_lines[spans]),
                         "overwritten", static_cast<unsigned long long>(h.overwritten.load()), "dropped",
                         static_cast<unsigned long long>(h.dropped.load()), "waits",
                         static_cast<unsigned long long>(h.waits.load()), "unmatched_stops",
                         static_cast<unsigned long long>(h.unmatched_stops.load()), "args_sanitised",
                         static_cast<unsigned long long>(h.args_sanitised.load()));
}

PyObject* adopt(PyObject*, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"spool", "directory", "descriptor", "anew", "marker", "owner", nullptr};
    PyObject* given[3] = {nullptr, nullptr, nullptr};
    int descriptor = -1;
    int anew = 0;
    long long owner = -1;
    const bool well = PyArg_ParseTupleAndKeywords(
        arguments, by_name, "O&O&|$ipO&L", const_cast<char**>(names), PyUnicode_FSConverter, &given[0],
        PyUnicode_FSConverter, &given[1], &descriptor, &anew, PyUnicode_FSConverter, &given[2], &owner);
    const Ref path(given[0]), folder(given[1]), marker(given[2]);
    if (!well) return nullptr;
    const std::string spool_path = PyBytes_AS_STRING(path.get());
    AdoptionTerms terms;
    terms.directory = PyBytes_AS_STRING(folder.get());
    terms.descriptor = descriptor;
    terms.anew = anew != 0;
    if (marker) terms.marker = PyBytes_AS_STRING(marker.get());
    if (owner >= 0) terms.owner = static_cast<std::uint32_t>(owner);
    AdoptionResult result;
    without_gil([&] { result = adopt_spool(spool_path, terms); });
    static constexpr const char* states[] = {"finished", "alive", "failed", "gone"};
    Ref dict(outcome_dict(result.outcome));
    Ref state(PyUnicode_FromString(states[static_cast<int>(result.state)]));
    Ref damage(PyList_New(0));
    if (!dict || !state || !damage || PyDict_SetItemString(dict.get(), "state", state.get()) < 0 ||
        PyDict_SetItemString(dict.get(), "was_complete", result.was_complete ? Py_True : Py_False) < 0 ||
        PyDict_SetItemString(dict.get(), "damage", damage.get()) < 0)
        return nullptr;
    for (const std::string& line : result.damage) {
        Ref text(path_text(line));
        if (!text || PyList_Append(damage.get(), text.get()) < 0) return nullptr;
    }
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
        without_gil([&] { figures = measure_drain(events, wanted, level); });
        return Py_BuildValue("{s:K,s:d,s:K,s:K}", "events", events, "seconds_cpu", figures.seconds_cpu,
                             "bytes_plain", static_cast<unsigned long long>(figures.bytes_plain),
                             "bytes_file", static_cast<unsigned long long>(figures.bytes_file));
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
}

std::string native_thread_name() {
    char native[64] = "";
    pthread_getname_np(pthread_self(), native, sizeof native);
    return native;
}

// The name that Python has for the calling thread, without making an entry for one it does not know.
std::string thread_name() {
    // A thread's `name` may be the user's code, and record, and so ask for the name again.
    const Converting asking;
    if (Converting::again()) return native_thread_name();
    ErrorAside aside;
    PyObject* threading = PyDict_GetItemString(PyImport_GetModuleDict(), "threading");
    Ref active(threading ? PyObject_GetAttrString(threading, "_active") : nullptr);
    Ref ident(PyLong_FromUnsignedLong(PyThread_get_thread_ident()));
    PyObject* thread =
        active && ident && PyDict_Check(active.get()) ? PyDict_GetItem(active.get(), ident.get()) : nullptr;
    Ref name(thread ? PyObject_GetAttrString(thread, "name") : nullptr);
    const char* utf8 = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
    const std::string known = utf8 ? utf8 : "";
    forget_error();
    return utf8 ? known : native_thread_name();
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

PyMethodDef functions[] = {
    {"show_binding", show_binding, METH_O,
     "show_binding(get): the `__get__` that is found in the type of decorated functions."},
    {"marker_place", place, METH_NOARGS, "Boot of the machine and container, as markers tell them."},
    {"process_gone", process_gone, METH_VARARGS,
     "process_gone(pid, start): whether a process of this boot and container has ended."},
    {"on_network", on_network, METH_O,
     "on_network(directory): whether it lies on a file system that other hosts may share."},
    {"start", start, METH_O, "start(settings): turn recording on; the number of the run."},
    {"finish", finish, METH_VARARGS,
     "finish(number, ended, error='', message='', stack=''): turn that run's recording off and complete the "
     "trace."},
    {"is_on", is_on, METH_NOARGS, "Whether a run is on."},
    {"run_number", number_of_run, METH_NOARGS, "The number of the run that is on; 0 for none."},
    {"current_run", current_run, METH_NOARGS, "The Run object that exchange_run put there, or None."},
    {"exchange_run", exchange_run, METH_VARARGS,
     "exchange_run(expected, wanted): make `wanted` the Run object if it is `expected`; whether it was."},
    {"flush", flush, METH_VARARGS,
     "flush(limit_s=0): write what was recorded so far to the file, within a time if one is given."},
    {"dump", dump, METH_VARARGS, "dump(reason): write out what a flight recorder holds."},
    {"set_dump_signal", take_dump_signal_number, METH_O,
     "set_dump_signal(number): a signal that asks for a dump; 0 for none."},
    {"spool_trace_directory", spool_trace_directory, METH_O,
     "spool_trace_directory(spool): where the trace of a spool is."},
    {"stats", stats, METH_NOARGS, "Counts of the run so far; empty before the first record."},
    {"adopt", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(adopt)),
     METH_VARARGS | METH_KEYWORDS,
     "adopt(spool, directory, *, descriptor=-1, anew=False, marker='', owner=-1): finish the trace of a "
     "process that died."},
    {"host_name", host, METH_NOARGS, "The host's name as it stands in file names."},
    {"look_into", look_into_spool, METH_VARARGS, "look_into(spool, window_s): what its process is doing."},
    {"build_info", build_info, METH_NOARGS, "What this module was built with."},
    {"drain_benchmark", drain_benchmark, METH_VARARGS,
     "drain_benchmark(events, compression, level=0): CPU time and bytes of writing a training loop's "
     "events."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "dftrace_ai._native",
                          "The native core of dftrace_ai.",
                          0,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

}  // namespace dftrace::py

PyMODINIT_FUNC PyInit__native() {
    using namespace dftrace::py;
    // Objects of one interpreter would reach the other through the run and the types, which are the
    // process's.
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(
            PyExc_ImportError,
            "dftrace_ai cannot be imported in a subinterpreter; import it in the main one, or use "
            "processes");
        return nullptr;
    }
    // A second import, after somebody has cleared sys.modules: the types are there already.
    static PyObject* made = nullptr;
    if (made) return Py_NewRef(made);
    dftrace::prepare_runtime();
    dftrace::set_thread_namer(thread_name);
    Ref module(PyModule_Create(&definition));
    if (!module || PyModule_AddFunctions(module.get(), event_functions) < 0 ||
        PyModule_AddFunctions(module.get(), tensor_functions) < 0 || add_span_types(module.get()) < 0 ||
        add_node_type(module.get()) < 0 || add_function_type(module.get()) < 0 ||
        add_iterator_type(module.get()) < 0)
        return nullptr;
    made = Py_NewRef(module.get());
    return module.release();
}
