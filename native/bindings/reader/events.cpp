// The types `EventScanner` and `EventBlock`, and the columns of a block.
#include "reader/events.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dftrace/reading/arrow/event_arrays.hpp"
#include "dftrace/reading/arrow/label_texts.hpp"
#include "dftrace/reading/traces/argument_columns.hpp"
#include "dftrace/reading/traces/general_line.hpp"
#include "dftrace/reading/traces/members.hpp"
#include "dftrace/reading/traces/scanner.hpp"
#include "reader/holding.hpp"
#include "reader/module.hpp"
#include "told.hpp"

namespace dftrace::py {

namespace {

struct BlockObject {
    PyObject_HEAD std::shared_ptr<ScannedBlock> block;
    std::shared_ptr<Reading> reading;  // which has its names
};

// One column of a block, which lives as long as it does.
struct ColumnObject {
    PyObject_HEAD PyObject* block;
    const void* values;
    Py_ssize_t count;
    Py_ssize_t value_bytes;
    const char* format;
};

PyTypeObject* block_type = nullptr;
PyTypeObject* scanner_type = nullptr;
PyTypeObject* column_type = nullptr;

const ScannedBlock& block_of(PyObject* self) { return *as<BlockObject>(self)->block; }
ScannerObject* scanner_of(PyObject* self) { return as<ScannerObject>(self); }

}  // namespace

void Reading::scan(const PlainText& text, Rows& rows) {
    scanner.scan(text, rows);
    for (std::size_t number = tracks.size(), all = labels.tracks(); number < all; ++number)
        tracks.push_back(labels.track_id(static_cast<std::uint32_t>(number)));
}

void Reading::fill(ScannedBlock& block, std::int64_t base_ns) {
    Rows& rows = block.rows;
    scan(block.text, rows);
    block.pid.resize(rows.size);
    block.tid.resize(rows.size);
    for (std::size_t row = 0; row < rows.size; ++row) {
        const TrackId& track = tracks[rows.track[row]];
        block.pid[row] = track.pid;
        block.tid[row] = track.tid;
        std::int64_t& start = rows.start[row];
        if (start == no_time || __builtin_add_overflow(start, base_ns, &start)) start = -1;
    }
}

PyObject* column_view(PyObject* owner, const void* values, std::size_t count, std::size_t value_bytes,
                      const char* format) {
    const Ref made(column_type->tp_alloc(column_type, 0));
    if (!made) return nullptr;
    ColumnObject* const self = as<ColumnObject>(made.get());
    self->block = Py_NewRef(owner);
    // Where there are none, an address all the same.
    self->values = count ? values : static_cast<const void*>(self);
    self->count = static_cast<Py_ssize_t>(count);
    self->value_bytes = static_cast<Py_ssize_t>(value_bytes);
    self->format = format;
    return PyMemoryView_FromObject(made.get());
}

namespace {

template <typename Object>
void destroy(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    if constexpr (std::is_same_v<Object, BlockObject>) as<Object>(object)->block.~shared_ptr();
    if constexpr (std::is_same_v<Object, ColumnObject>)
        Py_XDECREF(as<Object>(object)->block);
    else
        as<Object>(object)->reading.~shared_ptr();
    type->tp_free(object);
    Py_DECREF(type);
}

int give_buffer(PyObject* object, Py_buffer* view, int flags) {
    ColumnObject* const self = as<ColumnObject>(object);
    if (PyBuffer_FillInfo(view, object, const_cast<void*>(self->values), self->count * self->value_bytes, 1,
                          flags) < 0)
        return -1;
    view->itemsize = self->value_bytes;
    if (flags & PyBUF_FORMAT) view->format = const_cast<char*>(self->format);
    if (flags & PyBUF_ND) view->shape = &self->count;
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES) view->strides = &self->value_bytes;
    return 0;
}

template <typename Value>
constexpr const char* format_of() {
    if constexpr (sizeof(Value) == 1) return "B";
    if constexpr (sizeof(Value) == 4) return "I";
    return std::is_signed_v<Value> ? "q" : "Q";
}

template <auto member>
PyObject* row_column(PyObject* self, void*) {
    const auto& values = block_of(self).rows.*member;
    using Value = typename std::remove_cvref_t<decltype(values)>::value_type;
    return column_view(self, values.data(), block_of(self).rows.size, sizeof(Value), format_of<Value>());
}

template <auto member>
PyObject* own_column(PyObject* self, void*) {
    const std::vector<std::int64_t>& values = block_of(self).*member;
    return column_view(self, values.data(), values.size(), sizeof(std::int64_t), "q");
}

PyObject* text_column(PyObject* self, void*) {
    const std::string_view text = block_of(self).text.view();
    return column_view(self, text.data(), text.size(), 1, "B");
}

template <auto member>
PyObject* row_count(PyObject* self, void*) {
    return PyLong_FromSize_t(block_of(self).rows.*member);
}

PyObject* phases(PyObject* self, void*) {
    Ref dict(PyDict_New());
    if (!dict) return nullptr;
    for (const auto& [row, text] : block_of(self).rows.phases) {
        const Ref key(told(row)), value(told(text));
        if (!key || !value || PyDict_SetItem(dict.get(), key.get(), value.get()) < 0) return nullptr;
    }
    return dict.release();
}

PyObject* numbers_of_rows(PyObject* self, PyObject* names) {
    const ScannedBlock& block = block_of(self);
    try {
        std::vector<WantedMember> wanted;
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(names); ++at) {
            const char* const name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, at));
            if (!name) return nullptr;
            wanted.push_back({name, WantedMember::Form::whole});
        }
        Budget none(0);  // numbers take none of it
        ArgumentColumns numbers(std::move(wanted), 0, none);
        const std::span label(block.rows.label.data(), block.rows.size);
        const std::vector<std::uint8_t> all(label.empty() ? 0 : std::ranges::max(label) + 1, 1);
        numbers.take(block.rows, {}, block.text.view(), all);
        return bytes_told(numbers.values());
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

