// The tensor kernels, for memory that is given by its address or by a tensor of torch's, and records as
// Python has them: tuples whose numbers have names.
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
#include "dftrace/tensor/record.hpp"
#include "dftrace/tensor/statistics.hpp"
#include "dftrace/tensor/worker_pool.hpp"
#include "parts.hpp"
#include "tensor/plain_tensor.hpp"

namespace dftrace::py {

namespace {

using namespace dftrace::tensor;

// What a tensor is, from the table of functions by which tensor libraries tell each other, DLPack's: those
// whose elements lie in one stretch of memory, as they are, are told without torch's Python side.

// A tensor in the first version of DLPack, whose layout is fixed.
struct Described {
    void* data;
    std::int32_t device_kind;
    std::int32_t device;
    std::int32_t dimensions;
    std::uint8_t kind;
    std::uint8_t bits;
    std::uint16_t lanes;
    std::int64_t* shape;
    std::int64_t* strides;
    std::uint64_t byte_offset;
};

struct Exchange {
    std::uint32_t major_version;
    std::uint32_t minor_version;
    const Exchange* older;
    void* allocate;
    void* from_object;
    void* to_object;
    int (*describe)(void* object, Described* out);  // null where the library has none
    void* current_stream;
};

constexpr std::uint8_t floating_point = 2, brain_floating_point = 4;

// For as long as the process lives; null until they are known.
PyObject* plain_classes[2] = {nullptr, nullptr};
int (*describe_tensor)(void* object, Described* out) = nullptr;
PyObject* storage_method = nullptr;
PyObject* offset_method = nullptr;

bool element_of(const Described& tensor, Element& element) noexcept {
    if (tensor.lanes != 1) return false;
    if (tensor.kind == brain_floating_point) return element = Element::bf16, tensor.bits == 16;
    element = tensor.bits == 64 ? Element::fp64 : tensor.bits == 32 ? Element::fp32 : Element::fp16;
    return tensor.kind == floating_point && (tensor.bits == 64 || tensor.bits == 32 || tensor.bits == 16);
}

// How many elements lie one behind the other in the order of their indices; 0 where they do not.
std::size_t count_in_order(const Described& tensor) noexcept {
    std::int64_t count = 1;
    for (std::int32_t i = tensor.dimensions; i-- > 0;) {
        if (tensor.shape[i] != 1 && tensor.strides[i] != count) return 0;
        count *= tensor.shape[i];
    }
    return static_cast<std::size_t>(count);
}

// The bytes that are really there from a tensor's first element on: sharded training frees those of
// parameters that it does not need, and of a view that begins late there may be none where its size would
// still fit.
Py_ssize_t bytes_held(PyObject* tensor, std::size_t element_bytes) {
    const Ref storage(PyObject_CallMethodNoArgs(tensor, storage_method));
    const Py_ssize_t bytes = storage ? PyObject_Size(storage.get()) : -1;
    const Ref offset(bytes < 0 ? nullptr : PyObject_CallMethodNoArgs(tensor, offset_method));
    const Py_ssize_t elements = offset ? PyLong_AsSsize_t(offset.get()) : -1;
    if (elements < 0) forget_error();
    return elements < 0 ? -1 : bytes - elements * static_cast<Py_ssize_t>(element_bytes);
}

// plain_tensors_are(class, class): of these two classes exactly. Tells whether they say what they hold.
PyObject* plain_tensors_are(PyObject*, PyObject* arguments) {
    PyObject *first = nullptr, *second = nullptr;
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyType_Type, &first, &PyType_Type, &second)) return nullptr;
    const Ref capsule(PyObject_GetAttrString(first, "__dlpack_c_exchange_api__"));
    const void* table = capsule ? PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api") : nullptr;
    if (!table) forget_error();
    auto* exchange = static_cast<const Exchange*>(table);
    while (exchange && exchange->major_version > 1) exchange = exchange->older;
    if (!exchange || exchange->major_version != 1 || !exchange->describe) Py_RETURN_FALSE;
    if (!storage_method && !(storage_method = PyUnicode_InternFromString("untyped_storage"))) return nullptr;
    if (!offset_method && !(offset_method = PyUnicode_InternFromString("storage_offset"))) return nullptr;
    describe_tensor = exchange->describe;
    plain_classes[0] = Py_NewRef(first);
    plain_classes[1] = Py_NewRef(second);
    Py_RETURN_TRUE;
}

// As above, where they lie in any order.
std::size_t count_in_memory(const Described& tensor) noexcept {
    std::int64_t count = 1;
    std::uint64_t taken = 0;
    if (tensor.dimensions > 64) return 0;
    for (std::int32_t left = tensor.dimensions; left > 0; --left) {
        std::int32_t next = 0;
        const auto is_next = [&](std::int32_t i) {
            return !(taken >> i & 1) && (tensor.shape[i] == 1 || tensor.strides[i] == count);
        };
        while (next < tensor.dimensions && !is_next(next)) ++next;
        if (next == tensor.dimensions) return 0;
        taken |= std::uint64_t{1} << next;
        count *= tensor.shape[next];
    }
    return static_cast<std::size_t>(count);
}

}  // namespace

