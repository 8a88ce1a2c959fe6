// The life of a run, as Python drives it: its settings, its beginning and end, what it can tell of itself
// meanwhile, and what a thread that begins to record is called.
#include <pthread.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "arguments/json_args.hpp"
#include "dftrace/recording/dump_signal.hpp"
#include "dftrace/recording/runtime.hpp"
#include "dftrace/recording/sampler.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/system/children.hpp"
#include "dftrace/system/held_file.hpp"
#include "dftrace/text/hash.hpp"
#include "dftrace/text/json_string.hpp"
#include "dftrace/writing/codec.hpp"
#include "dftrace/writing/outcome.hpp"
#include "parts.hpp"
#include "stacks/interpreter_layout.h"
#include "told.hpp"

namespace dftrace::py {

namespace {

// Reads members of the settings dict; the first that is missing or of the wrong type throws.
class SettingsReader {
  public:
    explicit SettingsReader(PyObject* dict) : dict_(dict) {}
    void into(std::string& value, const SettingField& field) const {
        value = field.from == SettingFrom::caller_path ? path(field.key) : text(field.key);
    }
    void into(bool& value, const SettingField& field) const { value = flag(field.key); }
    void into(Compression& value, const SettingField& field) const {
        value = compression_from(text(field.key));
    }
    template <typename Number>
    void into(Number& value, const SettingField& field) const {
        value = static_cast<Number>(number(field.key));
    }
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

// Throws std::invalid_argument, which names the first that is missing or of the wrong type; a Python
// exception may be set as well.
TraceSettings settings_from(PyObject* dict) {
    const SettingsReader read(dict);
    TraceSettings settings;
    for (const SettingField& field : setting_fields)
        if (field.from != SettingFrom::here)
            std::visit([&](auto member) { read.into(settings.*member, field); }, field.member);
    settings.host_hash = hash_hex(settings.host);
    max_arg_bytes = read.number("max_arg_bytes");
    return settings;
}

PyObject* start(PyObject*, PyObject* dict) {
    if (!PyDict_Check(dict)) return PyErr_Format(PyExc_TypeError, "settings must be a dict");
    try {
        const TraceSettings settings = settings_from(dict);
        InterpreterLayout layout;
        if (!settings.lines_roots.empty() && !dftrace_interpreter_layout(&layout))
            set_interpreter_layout(layout);
        make_codec(settings.compression, settings.compression_level);  // refuses a level that does not exist
        return PyLong_FromUnsignedLongLong(start_run(settings));
    } catch (const std::logic_error& error) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
}

// Times that a run has said which signal asks for a dump; counted with the GIL.
std::uint64_t dump_signals_taken = 0;

PyObject* finish(PyObject*, PyObject* arguments) {
    unsigned long long number = 0;
    const char* how = nullptr;
    const char *error = "", *message = nullptr, *stack = "", *layout = "";
    Py_ssize_t message_bytes = 0, stack_bytes = 0;
    int exit_status = -1;
    if (!PyArg_ParseTuple(arguments, "Ks|sz#s#si", &number, &how, &error, &message, &message_bytes, &stack,
                          &stack_bytes, &layout, &exit_status))
        return nullptr;
    Ending ending{how, error};
    ending.layout = layout;
    ending.exit_status = exit_status;
    if (message) {
        ending.details = ",\"message\":";
        append_json_string(ending.details, {message, static_cast<std::size_t>(message_bytes)});
        ending.details += ",\"stack\":";
        append_json_string(ending.details, {stack, static_cast<std::size_t>(stack_bytes)});
    }
    // With the GIL: no thread is in the middle of a record.
    const bool ends = run_number() == number;
    const std::uint64_t taken = dump_signals_taken;
    stop_run(number);
    Outcome outcome;
    bool no_memory = false;
    without_gil([&] {
        try {
            outcome = complete_run(std::move(ending), number);
        } catch (const std::bad_alloc&) {
            no_memory = true;
        }
    });
    // Meanwhile another thread may have begun the next run, whose signal it is now.
    if (ends && taken == dump_signals_taken) set_dump_signal(0);
    return no_memory ? PyErr_NoMemory() : outcome_dict(outcome);
}

// None of the numbers is below 0 where it is known.
PyObject* know_place(PyObject*, PyObject* arguments) {
    int rank = -1, world_size = -1, local_rank = -1, live_file_ms = 0;
    if (!PyArg_ParseTuple(arguments, "iii|i", &rank, &world_size, &local_rank, &live_file_ms)) return nullptr;
    const std::shared_ptr<Session> session = held_session();
    if (!session || rank < 0) Py_RETURN_FALSE;
    session->header().late_place.know(rank, world_size, local_rank);
    if (live_file_ms > 0) session->tell_others_every(static_cast<std::uint32_t>(live_file_ms));
    Py_RETURN_TRUE;
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
        ++dump_signals_taken;
    } catch (const std::invalid_argument& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
    Py_RETURN_NONE;
}

PyObject* reserve(PyObject*, PyObject* arguments) {
    int number = -1;
    long long bytes = 0;
    if (!PyArg_ParseTuple(arguments, "iL", &number, &bytes)) return nullptr;
    int error = 0;
    without_gil([&] { error = reserve_room(number, 0, static_cast<std::size_t>(bytes)); });
    return none_or_error(error);
}

PyObject* stats(PyObject*, PyObject*) {
    // Held: the collector may run as the dict is made, and with it whatever ends the run.
    const std::shared_ptr<Session> session = held_session();
    if (!session) return PyDict_New();
    SpoolHeader& h = session->header();
    const Written written = session->written();  // what is in the file, not what is on its way
    const std::string spool = h.finalized.load() ? std::string() : session->spool_path();
    const std::size_t spans = static_cast<std::size_t>(Kind::span);
    return dict_told({{"trace_path", path_text(written.path)},
                      {"spool_path", path_text(spool)},
                      {"spool_bytes", told(session->spool_bytes_used())},
                      {"written_bytes", told(written.file_bytes)},
                      {"written_spans", told(written.lines[spans])},
                      {"overwritten", told(h.overwritten.load())},
                      {"dropped", told(h.dropped.load())},
                      {"waits", told(h.waits.load())},
                      {"unmatched_stops", told(h.unmatched_stops.load())},
                      {"args_sanitised", told(h.args_sanitised.load())}});
}

// Asks Python for it without making an entry for a thread that it does not know.
std::string native_thread_name() {
    char native[64] = "";
    pthread_getname_np(pthread_self(), native, sizeof native);
    return native;
}

// Without a line of Python where the class leaves `name` as it is: there a signal's handler would run, and
// what it raises is the program's.
Ref name_of(PyObject* threading, PyObject* thread) {
    const Ref base(PyObject_GetAttrString(threading, "Thread"));
    const Ref usual(base ? PyObject_GetAttrString(base.get(), "name") : nullptr);
    const Ref own(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(thread)), "name"));
    if (usual && usual.get() == own.get()) {
        Ref name(PyObject_GetAttrString(thread, "_name"));
        if (name) return name;
    }
    PyErr_Clear();
    return Ref(PyObject_GetAttrString(thread, "name"));
}

}  // namespace

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
    const Ref name = thread ? name_of(threading, thread) : Ref();
    const char* utf8 = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
    const std::string known = utf8 ? utf8 : "";
    forget_error();
    return utf8 ? known : native_thread_name();
}

