// The type `Documents`: JSON with events, from its text to lines.
#include "reader/module.hpp"

#include <memory>
#include <new>
#include <string>

#include "dftrace/reading/documents/documents.hpp"
#include "reader/work.hpp"

namespace dftrace::py {

namespace {

struct DocumentsObject {
    PyObject_HEAD std::unique_ptr<Documents> documents;
    bool busy;
};

DocumentsObject* of(PyObject* self) { return as<DocumentsObject>(self); }

// Null with an exception set where another thread reads.
Documents* idle(PyObject* object) {
    if (of(object)->busy) PyErr_SetString(PyExc_RuntimeError, "another thread reads by this object");
    return of(object)->busy ? nullptr : of(object)->documents.get();
}

PyObject* bytes_of(const std::string& text) {
    return PyBytes_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"listed", "most_bytes", nullptr};
    int listed = 0;
    Py_ssize_t most_bytes = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "pn", const_cast<char**>(names), &listed,
                                     &most_bytes))
        return nullptr;
    Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    DocumentsObject* const self = of(made.get());
    new (&self->documents) std::unique_ptr<Documents>();
    try {
        self->documents = std::make_unique<Documents>(
            listed != 0, static_cast<std::size_t>(most_bytes < 0 ? 0 : most_bytes));
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return made.release();
}

void destroy(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    of(object)->documents.~unique_ptr();
    type->tp_free(object);
    Py_DECREF(type);
}

// What `call(text, lines)` makes of a text of Python's.
template <typename Call>
PyObject* lines_of(PyObject* object, PyObject* given, Call call) {
    Py_buffer text;
    if (!idle(object) || PyObject_GetBuffer(given, &text, PyBUF_SIMPLE) < 0) return nullptr;
    std::string lines;
    const bool well = work(of(object)->busy, [&](Interrupts&) {
        call({static_cast<const char*>(text.buf), static_cast<std::size_t>(text.len)}, lines);
    });
    PyBuffer_Release(&text);
    return well ? bytes_of(lines) : nullptr;
}

PyObject* add(PyObject* object, PyObject* given) {
    return lines_of(object, given, [object](std::string_view text, std::string& lines) {
        of(object)->documents->add(text, lines);
    });
}

PyObject* mend(PyObject* object, PyObject* given) {
    return lines_of(object, given, [object](std::string_view text, std::string& lines) {
        of(object)->documents->mend(text, lines);
    });
}

PyObject* begin(PyObject* object, PyObject*) {
    Documents* const documents = idle(object);
    if (!documents) return nullptr;
    documents->begin();
    return Py_NewRef(Py_None);
}

PyObject* goes_on(PyObject* object, PyObject*) {
    Documents* const documents = idle(object);
    if (!documents) return nullptr;
    const std::optional<bool> more = documents->goes_on();
    return more ? PyBool_FromLong(*more) : Py_NewRef(Py_None);
}

PyObject* mending(PyObject* object, PyObject*) {
    if (!idle(object)) return nullptr;
    const Mending* found = nullptr;
    if (!work(of(object)->busy, [&](Interrupts&) { found = of(object)->documents->mending(); }))
        return nullptr;
    if (!found) return Py_NewRef(Py_None);
    return Py_BuildValue("Kn", static_cast<unsigned long long>(found->left_out),
                         static_cast<Py_ssize_t>(found->durations.size()));
}

PyObject* over(PyObject* object, void*) {
    Documents* const documents = idle(object);
    return documents ? PyBool_FromLong(documents->over()) : nullptr;
}

PyObject* place(PyObject* object, void*) {
    Documents* const documents = idle(object);
    return documents ? PyLong_FromUnsignedLongLong(documents->place()) : nullptr;
}

PyObject* tear(PyObject* object, void*) {
    Documents* const documents = idle(object);
    if (!documents) return nullptr;
    const Document& found = documents->document();
    if (!found.tear) return Py_NewRef(Py_None);
    return Py_BuildValue("KsO", static_cast<unsigned long long>(found.torn_at), found.tear,
                         found.damaged ? Py_True : Py_False);
}

PyObject* facts(PyObject* object, void*) {
    Documents* const documents = idle(object);
    if (!documents) return nullptr;
    Ref made(PyDict_New());
    for (const auto& [key, value] : documents->document().facts) {
        const Ref text(made ? bytes_of(value) : nullptr);
        const std::string name = key.substr(1, key.size() - 2);
        if (!text || PyDict_SetItemString(made.get(), name.c_str(), text.get()) < 0) return nullptr;
    }
    return made.release();
}

PyObject* members(PyObject* object, void*) {
    Documents* const documents = idle(object);
    if (!documents) return nullptr;
    const std::vector<std::string>& names = documents->document().members;
    Ref made(PyList_New(static_cast<Py_ssize_t>(names.size())));
    for (std::size_t i = 0; made && i < names.size(); ++i) {
        PyObject* const name = bytes_of(names[i]);
        if (!name) return nullptr;
        PyList_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), name);
    }
    return made.release();
}

PyObject* pid(PyObject* object, void*) {
    Documents* const documents = idle(object);
    if (!documents) return nullptr;
    const std::optional<std::int64_t>& number = documents->document().pid;
    return number ? PyLong_FromLongLong(*number) : Py_NewRef(Py_None);
}

PyObject* counts(PyObject* object, void*) {
    Documents* const documents = idle(object);
    if (!documents) return nullptr;
    const Document& found = documents->document();
    return Py_BuildValue("OOKK", found.is_list ? Py_True : Py_False, found.has_events ? Py_True : Py_False,
                         static_cast<unsigned long long>(found.entries),
                         static_cast<unsigned long long>(found.events));
}

PyMethodDef methods[] = {
    {"add", add, METH_O,
     "add(text, /): take more text, none where there is no more, and return lines of the events that are "
     "whole."},
    {"begin", begin, METH_NOARGS, "begin(): go on with the next document, by the text that comes."},
    {"goes_on", goes_on, METH_NOARGS,
     "goes_on(): whether more than blanks stands behind the document; None where more text has to tell."},
    {"mending", mending, METH_NOARGS,
     "mending(): how many events of the document are to be left out, and how many durations cut; None for "
     "none, since all times can be."},
    {"mend", mend, METH_O,
     "mend(lines, /): whole lines of the document, from the first one on, as they are to be."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef getters[] = {
    {"over", over, nullptr, "Whether the document has ended, or cannot be read on.", nullptr},
    {"place", place, nullptr, "Bytes of the text that were read.", nullptr},
    {"tear", tear, nullptr, "From which byte on it cannot be read, why, and whether what is there is broken.",
     nullptr},
    {"facts", facts, nullptr, "Members beside the events that are of use, as JSON.", nullptr},
    {"members", members, nullptr, "Names of the first members, as JSON.", nullptr},
    {"pid", pid, nullptr, "The number of the process, by what tells it best.", nullptr},
    {"counts", counts, nullptr,
     "Whether it is a list, whether it has one of events, how many entries that has, and how many events.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Documents(listed, most_bytes)\n--\n\nTakes JSON with events apart, as "
                                  "torch.profiler and others write it, into lines of an event each.")},
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {0, nullptr}};

PyType_Spec spec = {"dftrace_ai._reader.Documents", sizeof(DocumentsObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

int add_documents_type(PyObject* module) {
    const Ref type(PyType_FromSpec(&spec));
    return type ? PyModule_AddObjectRef(module, "Documents", type.get()) : -1;
}

}  // namespace dftrace::py
