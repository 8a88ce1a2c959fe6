// Completing the trace of a process that died, and telling whose a spool is.
#include "reading/dead.hpp"

#include <exception>
#include <string>

#include "dftrace/reading/adoption.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/spool/spool_marker.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/system/host_name.hpp"
#include "outcome.hpp"

namespace dftrace::py {

namespace {

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

PyMethodDef dead_spool_functions[] = {
    {"adopt", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(adopt)),
     METH_VARARGS | METH_KEYWORDS,
     "adopt(spool, directory, *, descriptor=-1, anew=False, marker='', owner=-1): finish the trace of a "
     "process that died."},
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
