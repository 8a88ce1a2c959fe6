// The bytes of traces that nobody recorded, for Python, which has their numbers as an array.
#include "dftrace/writing/made_trace.hpp"

#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dftrace/deflating/block_deflate.hpp"
#include "dftrace/text/hash.hpp"
#include "parts.hpp"

namespace dftrace::py {

namespace {

struct MadeObject {
    PyObject_HEAD std::unique_ptr<MadeTrace> trace;
};

// A codec takes a megabyte, and a job has a thousand traces. With the GIL held.
BlockCodec& codec_for(Compression compression) {
    static std::map<Compression, std::unique_ptr<BlockCodec>> made;
    auto& codec = made[compression];
    if (!codec)
        codec = make_codec(compression, compression == Compression::gzip ? BlockDeflate::quick_level : 0);
    return *codec;
}

// What was thrown, as Python has it.
PyObject* raise_thrown() {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    } catch (const std::logic_error& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
}

PyObject* made_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    static const char* const names[] = {"host",          "pid",           "parent_pid",
                                        "run",           "time_base_us",  "process_name_json",
                                        "header_json",   "compression",   "boot_id",
                                        "pid_namespace", "process_start", "epoch_offset_ns",
                                        "realtime_ns",   "synchronised",  "clock_error_us",
                                        "frequency",     nullptr};
    TraceSettings settings;
    ProcessIdentity process{};
    HostClocks clocks{};
    const char *host, *run, *name, *header, *compression, *boot;
    unsigned int pid, parent_pid;
    unsigned long long base_us, pid_namespace, start;
    long long offset_ns, realtime_ns, error_us, frequency;
    int synchronised;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "$sIIsKssssKKLLpLL", const_cast<char**>(names),
                                     &host, &pid, &parent_pid, &run, &base_us, &name, &header, &compression,
                                     &boot, &pid_namespace, &start, &offset_ns, &realtime_ns, &synchronised,
                                     &error_us, &frequency))
        return nullptr;
    Ref self(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    auto& trace = *new (&as<MadeObject>(self.get())->trace) std::unique_ptr<MadeTrace>;
    try {
        settings.host = host;
        settings.host_hash = hash_hex(host);
        settings.run = run;
        settings.time_base_us = base_us;
        settings.process_name_json = name;
        settings.header_json = header;
        settings.compression = compression_from(compression);
        settings.epoch_offset_ns = static_cast<std::uint64_t>(offset_ns);
        process = {pid, start, boot, pid_namespace};
        constexpr std::uint64_t width_ns = 100;
        clocks = {realtime_ns - offset_ns,
                  realtime_ns,
                  width_ns,
                  {1, static_cast<std::uint32_t>(synchronised), error_us, error_us, frequency}};
        BlockCodec& codec = codec_for(settings.compression);
        trace =
            std::make_unique<MadeTrace>(std::move(settings), std::move(process), parent_pid, clocks, codec);
    } catch (const std::exception&) {
        return raise_thrown();
    }
    return self.release();
}

void made_dealloc(PyObject* self) {
    as<MadeObject>(self)->trace.~unique_ptr();
    Py_TYPE(self)->tp_free(self);
}

PyObject* bytes_of(const std::string& made) {
    return PyBytes_FromStringAndSize(made.data(), static_cast<Py_ssize_t>(made.size()));
}

// The kind of lines with a phase; 0 for none that is made.
Kind kind_of(int ph) noexcept {
    switch (ph) {
        case 'X': return Kind::span;
        case 'i': return Kind::instant;
        case 'C': return Kind::counter;
        case 'M': return Kind::metadata;
        default: return Kind{};
    }
}

PyObject* add_pattern(PyObject* self, PyObject* arguments) {
    int ph, level;
    const char *name, *args;
    unsigned int tid;
    if (!PyArg_ParseTuple(arguments, "CsIis", &ph, &name, &tid, &level, &args)) return nullptr;
    const Kind kind = kind_of(ph);
    if (kind == Kind{} || level < 0 || level > UINT16_MAX) {
        PyErr_SetString(PyExc_ValueError, "a pattern is of X, i, C or M, at a level of 16 bits");
        return nullptr;
    }
    try {
        return PyLong_FromSize_t(as<MadeObject>(self)->trace->add_pattern(
            kind, name, tid, static_cast<std::uint16_t>(level), args));
    } catch (const std::exception&) {
        return raise_thrown();
    }
}

PyObject* opening(PyObject* self, PyObject* dict) {
    if (!PyDict_Check(dict)) return PyErr_Format(PyExc_TypeError, "tracks are a dict of names by numbers");
    try {
        std::vector<std::pair<std::uint32_t, std::string>> tracks;
        PyObject *key, *value;
        for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);) {
            const unsigned long tid = PyLong_AsUnsignedLong(key);
            const char* const name = PyErr_Occurred() ? nullptr : PyUnicode_AsUTF8(value);
            if (!name) return nullptr;
            tracks.emplace_back(static_cast<std::uint32_t>(tid), name);
        }
        return bytes_of(as<MadeObject>(self)->trace->opening(tracks));
    } catch (const std::exception&) {
        return raise_thrown();
    }
}

PyObject* rows(PyObject* self, PyObject* arguments) {
    Py_buffer numbers;
    Py_ssize_t width = 0;
    if (!PyArg_ParseTuple(arguments, "y*n", &numbers, &width)) return nullptr;
    std::string made;
    PyObject* found = nullptr;
    try {
        if (numbers.len % static_cast<Py_ssize_t>(sizeof(std::int64_t)))
            throw std::invalid_argument("rows are 64-bit integers");
        const std::span all(static_cast<const std::int64_t*>(numbers.buf),
                            static_cast<std::size_t>(numbers.len) / sizeof(std::int64_t));
        MadeTrace& trace = *as<MadeObject>(self)->trace;
        made = trace.rows(all, static_cast<std::size_t>(width));
        found = bytes_of(made);
    } catch (const std::exception&) {
        found = raise_thrown();
    }
    PyBuffer_Release(&numbers);
    return found;
}

PyObject* ending(PyObject* self, PyObject* arguments) {
    unsigned long long at_ns;
    int with_index;
    if (!PyArg_ParseTuple(arguments, "Kp", &at_ns, &with_index)) return nullptr;
    try {
        return bytes_of(as<MadeObject>(self)->trace->ending(at_ns, with_index != 0));
    } catch (const std::exception&) {
        return raise_thrown();
    }
}

PyMethodDef methods[] = {
    {"add_pattern", add_pattern, METH_VARARGS,
     "add_pattern(ph, name_json, tid, level, args): what lines have in common; its number."},
    {"opening", opening, METH_O, "opening(tracks): the first block; tracks are names by numbers."},
    {"rows", rows, METH_VARARGS,
     "rows(numbers, width): blocks of lines. Of each row pattern, start and end (ns since 1970), id, parent, "
     "item (-1 for none), then what its pattern's arguments have places for."},
    {"ending", ending, METH_VARARGS, "ending(at_ns, index): the closing line, and the index if asked for."},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject made_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

int add_made_trace_type(PyObject* module) {
    describe<MadeObject>(made_type, "dftrace_ai._native.MadeTrace",
                         "The bytes of a trace that nobody recorded, in the recorder's layout.");
    made_type.tp_new = made_new;
    made_type.tp_dealloc = made_dealloc;
    made_type.tp_methods = methods;
    return add_type(module, made_type);
}

}  // namespace dftrace::py
