// Beginning and ending the run, and what it can tell of itself meanwhile.
#include "run/run.hpp"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "dftrace/recording/dump_signal.hpp"
#include "dftrace/recording/runtime.hpp"
#include "dftrace/system/held_file.hpp"
#include "dftrace/text/json_string.hpp"
#include "dftrace/writing/codec.hpp"
#include "outcome.hpp"
#include "run/settings.hpp"

namespace dftrace::py {

namespace {

PyObject* start(PyObject*, PyObject* dict) {
    if (!PyDict_Check(dict)) return PyErr_Format(PyExc_TypeError, "settings must be a dict");
    try {
        const TraceSettings settings = settings_from(dict);
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
    if (!PyArg_ParseTuple(arguments, "Ks|sz#s#s", &number, &how, &error, &message, &message_bytes, &stack,
                          &stack_bytes, &layout))
        return nullptr;
    Ending ending{how, error};
    ending.layout = layout;
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
    return Py_BuildValue("{s:N,s:N,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "trace_path", path_text(written.path),
                         "spool_path", path_text(spool), "spool_bytes",
                         static_cast<unsigned long long>(session->spool_bytes_used()), "written_bytes",
                         static_cast<unsigned long long>(written.file_bytes), "written_spans",
                         static_cast<unsigned long long>(written.lines[spans]), "overwritten",
                         static_cast<unsigned long long>(h.overwritten.load()), "dropped",
                         static_cast<unsigned long long>(h.dropped.load()), "waits",
                         static_cast<unsigned long long>(h.waits.load()), "unmatched_stops",
                         static_cast<unsigned long long>(h.unmatched_stops.load()), "args_sanitised",
                         static_cast<unsigned long long>(h.args_sanitised.load()));
}

}  // namespace

PyMethodDef run_functions[] = {
    {"start", or_memory_error<start>, METH_O, "start(settings): turn recording on; the number of the run."},
    {"finish", or_memory_error<finish>, METH_VARARGS,
     "finish(number, ended, error='', message=None, stack='', layout=''): turn that run's recording off and "
     "complete the "
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
    {"reserve", reserve, METH_VARARGS,
     "reserve(file, bytes): room at the beginning of a file; a limit on its size ends no program."},
    {"stats", or_memory_error<stats>, METH_NOARGS,
     "Counts of the run so far; empty before the first record."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dftrace::py
