// Arrow's structures in capsules of Python's
// (arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html).
#include "reader/module.hpp"

#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "dftrace/reading/arrow/event_arrays.hpp"

namespace dftrace::py {

namespace {

using Columns = std::vector<EventColumn>;

template <typename Struct>
constexpr const char* capsule_name();
template <>
constexpr const char* capsule_name<ArrowSchema>() {
    return "arrow_schema";
}
template <>
constexpr const char* capsule_name<ArrowArray>() {
    return "arrow_array";
}
template <>
constexpr const char* capsule_name<ArrowArrayStream>() {
    return "arrow_array_stream";
}

template <typename Struct>
void end_capsule(PyObject* capsule) {
    // Whoever has taken what it holds has left a structure that is released.
    const std::unique_ptr<Struct> held(
        static_cast<Struct*>(PyCapsule_GetPointer(capsule, capsule_name<Struct>())));
    if (held && held->release) held->release(held.get());
}

// A capsule with a structure that `fill` fills.
template <typename Struct, typename Fill>
Ref capsule(Fill fill) {
    std::unique_ptr<Struct> made(new (std::nothrow) Struct{});
    if (!made) {
        PyErr_NoMemory();
        return Ref();
    }
    Ref held(PyCapsule_New(made.get(), capsule_name<Struct>(), end_capsule<Struct>));
    if (!held) return held;
    Struct& out = *made.release();
    try {
        fill(out);
    } catch (const TooMuch& error) {
        PyErr_SetString(PyExc_OverflowError, error.what());
        return Ref();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
        return Ref();
    }
    return held;
}

// For `O&`.
int take_columns(PyObject* given, void* out) {
    Columns& columns = *static_cast<Columns*>(out);
    const Ref names(PySequence_Fast(given, "names of columns are needed"));
    if (!names) return 0;
    try {
        for (Py_ssize_t number = 0; number < PySequence_Fast_GET_SIZE(names.get()); ++number) {
            Py_ssize_t bytes = 0;
            const char* const name =
                PyUnicode_AsUTF8AndSize(PySequence_Fast_GET_ITEM(names.get(), number), &bytes);
            if (!name) return 0;
            const auto column = event_column({name, static_cast<std::size_t>(bytes)});
            if (!column) {
                PyErr_Format(PyExc_ValueError, "no column is called '%s'", name);
                return 0;
            }
            columns.push_back(*column);
        }
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
        return 0;
    }
    return 1;
}

Ref schema_capsule(const Columns& columns) {
    return capsule<ArrowSchema>([&](ArrowSchema& out) { describe_events(columns, out); });
}

PyObject* arrow_schema(PyObject*, PyObject* arguments) {
    Columns columns;
    if (!PyArg_ParseTuple(arguments, "O&", take_columns, &columns)) return nullptr;
    return schema_capsule(columns).release();
}

PyObject* arrow_array(PyObject*, PyObject* arguments) {
    PyObject* given = nullptr;
    unsigned int file = 0;
    Columns columns;
    if (!PyArg_ParseTuple(arguments, "OIO&", &given, &file, take_columns, &columns)) return nullptr;
    std::shared_ptr<LabelTexts> texts;
    const auto block = block_of_object(given, texts);
    if (!block) return nullptr;
    Ref schema = schema_capsule(columns);
    if (!schema) return nullptr;
    Ref array = capsule<ArrowArray>([&](ArrowArray& out) { give_events(block, *texts, file, columns, out); });
    if (!array) return nullptr;
    return PyTuple_Pack(2, schema.get(), array.get());
}

// What a stream goes through: an iterator of Python's, which gives a block and the number of its trace at a
// time.
struct Source {
    PyObject* blocks = nullptr;
    Columns columns;
    std::string told;
};

Source& source_of(ArrowArrayStream* stream) { return *static_cast<Source*>(stream->private_data); }

// The exception that is being raised becomes the stream's error; returns its number.
int tell_error(Source& source) {
    const int number = PyErr_ExceptionMatches(PyExc_MemoryError) ? ENOMEM : EIO;
    const bool interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    const Ref held_type(type), held_value(value), held_traceback(traceback);
    const Ref text(value ? PyObject_Str(value) : nullptr);
    const char* const said = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    source.told = said ? said : "the events cannot be read";
    PyErr_Clear();
    // Whoever reads the stream has its own errors to raise; Python then raises the interrupt itself.
    if (interrupted) PyErr_SetInterrupt();
    return number;
}

int next_block(Source& source, ArrowArray& out) {
    const Ref found(PyIter_Next(source.blocks));
    if (!found) return PyErr_Occurred() ? tell_error(source) : 0;
    PyObject* given = nullptr;
    unsigned int file = 0;
    if (!PyArg_ParseTuple(found.get(), "OI", &given, &file)) return tell_error(source);
    std::shared_ptr<LabelTexts> texts;
    const auto block = block_of_object(given, texts);
    if (!block) return tell_error(source);
    give_events(block, *texts, file, source.columns, out);
    return 0;
}

// Who takes a stream may ask from any thread, with the GIL or without.
int get_next(ArrowArrayStream* stream, ArrowArray* out) {
    *out = {};
    if (!Py_IsInitialized()) return EIO;
    const PyGILState_STATE state = PyGILState_Ensure();
    Source& source = source_of(stream);
    int error = 0;
    try {
        error = next_block(source, *out);
    } catch (const TooMuch& too_much) {
        source.told = too_much.what();
        error = EIO;
    } catch (const std::bad_alloc&) {
        source.told.clear();
        error = ENOMEM;
    }
    PyGILState_Release(state);
    return error;
}

int get_schema(ArrowArrayStream* stream, ArrowSchema* out) {
    *out = {};
    try {
        describe_events(source_of(stream).columns, *out);
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
    return 0;
}

const char* last_error(ArrowArrayStream* stream) {
    const std::string& told = source_of(stream).told;
    return told.empty() ? nullptr : told.c_str();
}

void end_stream(ArrowArrayStream* stream) {
    const std::unique_ptr<Source> source(&source_of(stream));
    stream->release = nullptr;
    if (!Py_IsInitialized()) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_CLEAR(source->blocks);
    PyGILState_Release(state);
}

PyObject* arrow_stream(PyObject*, PyObject* arguments) {
    PyObject* blocks = nullptr;
    Columns columns;
    if (!PyArg_ParseTuple(arguments, "OO&", &blocks, take_columns, &columns)) return nullptr;
    if (!PyIter_Check(blocks)) {
        PyErr_SetString(PyExc_TypeError, "an iterator is needed");
        return nullptr;
    }
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        // Another thread that asks for a block would land in the main one.
        PyErr_SetString(PyExc_RuntimeError, "streams are for the main interpreter");
        return nullptr;
    }
    return capsule<ArrowArrayStream>([&](ArrowArrayStream& out) {
               auto source = std::make_unique<Source>();
               source->columns = std::move(columns);
               source->blocks = Py_NewRef(blocks);
               out = {get_schema, get_next, last_error, end_stream, source.release()};
           })
        .release();
}

// Lets other threads run Python for as long as it lives, where this one could.
class WithoutGil {
  public:
    WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;
    ~WithoutGil() {
        if (state_) PyEval_RestoreThread(state_);
    }

