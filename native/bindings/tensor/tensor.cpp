// The tensor kernels, for memory that is given by its address.
#include "tensor/tensor.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#include "dftrace/tensor/collect.hpp"
#include "dftrace/tensor/fake_quantise.hpp"
#include "dftrace/tensor/histogram.hpp"
#include "dftrace/tensor/kernels.hpp"
#include "dftrace/tensor/worker_pool.hpp"

namespace dftrace::py {

namespace {

using namespace dftrace::tensor;

// Other threads are let run only where the work takes longer than handing the interpreter over.
constexpr std::size_t long_work_elements = 16 * 1024;

// Arguments in the order of the call; the first that will not do leaves a Python error.
class Arguments {
  public:
    Arguments(PyObject* const* given, Py_ssize_t count, Py_ssize_t wanted) : next_(given) {
        if (count != wanted) {
            PyErr_Format(PyExc_TypeError, "%zd arguments were expected", wanted);
            good_ = false;
        }
    }

    void* address() { return good_ ? checked(PyLong_AsVoidPtr(*next_++)) : nullptr; }
    std::size_t count() { return good_ ? checked(PyLong_AsSize_t(*next_++)) : 0; }
    bool flag() { return good_ && checked(PyObject_IsTrue(*next_++)) > 0; }

    // A number below `end`.
    long number(const char* name, long end) {
        const long value = good_ ? checked(PyLong_AsLong(*next_++)) : 0;
        if (good_ && (value < 0 || value >= end)) refuse("%s: 0 to %ld is accepted", name, end - 1);
        return good_ ? value : 0;
    }

    float scale() {
        const double value = good_ ? checked(PyFloat_AsDouble(*next_++)) : 1.0;
        const float narrow = static_cast<float>(value);
        if (good_ && !(narrow > 0 && narrow <= std::numeric_limits<float>::max()))
            refuse("a scale must be above zero and finite in fp32");
        return narrow;
    }

    template <class... Parts>
    void refuse(const char* format, Parts... parts) {
        PyErr_Format(PyExc_ValueError, format, parts...);
        good_ = false;
    }

    bool good() const { return good_; }

  private:
    template <class Value>
    Value checked(Value value) {
        if (PyErr_Occurred()) good_ = false;
        return value;
    }

    PyObject* const* next_;
    bool good_ = true;
};

// What records are made as: a class of tuples whose numbers have names, once it is known.
PyTypeObject* record_class = &PyTuple_Type;

// Many of a record's numbers count what there is none of: their zero is made once.
PyObject* number(double value) {
    if (value != 0 || std::signbit(value)) return PyFloat_FromDouble(value);
    static PyObject* zero = nullptr;
    if (!zero && !(zero = PyFloat_FromDouble(0.0))) return nullptr;
    Py_INCREF(zero);
    return zero;
}

PyObject* record_tuple(const Record& record) {
    double fields[record_fields];
    std::memcpy(fields, &record, sizeof record);
    Ref tuple(record_class->tp_alloc(record_class, record_fields));
    if (!tuple) return nullptr;
    for (std::size_t i = 0; i < record_fields; ++i) {
        PyObject* field = number(fields[i]);
        if (!field) return nullptr;
        PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), field);
    }
    return tuple.release();
}

// The numbers of a record that comes back; the first that is none leaves a Python error.
bool read_record(PyObject* given, Record& record) {
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != static_cast<Py_ssize_t>(record_fields)) {
        PyErr_Format(PyExc_TypeError, "a record is a tuple of %zu numbers", record_fields);
        return false;
    }
    double fields[record_fields];
    for (std::size_t i = 0; i < record_fields; ++i) {
        PyObject* field = PyTuple_GET_ITEM(given, static_cast<Py_ssize_t>(i));
        if (PyFloat_CheckExact(field)) {
            fields[i] = PyFloat_AS_DOUBLE(field);
            continue;
        }
        fields[i] = PyFloat_AsDouble(field);
        if (fields[i] == -1.0 && PyErr_Occurred()) return false;
    }
    std::memcpy(&record, fields, sizeof record);
    return true;
}

