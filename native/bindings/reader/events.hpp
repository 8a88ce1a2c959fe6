// What reads by one table of names, and columns of 64 bits and fewer that others own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "dftrace/index/budget.hpp"
#include "dftrace/reading/arrow/event_arrays.hpp"
#include "dftrace/reading/arrow/label_texts.hpp"
#include "dftrace/reading/traces/labels.hpp"
#include "dftrace/reading/traces/scanner.hpp"
#include "python.hpp"

namespace dftrace::py {

struct Reading {
    explicit Reading(std::size_t most_bytes)
        : budget(most_bytes), labels(budget), scanner(labels), texts(labels, budget) {}
    Budget budget;
    Labels labels;
    Scanner scanner;
    LabelTexts texts;
    std::vector<TrackId> tracks;  // as far as blocks have asked for them

    void scan(const PlainText& text, Rows& rows);
    void fill(ScannedBlock& block, std::int64_t base_ns);
};

struct ScannerObject {
    PyObject_HEAD std::shared_ptr<Reading> reading;
    bool busy;
};

// Null with an exception set where it is none.
ScannerObject* scanner_object(PyObject* object);

// A memoryview of values that live as long as their owner, which it holds.
PyObject* column_view(PyObject* owner, const void* values, std::size_t count, std::size_t value_bytes,
                      const char* format);

}  // namespace dftrace::py