PyObject* outcome_dict(const Outcome& outcome) {
    const Losses& losses = outcome.losses;
    return dict_told({{"trace_path", path_text(outcome.trace_path)},
                      {"spool_path", path_text(outcome.spool_path)},
                      {"spool_refusal", path_text(outcome.spool_refusal)},
                      {"error", path_text(outcome.error)},
                      {"abandoned", told(outcome.abandoned)},
                      {"marked", told(outcome.marked)},
                      {"events", told(outcome.events)},
                      {"lost_lines", told(outcome.lost_lines)},
                      {"spoilt_lines", told(outcome.spoilt_lines)},
                      {"spool_bytes", told(outcome.spool_bytes)},
                      {"dropped", told(losses.dropped)},
                      {"waits", told(losses.waits)},
                      {"unmatched_stops", told(losses.unmatched_stops)},
                      {"args_sanitised", told(losses.args_sanitised)}});
}

// The interpreter's lock once for the whole look, and not for each of hundreds of small files.
PyObject* seconds_of_children(PyObject*, PyObject*) {
    std::optional<double> seconds;
    without_gil([&] { seconds = children_seconds(); });
    return told(seconds);
}

PyMethodDef run_functions[] = {
    {"start", or_memory_error<start>, METH_O, "start(settings): turn recording on; the number of the run."},
    {"finish", or_memory_error<finish>, METH_VARARGS,
     "finish(number, ended, error='', message=None, stack='', layout='', exit_status=-1): turn that run's "
     "recording off and complete the trace."},
    {"know_place", know_place, METH_VARARGS,
     "know_place(rank, world_size, local_rank, live_file_ms=0): which rank the process is, -1 for what is "
     "unknown, and how often others are told what is open; False before the first record."},
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
    {"reserve", reserve, METH_VARARGS,
     "reserve(file, bytes): room at the beginning of a file; a limit on its size ends no program."},
    {"children_seconds", or_memory_error<seconds_of_children>, METH_NOARGS,
     "Processor seconds of all that this process has started; None where the kernel does not tell."},
    {"stats", or_memory_error<stats>, METH_NOARGS,
     "Counts of the run so far; empty before the first record."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dftrace::py
