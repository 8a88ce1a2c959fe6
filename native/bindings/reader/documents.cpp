// The type `Documents`: JSON with events, from its text to lines.
#include "reader/module.hpp"

#include <memory>
#include <string>

#include "dftrace/reading/documents/documents.hpp"
#include "reader/holding.hpp"
#include "told.hpp"

namespace dftrace::py {

namespace {

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"listed", "most_bytes", nullptr};
    int listed = 0;
    Py_ssize_t most_bytes = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "pn", const_cast<char**>(names), &listed,
                                     &most_bytes))
        return nullptr;
    return new_holding<Documents>(type, [&] {
        return std::make_unique<Documents>(listed != 0,
                                           static_cast<std::size_t>(most_bytes < 0 ? 0 : most_bytes));
    });
}

// What a way to take text makes of a text of Python's.
template <auto take>
PyObject* lines_of(PyObject* object, PyObject* given) {
    Py_buffer text;
    if (!idle<Documents>(object) || PyObject_GetBuffer(given, &text, PyBUF_SIMPLE) < 0) return nullptr;
    std::string lines;
    const bool well = work_by<Documents>(object, [&](Documents& documents) {
        (documents.*take)({static_cast<const char*>(text.buf), static_cast<std::size_t>(text.len)}, lines);
    });
    PyBuffer_Release(&text);
    return well ? bytes_told(lines) : nullptr;
}

PyObject* begin(PyObject* object, PyObject*) {
    Documents* const documents = idle<Documents>(object);
    if (!documents) return nullptr;
    documents->begin();
    return Py_NewRef(Py_None);
}

PyObject* goes_on(PyObject* object, PyObject*) {
    Documents* const documents = idle<Documents>(object);
    return documents ? told(documents->goes_on()) : nullptr;
}

PyObject* mending(PyObject* object, PyObject*) {
    const Mending* found = nullptr;
    if (!work_by<Documents>(object, [&](Documents& documents) { found = documents.mending(); }))
        return nullptr;
    return found ? tuple_told(found->left_out, found->durations.size()) : Py_NewRef(Py_None);
}

PyObject* over(PyObject* object, void*) {
    Documents* const documents = idle<Documents>(object);
    return documents ? told(documents->over()) : nullptr;
}

PyObject* place(PyObject* object, void*) {
    Documents* const documents = idle<Documents>(object);
    return documents ? told(documents->place()) : nullptr;
}

// What `of(document)` gives.
template <PyObject* (*of)(const Document&)>
PyObject* of_document(PyObject* object, void*) {
    Documents* const documents = idle<Documents>(object);
    return documents ? of(documents->document()) : nullptr;
}

PyObject* tear(const Document& found) {
    return found.tear ? tuple_told(found.torn_at, found.tear, found.damaged) : Py_NewRef(Py_None);
}

PyObject* facts(const Document& found) {
    Ref made(PyDict_New());
    for (const auto& [key, value] : found.facts) {
        const Ref text(made ? bytes_told(value) : nullptr);
        const std::string name = key.substr(1, key.size() - 2);
        if (!text || PyDict_SetItemString(made.get(), name.c_str(), text.get()) < 0) return nullptr;
    }
    return made.release();
}

PyObject* members(const Document& found) {
    return list_told(found.members, [](const std::string& name) { return bytes_told(name); });
}

PyObject* pid(const Document& found) { return told(found.pid); }

PyObject* counts(const Document& found) {
    return tuple_told(found.is_list, found.has_events, found.entries, found.events);
}

PyMethodDef methods[] = {
    {"add", lines_of<&Documents::add>, METH_O,
     "add(text, /): take more text, none where there is no more, and return lines of the events that are "
     "whole."},
    {"begin", begin, METH_NOARGS, "begin(): go on with the next document, by the text that comes."},
    {"goes_on", goes_on, METH_NOARGS,
     "goes_on(): whether more than blanks stands behind the document; None where more text has to tell."},
    {"mending", mending, METH_NOARGS,
     "mending(): how many events of the document are to be left out, and how many durations cut; None for "
     "none, since all times can be."},
    {"mend", lines_of<&Documents::mend>, METH_O,
     "mend(lines, /): whole lines of the document, from the first one on, as they are to be."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef getters[] = {
    {"over", over, nullptr, "Whether the document has ended, or cannot be read on.", nullptr},
    {"place", place, nullptr, "Bytes of the text that were read.", nullptr},
    {"tear", of_document<tear>, nullptr,
     "From which byte on it cannot be read, why, and whether what is there is broken.", nullptr},
    {"facts", of_document<facts>, nullptr, "Members beside the events that are of use, as JSON.", nullptr},
    {"members", of_document<members>, nullptr, "Names of the first members, as JSON.", nullptr},
    {"pid", of_document<pid>, nullptr, "The number of the process, by what tells it best.", nullptr},
    {"counts", of_document<counts>, nullptr,
     "Whether it is a list, whether it has one of events, how many entries that has, and how many events.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

int add_documents_type(PyObject* module) {
    return add_holding_type<Documents>(
               module, "dftrace_ai._reader.Documents",
               "Documents(listed, most_bytes)\n--\n\nTakes JSON with events apart, as "
               "torch.profiler and others write it, into lines of an event each.",
               make, methods, getters)
               ? 0
               : -1;
}

}  // namespace dftrace::py