bool read_two_records(PyObject* const* given, Py_ssize_t given_count, Record& first, Record& second) {
    if (given_count == 2) return read_record(given[0], first) && read_record(given[1], second);
    PyErr_SetString(PyExc_TypeError, "two records were expected");
    return false;
}

PyObject* merge_records(PyObject*, PyObject* const* given, Py_ssize_t given_count) {
    Record whole, other;
    if (!read_two_records(given, given_count, whole, other)) return nullptr;
    merge(whole, other);
    return record_tuple(whole);
}

PyObject* record_with_quantisation(PyObject*, PyObject* const* given, Py_ssize_t given_count) {
    Record record, quantised;
    if (!read_two_records(given, given_count, record, quantised)) return nullptr;
    return record_tuple(with_quantisation(record, quantised));
}

// Runs the work, without the interpreter where it is long, and makes a tuple of its record.
template <class Work>
PyObject* record_of(std::size_t count, const Work& work) {
    Record record;
    if (count < long_work_elements) return record = work(), record_tuple(record);
    bool no_memory = false;
    Py_BEGIN_ALLOW_THREADS;
    try {
        record = work();
    } catch (const std::bad_alloc&) {
        no_memory = true;
    }
    Py_END_ALLOW_THREADS;
    return no_memory ? PyErr_NoMemory() : record_tuple(record);
}

PyObject* tensor_record(PyObject*, PyObject* const* given, Py_ssize_t given_count) {
    Arguments arguments(given, given_count, 7);
    const void* data = arguments.address();
    const std::size_t count = arguments.count();
    CollectOrder order;
    order.element = static_cast<Element>(arguments.number("element", element_kinds));
    order.depth = static_cast<Depth>(arguments.number("depth", 3));
    order.threads = static_cast<unsigned>(arguments.number("threads", 1 << 16));
    const float scale = arguments.scale();
    const auto format = static_cast<Fp8Format>(arguments.number("format", 2));
    if (arguments.good() && !data && count) arguments.refuse("elements without an address");
    if (!arguments.good()) return nullptr;
    if (order.depth == Depth::fp8) order.thresholds = fp8_thresholds(scale, format);
    return record_of(count, [&] {
        Record record = collect(data, count, order);
        if (order.depth == Depth::fp8) record.scale_min = record.scale_max = static_cast<double>(scale);
        return record;
    });
}

PyObject* tensor_histogram(PyObject*, PyObject* const* given, Py_ssize_t given_count) {
    Arguments arguments(given, given_count, 4);
    const void* data = arguments.address();
    const std::size_t count = arguments.count();
    const auto element = static_cast<Element>(arguments.number("element", element_kinds));
    const auto threads = static_cast<unsigned>(arguments.number("threads", 1 << 16));
    if (arguments.good() && !data && count) arguments.refuse("elements without an address");
    if (!arguments.good()) return nullptr;
    Ref counts(PyBytes_FromStringAndSize(nullptr, sizeof(BinCounts)));
    if (!counts) return nullptr;
    const auto bins = std::make_unique<BinCounts>();
    Ref record(record_of(count, [&] { return histogram(data, count, element, threads, *bins); }));
    if (!record) return nullptr;
    std::memcpy(PyBytes_AS_STRING(counts.get()), bins->data(), sizeof(BinCounts));
    return PyTuple_Pack(2, record.get(), counts.get());
}