Ref new_block(PyObject* scanner) {
    Ref made(block_type->tp_alloc(block_type, 0));
    if (!made) return made;
    BlockObject* const self = as<BlockObject>(made.get());
    new (&self->block) std::shared_ptr<ScannedBlock>();
    new (&self->reading) std::shared_ptr<Reading>(scanner_of(scanner)->reading);
    try {
        self->block = std::make_shared<ScannedBlock>();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
        return Ref();
    }
    return made;
}

PyObject* make_scanner(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"most_bytes", nullptr};
    Py_ssize_t most_bytes = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "n", const_cast<char**>(names), &most_bytes))
        return nullptr;
    if (most_bytes < 1) {
        PyErr_SetString(PyExc_ValueError, "at least one byte");
        return nullptr;
    }
    Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    new (&scanner_of(made.get())->reading) std::shared_ptr<Reading>();
    try {
        scanner_of(made.get())->reading = std::make_shared<Reading>(static_cast<std::size_t>(most_bytes));
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return made.release();
}

PyObject* scan_lines(PyObject* object, PyObject* arguments) {
    PyObject* given = nullptr;
    long long base_ns = 0;
    if (!PyArg_ParseTuple(arguments, "O|L", &given, &base_ns)) return nullptr;
    ScannerObject* const self = scanner_of(object);
    Ref made;
    const bool well = with_lines(given, [&](std::string_view lines) {
        made = new_block(object);
        return made && work(self->busy, [&](Interrupts&) {
                   ScannedBlock& block = *as<BlockObject>(made.get())->block;
                   put_into(block.text, lines);
                   self->reading->fill(block, base_ns);
               });
    });
    return well ? made.release() : nullptr;
}

PyObject* read_file_block(PyObject* object, PyObject* arguments) {
    int file = -1;
    BlockCodec codec{};
    unsigned long long from = 0, end = 0;
    long long base_ns = 0;
    if (!PyArg_ParseTuple(arguments, "iO&KK|L", &file, take_codec, &codec, &from, &end, &base_ns))
        return nullptr;
    Ref made = new_block(object);
    if (!made) return nullptr;
    ScannedBlock& block = *as<BlockObject>(made.get())->block;
    ScannerObject* const self = scanner_of(object);
    BlocksRead read;
    const bool well = work(self->busy, [&](Interrupts&) {
        bool first = true;
        const BlockWork one{[&](std::size_t, std::size_t, PlainText& text) {
                                block.text = std::move(text);
                                self->reading->fill(block, base_ns);
                            },
                            [](std::size_t) {}, [](std::size_t, std::size_t) {},
                            [&] { return std::exchange(first, false); }};
        read = read_blocks(file, codec, from, end, 1, one);
    });
    if (!well) return nullptr;
    if (read.file_bytes == 0) return Py_NewRef(Py_None);
    return tuple_told(made.release(), read.file_bytes);
}