bool find_plain(PyObject* object, std::int32_t device, Order order, PlainTensor& found) {
    auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    if (!describe_tensor || (type != plain_classes[0] && type != plain_classes[1])) return false;
    Described tensor{};
    if (describe_tensor(object, &tensor) != 0) {
        forget_error();
        return false;
    }
    if (tensor.device_kind != device || !tensor.data || !element_of(tensor, found.element)) return false;
    found.data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
    found.count = count_in_order(tensor);
    if (!found.count && order == Order::any) found.count = count_in_memory(tensor);
    return found.count >= 2;
}

bool holds_elements(PyObject* object, const PlainTensor& plain) {
    const std::size_t element_bytes = bytes_of(plain.element);
    return bytes_held(object, element_bytes) >= static_cast<Py_ssize_t>(plain.count * element_bytes);
}

namespace {

// Tuples to records and back.

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

// The statistic of that name; one that `numbers` has not leaves a KeyError.
bool find_statistic(PyObject* numbers, PyObject* name, Statistic& statistic) {
    PyObject* found = PyDict_GetItemWithError(numbers, name);
    if (!found) {
        if (!PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, name);
        return false;
    }
    const long value = PyLong_AsLong(found);
    if (value < 0 || value >= statistic_kinds) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "there is no statistic of that number");
        return false;
    }
    statistic = static_cast<Statistic>(value);
    return true;
}

// With the nine digits that tell a number of fp32 from all others.
PyObject* shortened(double value) {
    char* digits = PyOS_double_to_string(value, 'g', 9, 0, nullptr);
    if (!digits) return nullptr;
    const double short_value = PyOS_string_to_double(digits, nullptr, nullptr);
    PyMem_Free(digits);
    return PyErr_Occurred() ? nullptr : PyFloat_FromDouble(short_value);
}

// JSON has no NaN and no infinities: they become null, with the text beside it.
bool tell_as_text(PyObject* told, PyObject* name, PyObject* value) {
    const Ref text(PyObject_Str(value)), beside(PyUnicode_FromFormat("%U_str", name));
    return text && beside && PyDict_SetItem(told, name, Py_None) == 0 &&
           PyDict_SetItem(told, beside.get(), text.get()) == 0;
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

PyObject* make_records_as(PyObject*, PyObject* given) {
    auto* type = reinterpret_cast<PyTypeObject*>(given);
    if (!PyType_Check(given) || !PyType_IsSubtype(type, &PyTuple_Type) ||
        type->tp_basicsize != PyTuple_Type.tp_basicsize)
        return PyErr_Format(PyExc_TypeError, "a class of tuples with nothing else in them is accepted");
    Py_INCREF(given);
    record_class = type;  // one class for as long as the process lives
    Py_RETURN_NONE;
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

// Of a dict of fractions by name what an event tells of them, and the finite ones alone; None of any other
// dict.
PyObject* told_values(PyObject*, PyObject* values) {
    if (!PyDict_Check(values)) return PyErr_Format(PyExc_TypeError, "a dict of fractions was expected");
    const Ref told(PyDict_New()), finite(PyDict_New());
    if (!told || !finite) return nullptr;
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(values, &at, &name, &value)) {
        if (!PyUnicode_Check(name) || !PyFloat_Check(value))
            return PyErr_Format(PyExc_TypeError, "fractions by name were expected");
        if (!std::isfinite(PyFloat_AS_DOUBLE(value))) {
            if (!tell_as_text(told.get(), name, value)) return nullptr;
            continue;
        }
        const Ref number(shortened(PyFloat_AS_DOUBLE(value)));
        if (!number || PyDict_SetItem(told.get(), name, number.get()) < 0 ||
            PyDict_SetItem(finite.get(), name, number.get()) < 0)
            return nullptr;
    }
    return PyTuple_Pack(2, told.get(), finite.get());
}

// A dict of the statistics by name; the last argument has the number of each.
PyObject* final_values(PyObject*, PyObject* const* given, Py_ssize_t given_count) {
    Record record;
    if (given_count != 3 || !PyDict_CheckExact(given[2]))
        return PyErr_Format(PyExc_TypeError, "a record, names and their numbers were expected");
    if (!read_record(given[0], record)) return nullptr;
    Ref values(PyDict_New());
    if (!values || record.n_total == 0) return values.release();
    const Ref names(PySequence_Fast(given[1], "statistics are a sequence of names"));
    if (!names) return nullptr;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(names.get()); ++i) {
        PyObject* name = PySequence_Fast_GET_ITEM(names.get(), i);
        Statistic statistic;
        if (!find_statistic(given[2], name, statistic)) return nullptr;
        const Ref value(PyFloat_FromDouble(static_cast<double>(final_value(record, statistic))));
        if (!value || PyDict_SetItem(values.get(), name, value.get()) < 0) return nullptr;
    }
    return values.release();
}

// The functions.

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
    if (!find_plain(given[0], on_host, Order::of_indices, tensor) || !holds_elements(given[0], tensor) ||
        tensor.count >= shared_elements)
        Py_RETURN_NONE;
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
