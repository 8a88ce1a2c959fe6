// The type `EventTable`: the events of a file as columns, read natively block by block.
#include "dftrace/reading/traces/event_table.hpp"

#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dftrace/reading/traces/members.hpp"
#include "reader/events.hpp"
#include "reader/holding.hpp"
#include "reader/module.hpp"
#include "told.hpp"

namespace dftrace::py {

namespace {

struct Table {
    explicit Table(const EventTable::Letters& given) : letters(given), events(letters) {}
    EventTable::Letters letters;
    EventTable events;
    PlainText text;
    Rows rows;
    // A block that was scanned, and holds names of which it is not known yet what is wanted of them.
    std::optional<std::size_t> held;
    bool columns_taken = false, members_taken = false;  // by Python, and gone here

    bool knows(const Labels& labels) const {
        return events.members.empty() || events.members.front().mask.size() >= labels.size();
    }
};

struct TableObject {
    PyObject_HEAD std::unique_ptr<Table> table;
    PyObject* scanner;
};

Table& table_of(PyObject* self) { return *as<TableObject>(self)->table; }
ScannerObject* scanner_of(PyObject* self) { return as<ScannerObject>(as<TableObject>(self)->scanner); }
// False, with an exception, where another thread reads into it, or what is wanted is gone.
bool is_there(PyObject* self, bool taken) {
    const bool busy = scanner_of(self)->busy;
    if (busy) PyErr_SetString(PyExc_RuntimeError, "another thread reads by this object");
    if (!busy && taken) PyErr_SetString(PyExc_RuntimeError, "what was read was taken from this object");
    return !busy && !taken;
}
bool is_whole(PyObject* self) {
    return is_there(self, table_of(self).columns_taken || table_of(self).members_taken);
}

bool add_wanted(PyObject* names, WantedMember::Form form, std::vector<WantedMember>& wanted) {
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(names); ++at) {
        const char* const name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, at));
        if (!name) return false;
        wanted.push_back({name, form});
    }
    return true;
}

bool add_members(PyObject* given, Table& table, Budget& budget) {
    PyObject *whole = nullptr, *micros = nullptr, *texts = nullptr;
    int phase = 0;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a tuple is needed of each that is wanted");
        return false;
    }
    if (!PyArg_ParseTuple(given, "O!O!O!i", &PyTuple_Type, &whole, &PyTuple_Type, &micros, &PyTuple_Type,
                          &texts, &phase))
        return false;
    std::vector<WantedMember> wanted;
    if (!add_wanted(whole, WantedMember::Form::whole, wanted) ||
        !add_wanted(micros, WantedMember::Form::micros, wanted) ||
        !add_wanted(texts, WantedMember::Form::text, wanted))
        return false;
    if (wanted.empty()) wanted.push_back({"", WantedMember::Form::all});
    table.events.members.emplace_back(std::move(wanted), static_cast<std::uint8_t>(phase), budget);
    return true;
}

PyObject* make_table(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"scanner", "letters", "wanted", nullptr};
    PyObject *scanner = nullptr, *wanted = nullptr;
    const char* letters = nullptr;
    Py_ssize_t count = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "Oy#O!", const_cast<char**>(names), &scanner,
                                     &letters, &count, &PyTuple_Type, &wanted))
        return nullptr;
    ScannerObject* const read_by = scanner_object(scanner);
    if (!read_by) return nullptr;
    EventTable::Letters given{};
    if (static_cast<std::size_t>(count) != given.size())
        return PyErr_Format(PyExc_ValueError, "a letter for each byte");
    std::memcpy(given.data(), letters, given.size());
    Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    TableObject* const self = as<TableObject>(made.get());
    new (&self->table) std::unique_ptr<Table>();
    self->scanner = Py_NewRef(scanner);
    try {
        self->table = std::make_unique<Table>(given);
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(wanted); ++at)
            if (!add_members(PyTuple_GET_ITEM(wanted, at), *self->table, read_by->reading->budget))
                return nullptr;
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return made.release();
}

void destroy(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    as<TableObject>(object)->table.~unique_ptr();
    Py_XDECREF(as<TableObject>(object)->scanner);
    type->tp_free(object);
    Py_DECREF(type);
}

struct Piece {
    std::size_t file_bytes, rows;
};

