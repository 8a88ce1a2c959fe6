// What a tensor is, from the table of functions by which tensor libraries tell each other: DLPack's.
#include "tensor/plain_tensor.hpp"

#include <cstdint>

namespace dftrace::py {

using tensor::Element;

namespace {

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

constexpr std::int32_t in_host_memory = 1;
constexpr std::uint8_t floating_point = 2, brain_floating_point = 4;

// For as long as the process lives; null until they are known.
PyObject* plain_classes[2] = {nullptr, nullptr};
int (*describe)(void* object, Described* out) = nullptr;
PyObject* storage_method = nullptr;

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

// The bytes that are really there: sharded training frees those of parameters that it does not need.
Py_ssize_t bytes_held(PyObject* tensor) {
    const Ref storage(PyObject_CallMethodNoArgs(tensor, storage_method));
    const Py_ssize_t bytes = storage ? PyObject_Size(storage.get()) : -1;
    if (bytes < 0) forget_error();
    return bytes;
}

}  // namespace

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
    describe = exchange->describe;
    plain_classes[0] = Py_NewRef(first);
    plain_classes[1] = Py_NewRef(second);
    Py_RETURN_TRUE;
}

bool find_plain(PyObject* object, PlainTensor& found) {
    auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    if (!describe || (type != plain_classes[0] && type != plain_classes[1])) return false;
    Described tensor{};
    if (describe(object, &tensor) != 0) {
        forget_error();
        return false;
    }
    if (tensor.device_kind != in_host_memory || !tensor.data || !element_of(tensor, found.element))
        return false;
    found.data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
    found.count = count_in_order(tensor);
    if (found.count < 2) return false;
    return bytes_held(object) >= static_cast<Py_ssize_t>(found.count * bytes_of(found.element));
}

}  // namespace dftrace::py
