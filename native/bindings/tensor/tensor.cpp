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
#include "tensor/plain_tensor.hpp"
#include "tensor/records.hpp"

namespace dftrace::py {

namespace {

using namespace dftrace::tensor;

// Larger ones are shared by threads, whose number the Python side asks torch for.
constexpr std::size_t shared_elements = 256 * 1024;

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

// The record of a tensor that is read where it lies, by one thread; None for any other object.
PyObject* plain_tensor_record(PyObject*, PyObject* const* given, Py_ssize_t given_count) {
    if (given_count != 2) return PyErr_Format(PyExc_TypeError, "2 arguments were expected");
    const int zeros = PyObject_IsTrue(given[1]);
    if (zeros < 0) return nullptr;
    PlainTensor tensor;
    if (!find_plain(given[0], tensor) || tensor.count >= shared_elements) Py_RETURN_NONE;
    CollectOrder order;
    order.element = tensor.element;
    order.depth = zeros ? Depth::zeros : Depth::six;
    return record_of(tensor.count, [&] { return collect(tensor.data, tensor.count, order); });
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

PyObject* threads_of_pool(PyObject*, PyObject*) { return PyLong_FromUnsignedLong(pool_threads()); }

}  // namespace

PyMethodDef tensor_functions[] = {
    {"tensor_record", fast(tensor_record), METH_FASTCALL,
     "tensor_record(address, count, element, depth, threads, scale, format): the record of a tensor."},
    {"plain_tensor_record", fast(plain_tensor_record), METH_FASTCALL,
     "plain_tensor_record(tensor, zeros): the record of a tensor of the classes below, or None."},
    {"plain_tensors_are", plain_tensors_are, METH_VARARGS,
     "plain_tensors_are(class, class): which tensors are read where they lie; whether that can be."},
    {"final_values", fast(final_values), METH_FASTCALL,
     "final_values(record, names, numbers): statistics by name, rounded to fp32."},
    {"told_values", told_values, METH_O,
     "told_values(values): what an event tells of fractions by name, and the finite ones."},
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