PyObject* labels(PyObject* object, PyObject* given) {
    const std::size_t first = PyLong_AsSize_t(given);
    if (PyErr_Occurred()) return nullptr;
    if (scanner_of(object)->busy)
        return PyErr_Format(PyExc_RuntimeError, "another thread reads by this object");
    const Labels& all = scanner_of(object)->reading->labels;
    return list_told(std::views::iota(std::min(first, all.size()), all.size()), [&](std::size_t number) {
        const Label& label = all[static_cast<std::uint32_t>(number)];
        return tuple_told(label.category, label.name);
    });
}

PyGetSetDef block_columns[] = {
    {"rows", row_count<&Rows::size>, nullptr, "How many events there are.", nullptr},
    {"lines", row_count<&Rows::lines>, nullptr, "How many lines there are.", nullptr},
    {"unreadable", row_count<&Rows::unreadable>, nullptr, "How many of them hold no event.", nullptr},
    {"ph", row_column<&Rows::ph>, nullptr, "The letter of the phase; 0 where `phases` has it.", nullptr},
    {"label", row_column<&Rows::label>, nullptr, "Number of category and name; `EventScanner.labels`.",
     nullptr},
    {"id", row_column<&Rows::id>, nullptr, "Number of the event; 0 where there is none.", nullptr},
    {"parent", row_column<&Rows::parent>, nullptr, "args.p_idx; 2^64 - 1 where there is none.", nullptr},
    {"pid", own_column<&ScannedBlock::pid>, nullptr, "Process.", nullptr},
    {"tid", own_column<&ScannedBlock::tid>, nullptr, "Thread or lane.", nullptr},
    {"start_ns", row_column<&Rows::start>, nullptr, "Start, with the base; -1 where there is none.", nullptr},
    {"dur_ns", row_column<&Rows::duration>, nullptr, "Duration; -1 for all but finished spans.", nullptr},
    {"args_at", row_column<&Rows::args_at>, nullptr, "Where the members of args are in `text`, or 0.",
     nullptr},
    {"args_bytes", row_column<&Rows::args_bytes>, nullptr, "How long they are.", nullptr},
    {"text", text_column, nullptr, "The lines.", nullptr},
    {"phases", phases, nullptr, "Phases that are no single letter, by row.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyObject* whole_numbers(PyObject*, PyObject* given) {
    Py_buffer text, begins, ends;
    const char* asked = nullptr;
    if (!PyArg_ParseTuple(given, "y*y*y*s", &text, &begins, &ends, &asked)) return nullptr;
    const auto bytes = static_cast<std::size_t>(begins.len);
    Ref made;
    if (begins.len != ends.len || bytes % sizeof(std::int64_t)) {
        PyErr_SetString(PyExc_ValueError, "as many begins as ends, of 64 bits each");
    } else if ((made = Ref(PyBytes_FromStringAndSize(nullptr, begins.len)))) {
        char* const into = PyBytes_AS_STRING(made.get());
        try {
            const std::string name = '"' + std::string(asked) + '"';
            const std::string_view all(static_cast<const char*>(text.buf),
                                       static_cast<std::size_t>(text.len));
            for (std::size_t at = 0; at < bytes; at += sizeof(std::int64_t)) {
                std::int64_t begin = 0, end = 0, number = no_time;
                std::memcpy(&begin, static_cast<const char*>(begins.buf) + at, sizeof begin);
                std::memcpy(&end, static_cast<const char*>(ends.buf) + at, sizeof end);
                if (begin >= 0 && begin < end && static_cast<std::uint64_t>(end) <= all.size() &&
                    all[static_cast<std::size_t>(end) - 1] == '}')
                    number = whole_member(all.substr(static_cast<std::size_t>(begin),
                                                     static_cast<std::size_t>(end - begin)),
                                          name)
                                 .value_or(no_time);
                std::memcpy(into + at, &number, sizeof number);
            }
        } catch (const std::bad_alloc&) {
            made = Ref(PyErr_NoMemory());
        }
    }
    for (Py_buffer* one : {&text, &begins, &ends}) PyBuffer_Release(one);
    return made.release();
}

PyMethodDef functions[] = {
    {"whole_numbers", whole_numbers, METH_VARARGS,
     "whole_numbers(text, begins, ends, name, /): the whole number that the argument of a name is in each of "
     "some stretches of a text, which are arguments with their braces; -2^63 where it is none. All of 64 "
     "bits."},
    {nullptr, nullptr, 0, nullptr}};

PyMethodDef block_methods[] = {
    {"numbers", numbers_of_rows, METH_VARARGS,
     "numbers(*names): of each row the whole numbers that the arguments of these names are, one beside the "
     "other, 64 bits; -2^63 where one is none."},
    {nullptr, nullptr, 0, nullptr}};

PyMethodDef scanner_methods[] = {
    {"scan", scan_lines, METH_VARARGS,
     "scan(text, base_ns=0, /): the events of lines, each with its line break."},
    {"read_block", read_file_block, METH_VARARGS,
     "read_block(descriptor, codec, start, end, base_ns=0, /): the events of the block of a compressed file "
     "that begins at a byte, and how many bytes it has; None where it is torn, larger than 16 MiB, or cut "
     "within a line."},
    {"labels", labels, METH_O, "labels(first, /): categories and names by number, from one on."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot block_slots[] = {
    {Py_tp_doc,
     const_cast<char*>("Events of a block as columns: read-only memoryviews of the block, which lives as "
                       "long as any of them.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy<BlockObject>)},
    {Py_tp_methods, block_methods},
    {Py_tp_getset, block_columns},
    {0, nullptr}};

PyType_Slot column_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy<ColumnObject>)},
                              {Py_bf_getbuffer, reinterpret_cast<void*>(give_buffer)},
                              {0, nullptr}};

PyType_Slot scanner_slots[] = {
    {Py_tp_doc,
     const_cast<char*>("EventScanner(most_bytes)\n--\n\nGives the events of blocks as columns, with one "
                       "table of names in memory of so many bytes.")},
    {Py_tp_new, reinterpret_cast<void*>(make_scanner)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy<ScannerObject>)},
    {Py_tp_methods, scanner_methods},
    {0, nullptr}};

constexpr unsigned made_here = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;

PyType_Spec block_spec = {"dftrace_ai._reader.EventBlock", sizeof(BlockObject), 0, made_here, block_slots};
PyType_Spec column_spec = {"dftrace_ai._reader._Column", sizeof(ColumnObject), 0, made_here, column_slots};
PyType_Spec scanner_spec = {"dftrace_ai._reader.EventScanner", sizeof(ScannerObject), 0, Py_TPFLAGS_DEFAULT,
                            scanner_slots};

}  // namespace