PyObject* read_file_blocks(PyObject* object, PyObject* arguments) {
    int file = -1;
    BlockCodec codec{};
    unsigned long long from = 0, end = 0, most_rows = 0;
    long long base_ns = 0;
    if (!PyArg_ParseTuple(arguments, "iO&KKLK", &file, take_codec, &codec, &from, &end, &base_ns, &most_rows))
        return nullptr;
    if (!is_whole(object)) return nullptr;
    Table& table = table_of(object);
    ScannerObject* const scanner = scanner_of(object);
    Reading& reading = *scanner->reading;
    std::vector<Piece> pieces;
    std::size_t plain_bytes = 0, lines = 0, unreadable = 0;
    bool more = false;
    const bool well = work(scanner->busy, [&](Interrupts& interrupts) {
        BlockByBlock blocks(file, codec, end);
        for (std::uint64_t place = from; place < end && interrupts.none();) {
            if ((more = table.events.rows() >= most_rows)) return;
            std::size_t file_bytes = table.held.value_or(0);
            table.held.reset();
            if (file_bytes == 0) {
                file_bytes = blocks.read(place, table.text);
                if (file_bytes == 0) return;
                reading.scan(table.text, table.rows);
            }
            if (!table.knows(reading.labels)) {
                table.held = file_bytes;
                return;
            }
            table.events.add(table.rows, table.text.view(), reading.tracks, base_ns);
            pieces.push_back({file_bytes, table.rows.size});
            plain_bytes += table.text.size();
            lines += table.rows.lines;
            unreadable += table.rows.unreadable;
            place += file_bytes;
        }
    });
    if (!well) {
        table.held.reset();
        return nullptr;
    }
    PyObject* const all =
        list_told(pieces, [](const Piece& piece) { return tuple_told(piece.file_bytes, piece.rows); });
    return tuple_told(all, plain_bytes, lines, unreadable, more || table.held.has_value());
}

PyObject* add_block(PyObject* object, PyObject* block) {
    std::shared_ptr<LabelTexts> texts;
    const std::shared_ptr<const ScannedBlock> scanned = block_of_object(block, texts);
    if (!scanned || !is_whole(object)) return nullptr;
    Table& table = table_of(object);
    ScannerObject* const scanner = scanner_of(object);
    if (texts.get() != &scanner->reading->texts)
        return PyErr_Format(PyExc_ValueError, "a block of another scanner");
    const bool well = work(scanner->busy, [&](Interrupts&) {
        table.events.add(scanned->rows, scanned->text.view(), scanner->reading->tracks, 0);
    });
    return well ? Py_NewRef(Py_None) : nullptr;
}