PyObject* quantise_tensor(PyObject*, PyObject* const* given, Py_ssize_t given_count) {
    Arguments arguments(given, given_count, 8);
    const void* input = arguments.address();
    void* output = arguments.address();
    const std::size_t count = arguments.count();
    QuantiseOrder order;
    order.element = static_cast<Element>(arguments.number("element", static_cast<long>(Element::fp64)));
    order.format = static_cast<Fp8Format>(arguments.number("format", 2));
    order.scale = arguments.scale();
    order.threads = static_cast<unsigned>(arguments.number("threads", 1 << 16));
    order.counted = arguments.flag();
    if (arguments.good() && !input && count) arguments.refuse("elements without an address");
    if (!arguments.good()) return nullptr;
    return record_of(count, [&] { return fake_quantise(input, output, count, order); });
}

PyObject* thresholds(PyObject*, PyObject* const* given, Py_ssize_t given_count) {
    Arguments arguments(given, given_count, 2);
    const float scale = arguments.scale();
    const auto format = static_cast<Fp8Format>(arguments.number("format", 2));
    if (!arguments.good()) return nullptr;
    const Fp8Thresholds found = fp8_thresholds(scale, format);
    return Py_BuildValue("(dd)", static_cast<double>(found.under), static_cast<double>(found.over));
}

PyObject* instructions(PyObject*, PyObject* arguments) {
    const char* wanted = nullptr;
    if (!PyArg_ParseTuple(arguments, "|s", &wanted)) return nullptr;
    if (wanted && std::strcmp(wanted, "portable") == 0)
        use_instructions(Instructions::portable);
    else if (wanted && std::strcmp(wanted, "best") == 0)
        use_instructions(best_instructions());
    else if (wanted)
        return PyErr_Format(PyExc_ValueError, "instructions: portable or best, not %s", wanted);
    constexpr const char* names[] = {"portable", "avx2", "avx512"};
    return PyUnicode_FromString(names[static_cast<int>(instructions_in_use())]);
}

PyObject* make_records_as(PyObject*, PyObject* given) {
    auto* type = reinterpret_cast<PyTypeObject*>(given);
    if (!PyType_Check(given) || !PyType_IsSubtype(type, &PyTuple_Type) ||
        type->tp_basicsize != PyTuple_Type.tp_basicsize)
        return PyErr_Format(PyExc_TypeError, "a class of tuples with nothing else in them is accepted");
    Py_INCREF(given);
    record_class = type;  // one class for as long as the process lives
    Py_RETURN_NONE;
}

PyObject* threads_of_pool(PyObject*, PyObject*) { return PyLong_FromUnsignedLong(pool_threads()); }

}  // namespace

PyMethodDef tensor_functions[] = {
    {"tensor_record", fast(tensor_record), METH_FASTCALL,
     "tensor_record(address, count, element, depth, threads, scale, format): the record of a tensor."},
    {"tensor_histogram", fast(tensor_histogram), METH_FASTCALL,
     "tensor_histogram(address, count, element, threads): statistics, and 4,096 counts of 64 bits by the "
     "uppermost twelve bits of fp32, as bytes."},
    {"fake_quantise", fast(quantise_tensor), METH_FASTCALL,
     "fake_quantise(input, output, count, element, format, scale, threads, counted): to an 8-bit format "
     "and back; an output of 0 only counts."},
    {"merge_records", fast(merge_records), METH_FASTCALL,
     "merge_records(a, b): the record of the elements of both."},
    {"record_with_quantisation", fast(record_with_quantisation), METH_FASTCALL,
     "record_with_quantisation(record, quantised): the record with what quantising its tensor lost."},
    {"tensor_records_as", make_records_as, METH_O,
     "tensor_records_as(class): what records are made as, a class of tuples."},
    {"fp8_thresholds", fast(thresholds), METH_FASTCALL,
     "fp8_thresholds(scale, format): magnitudes up to which elements become zero, above which they are "
     "clipped."},
    {"tensor_instructions", instructions, METH_VARARGS,
     "tensor_instructions(wanted='portable' or 'best'): chooses and tells what the tensor kernels use."},
    {"tensor_threads", threads_of_pool, METH_NOARGS, "How many threads wait for large tensors."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dftrace::py