const Rows* rows_of(PyObject* block) {
    if (Py_IS_TYPE(block, block_type)) return &block_of(block).rows;
    PyErr_SetString(PyExc_TypeError, "an EventBlock is needed");
    return nullptr;
}

std::string_view text_of(PyObject* block) { return block_of(block).text.view(); }
const Labels& labels_of(PyObject* block) { return as<BlockObject>(block)->reading->labels; }

std::shared_ptr<const ScannedBlock> block_of_object(PyObject* block, std::shared_ptr<LabelTexts>& texts) {
    if (!rows_of(block)) return nullptr;
    const std::shared_ptr<Reading>& reading = as<BlockObject>(block)->reading;
    texts = {reading, &reading->texts};
    return as<BlockObject>(block)->block;
}

ScannerObject* scanner_object(PyObject* object) {
    if (Py_IS_TYPE(object, scanner_type)) return scanner_of(object);
    PyErr_SetString(PyExc_TypeError, "an EventScanner is needed");
    return nullptr;
}

int add_event_types(PyObject* module) {
    Ref scanner(PyType_FromSpec(&scanner_spec));
    Ref block(PyType_FromSpec(&block_spec)), column(PyType_FromSpec(&column_spec));
    if (!scanner || !block || !column || PyModule_AddObjectRef(module, "EventBlock", block.get()) < 0 ||
        PyModule_AddObjectRef(module, "EventScanner", scanner.get()) < 0)
        return -1;
    scanner_type = as<PyTypeObject>(scanner.release());
    block_type = as<PyTypeObject>(block.release());
    column_type = as<PyTypeObject>(column.release());
    return PyModule_AddFunctions(module, functions);
}

}  // namespace dftrace::py