PyObject* learn(PyObject* object, PyObject* given) {
    if (!is_whole(object)) return nullptr;
    auto& members = table_of(object).events.members;
    if (!PyTuple_Check(given) || static_cast<std::size_t>(PyTuple_GET_SIZE(given)) != members.size())
        return PyErr_Format(PyExc_ValueError, "a mask for all that is wanted");
    try {
        for (std::size_t at = 0; at < members.size(); ++at) {
            PyObject* const mask = PyTuple_GET_ITEM(given, static_cast<Py_ssize_t>(at));
            char* bytes = nullptr;
            Py_ssize_t count = 0;
            if (PyBytes_AsStringAndSize(mask, &bytes, &count) < 0) return nullptr;
            members[at].mask.insert(members[at].mask.end(), bytes, bytes + count);
        }
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return Py_NewRef(Py_None);
}

PyObject* cut(PyObject* object, PyObject* given) {
    const std::size_t rows = PyLong_AsSize_t(given);
    if (PyErr_Occurred() || !is_whole(object)) return nullptr;
    table_of(object).events.cut(rows);
    return Py_NewRef(Py_None);
}

const char* format_of(NarrowColumn::Form form) noexcept {
    constexpr const char* formats[] = {"B", "H", "I", "L", "i", "l"};
    return formats[static_cast<std::size_t>(form)];
}

void free_bytes(PyObject* capsule) { std::free(PyCapsule_GetPointer(capsule, nullptr)); }

PyObject* replaced_text(const std::string& text) {
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

// The values of a column, or the number that all rows have.
PyObject* column_told(NarrowColumn& column, bool kept) {
    if (column.is_same()) {
        const auto same = column.same();
        return column.form() == NarrowColumn::Form::u64 ? told(static_cast<std::uint64_t>(same)) : told(same);
    }
    const std::size_t rows = column.rows(), width = NarrowColumn::width_of(column.form());
    NarrowColumn::Bytes bytes;
    if (kept) {
        bytes.reset(static_cast<char*>(std::malloc(std::max<std::size_t>(rows * width, 1))));
        if (!bytes) return PyErr_NoMemory();
        std::memcpy(bytes.get(), column.data(), rows * width);
    } else {
        bytes = column.take();
    }
    const char* const values = bytes.get();
    const Ref owner(PyCapsule_New(bytes.get(), nullptr, free_bytes));
    if (!owner) return nullptr;
    static_cast<void>(bytes.release());
    return column_view(owner.get(), values, rows, width, format_of(column.form()));
}

PyObject* columns_told(std::span<NarrowColumn> columns, bool kept) {
    Ref list(PyList_New(0));
    for (NarrowColumn& column : columns) {
        const Ref values(tuple_told(column_told(column, kept), format_of(column.form())));
        if (!list || !values || PyList_Append(list.get(), values.get()) < 0) return nullptr;
    }
    return list.release();
}

PyObject* columns(PyObject* object, PyObject* kept) {
    if (!is_there(object, table_of(object).columns_taken)) return nullptr;
    table_of(object).columns_taken = kept != Py_True;
    return columns_told(table_of(object).events.columns, kept == Py_True);
}

PyObject* members(PyObject* object, PyObject* kept) {
    if (!is_there(object, table_of(object).members_taken)) return nullptr;
    table_of(object).members_taken = kept != Py_True;
    Ref list(PyList_New(0));
    for (EventTable::Members& one : table_of(object).events.members) {
        const std::size_t count = one.rows.rows();
        PyObject* const numbers = columns_told({&one.rows, 1}, kept == Py_True);
        PyObject* const values = numbers ? columns_told(one.columns, kept == Py_True) : nullptr;
        const Ref told(tuple_told(count, numbers, values, list_told(one.taken.texts(), replaced_text)));
        if (!list || !told || PyList_Append(list.get(), told.get()) < 0) return nullptr;
    }
    return list.release();
}

PyObject* row_count(PyObject* self, void*) { return told(table_of(self).events.rows()); }

PyMethodDef table_methods[] = {
    {"read_blocks", read_file_blocks, METH_VARARGS,
     "read_blocks(descriptor, codec, start, end, base_ns, most_rows, /): reads blocks of a compressed file "
     "from a byte on, while the table has fewer rows; up to the end, a block that is torn, larger than 16 "
     "MiB "
     "or cut within a line, or one with names of which it is not known what is wanted. Returns how many "
     "bytes "
     "each has in the file and how many events; bytes and lines of all; lines without an event; and whether "
     "it goes on, since the table is full, or with such names."},
    {"add", add_block, METH_O, "add(block, /): the events of a block, of whose names it is known."},
    {"learn", learn, METH_O,
     "learn(masks, /): of all that is wanted for the next names 1 or 0, whether it is of these."},
    {"cut", cut, METH_O, "cut(rows, /): lets go of all events but the first."},
    {"columns", columns, METH_O,
     "columns(kept, /): ph, label, id, pid, tid, start_ns, dur_ns, outermost; each as the values, or the one "
     "that all have, with its format. Without `kept` they are gone here then, as with `members`, and nothing "
     "can be read any more."},
    {"members", members, METH_O,
     "members(kept, /): of all that is wanted how many events have it, their numbers, columns and texts."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef table_members[] = {{"rows", row_count, nullptr, "How many events there are.", nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot table_slots[] = {
    {Py_tp_doc,
     const_cast<char*>("EventTable(scanner, letters, wanted)\n--\n\nThe events of a file as columns in the "
                       "narrowest numbers, and members of their arguments: of each that is wanted names of "
                       "whole numbers, of microseconds, of texts, and the phase or 0; without any name the "
                       "arguments as they are written.")},
    {Py_tp_new, reinterpret_cast<void*>(make_table)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_methods, table_methods},
    {Py_tp_getset, table_members},
    {0, nullptr}};

PyType_Spec table_spec = {"dftrace_ai._reader.EventTable", sizeof(TableObject), 0, Py_TPFLAGS_DEFAULT,
                          table_slots};

}  // namespace

int add_event_table_type(PyObject* module) {
    const Ref type(PyType_FromSpec(&table_spec));
    return type ? PyModule_AddObjectRef(module, "EventTable", type.get()) : -1;
}

}  // namespace dftrace::py