  private:
    PyThreadState* state_;
};

ArrowArrayStream& inner_of(ArrowArrayStream* stream) {
    return *static_cast<ArrowArrayStream*>(stream->private_data);
}

int get_next_without_gil(ArrowArrayStream* stream, ArrowArray* out) {
    const WithoutGil without;
    return inner_of(stream).get_next(&inner_of(stream), out);
}

int get_schema_without_gil(ArrowArrayStream* stream, ArrowSchema* out) {
    const WithoutGil without;
    return inner_of(stream).get_schema(&inner_of(stream), out);
}

const char* last_error_of_inner(ArrowArrayStream* stream) {
    return inner_of(stream).get_last_error(&inner_of(stream));
}

void end_without_gil(ArrowArrayStream* stream) {
    const std::unique_ptr<ArrowArrayStream> inner(&inner_of(stream));
    stream->release = nullptr;
    const WithoutGil without;
    inner->release(inner.get());
}

PyObject* arrow_stream_without_gil(PyObject*, PyObject* given) {
    const auto inner =
        static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(given, capsule_name<ArrowArrayStream>()));
    if (!inner) return nullptr;
    if (!inner->release) {
        PyErr_SetString(PyExc_ValueError, "somebody has taken the stream already");
        return nullptr;
    }
    return capsule<ArrowArrayStream>([&](ArrowArrayStream& out) {
               auto moved = std::make_unique<ArrowArrayStream>(*inner);
               inner->release = nullptr;
               out = {get_schema_without_gil, get_next_without_gil, last_error_of_inner, end_without_gil,
                      moved.release()};
           })
        .release();
}

PyMethodDef functions[] = {
    {"arrow_schema", arrow_schema, METH_VARARGS,
     "arrow_schema(columns, /): the types of columns in a capsule, as __arrow_c_schema__ returns it."},
    {"arrow_array", arrow_array, METH_VARARGS,
     "arrow_array(block, file, columns, /): columns of an EventBlock of the trace of this number, without a "
     "copy, in two capsules, as __arrow_c_array__ returns them."},
    {"arrow_stream", arrow_stream, METH_VARARGS,
     "arrow_stream(blocks, columns, /): the same of all (block, file) of an iterator, one by one when they "
     "are asked for, as __arrow_c_stream__ returns it."},
    {"arrow_stream_without_gil", arrow_stream_without_gil, METH_O,
     "arrow_stream_without_gil(stream, /): what a stream in a capsule gives, which threads of its own make "
     "with Python: for who asks with the GIL held, and would wait for them for ever."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_capsules(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace dftrace::py
