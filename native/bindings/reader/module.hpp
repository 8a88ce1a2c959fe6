// What the parts of the module add to it, and give each other.
#pragma once

#include <memory>
#include <string_view>

#include "dftrace/reading/arrow/event_arrays.hpp"
#include "dftrace/reading/traces/members.hpp"
#include "dftrace/reading/traces/span_sums.hpp"
#include "dftrace/reading/traces/totals.hpp"
#include "python.hpp"

namespace dftrace::py {

// Each adds its types or functions; -1 with an exception set.
int add_totals_type(PyObject* module);
int add_sums_type(PyObject* module);
int add_event_types(PyObject* module);
int add_event_table_type(PyObject* module);
int add_span_tree_type(PyObject* module);
int add_walking_types(PyObject* module);  // `Checking` and `Rewriting`
int add_hopping(PyObject* module);
int add_documents_type(PyObject* module);
int add_capsules(PyObject* module);
int add_columns(PyObject* module);
int add_calls(PyObject* module);
int add_thread_time(PyObject* module);
int add_samples_type(PyObject* module);

// A row of figures behind two columns of what they are of, whose references it takes.
PyObject* figures_row(PyObject* first, PyObject* second, const SpanFigures& of);

// The rows of a block; null with an exception set where it is none.
const Rows* rows_of(PyObject* block);
// Its text, and the names and tracks of its lines.
std::string_view text_of(PyObject* block);
const Labels& labels_of(PyObject* block);

// The block itself, and the texts of its names; null with an exception set where it is none.
std::shared_ptr<const ScannedBlock> block_of_object(PyObject* block, std::shared_ptr<LabelTexts>& texts);

// The figures of an index line as `Totals.add_known` is given them; false where they are no such figures.
bool known_figures(PyObject* arguments, KnownFigures& known);
// The tracks of such figures, as `known_figures` takes them.
bool known_tracks(PyObject* list, KnownFigures& known);

// From when to when events reach, or None where there are none. Null with an exception set.
PyObject* reach_told(const BlockReach& reach);

// The same of the core's figures: lists of spans, others and tracks. Null with an exception set.
PyObject* spans_told(const KnownFigures& known);
PyObject* others_told(const KnownFigures& known);
PyObject* tracks_told(const KnownFigures& known);

// For "O&" of PyArg_ParseTuple, into a BlockCodec.
inline int take_codec(PyObject* given, void* into) {
    const char* const text = PyUnicode_Check(given) ? PyUnicode_AsUTF8(given) : nullptr;
    const std::string_view name = text ? text : "";
    if (name != "gzip" && name != "zstd") {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the codec is gzip or zstd");
        return 0;
    }
    *static_cast<BlockCodec*>(into) = name == "gzip" ? BlockCodec::gzip : BlockCodec::zstd;
    return 1;
}

}  // namespace dftrace::py
