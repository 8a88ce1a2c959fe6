// The statistics of tensors on a GPU as an object: launches of the kernels, of which none waits.
#include "dftrace/tensor/gpu_statistics.hpp"

#include <string>
#include <vector>

#include "parts.hpp"
#include "tensor/plain_tensor.hpp"

namespace dftrace::py {

namespace {

using namespace dftrace::tensor;

using Address = unsigned long long;  // as Python's calls give it

struct GpuObject {
    PyObject_HEAD GpuStatistics* kernels;
    int device;  // where the tensors lie: the CPU, for tests without a GPU
};

GpuStatistics& kernels_of(PyObject* self) { return *as<GpuObject>(self)->kernels; }

template <class To = void>
To* at(Address address) {
    return reinterpret_cast<To*>(address);
}

PyObject* gpu_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    const char* library = "libcuda.so.1";
    int device = on_gpu;
    if (!PyArg_ParseTuple(arguments, "|si", &library, &device)) return nullptr;
    std::string reason;
    GpuStatistics* const kernels = GpuStatistics::of_current_context(library, reason);
    if (!kernels) return PyErr_Format(PyExc_RuntimeError, "%s", reason.c_str());
    PyObject* const self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    as<GpuObject>(self)->kernels = kernels;
    as<GpuObject>(self)->device = device;
    return self;
}

// True where it was launched, None while the stream is captured.
PyObject* told(PyObject* self, Launched launched) {
    switch (launched) {
        case Launched::yes: Py_RETURN_TRUE;
        case Launched::capturing: Py_RETURN_NONE;
        case Launched::failed: break;
    }
    return PyErr_Format(PyExc_RuntimeError, "the GPU does not make statistics: %s", kernels_of(self).error());
}

PyObject* scratch_bytes(PyObject* self, PyObject* arguments) {
    Py_ssize_t stretches = 0;
    unsigned blocks = 0;
    if (!PyArg_ParseTuple(arguments, "|nI", &stretches, &blocks)) return nullptr;
    const GpuStatistics& kernels = kernels_of(self);
    return PyLong_FromSize_t(stretches ? kernels.scratch_bytes(static_cast<std::size_t>(stretches), blocks)
                                       : kernels.scratch_bytes());
}

PyObject* write_tensor(PyObject* self, PyObject* const* given, Py_ssize_t given_count) {
    if (given_count != 4) return PyErr_Format(PyExc_TypeError, "4 arguments were expected");
    void* addresses[3];
    for (int i = 0; i < 3; ++i) addresses[i] = PyLong_AsVoidPtr(given[1 + i]);
    if (PyErr_Occurred()) return nullptr;
    PlainTensor tensor;
    if (!find_plain(given[0], as<GpuObject>(self)->device, Order::any, tensor)) Py_RETURN_FALSE;
    return told(self, kernels_of(self).write_row(tensor.element, {tensor.data, tensor.count, 0}, {},
                                                 {addresses[0], addresses[1], addresses[2]}));
}

bool is_element(int element) {
    if (element >= 0 && element < element_kinds) return true;
    PyErr_Format(PyExc_ValueError, "element: 0 to %d is accepted", element_kinds - 1);
    return false;
}

PyObject* write_stretch(PyObject* self, PyObject* arguments) {
    Address data = 0, row = 0, scratch = 0, stream = 0, scale = 0;
    Py_ssize_t count = 0;
    int element = 0, format = -1;
    float factor = 1.0f;
    if (!PyArg_ParseTuple(arguments, "KniKKK|ifK", &data, &count, &element, &row, &scratch, &stream, &format,
                          &factor, &scale) ||
        !is_element(element))
        return nullptr;
    if (!data || count < 1) return PyErr_Format(PyExc_ValueError, "a stretch has an address and elements");
    GpuLimits limits;
    if (format >= 0)
        limits = {true, format ? Fp8Format::e5m2 : Fp8Format::e4m3, at<const float>(scale), factor};
    return told(self, kernels_of(self).write_row(static_cast<Element>(element),
                                                 {at(data), static_cast<std::size_t>(count), 0}, limits,
                                                 {at(row), at(scratch), at(stream)}));
}

PyObject* table(PyObject* self, PyObject* arguments) {
    int element = 0;
    PyObject* given = nullptr;
    if (!PyArg_ParseTuple(arguments, "iO!", &element, &PyList_Type, &given) || !is_element(element))
        return nullptr;
    std::vector<GpuStretch> stretches;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(given); ++i) {
        Address data = 0;
        Py_ssize_t count = 0;
        unsigned row = 0;
        PyObject* const one = PyList_GET_ITEM(given, i);
        if (!PyTuple_Check(one) || !PyArg_ParseTuple(one, "KnI", &data, &count, &row)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a stretch is a tuple");
            return nullptr;
        }
        if (!data || count < 1)
            return PyErr_Format(PyExc_ValueError, "a stretch has an address and elements");
        stretches.push_back({at(data), static_cast<std::size_t>(count), row});
    }
    unsigned blocks = 0;
    const std::vector<char> made =
        kernels_of(self).table_of(static_cast<Element>(element), stretches, blocks);
    return Py_BuildValue("(y#I)", made.data(), static_cast<Py_ssize_t>(made.size()), blocks);
}

PyObject* write_rows(PyObject* self, PyObject* arguments) {
    int element = 0;
    Address made = 0, rows = 0, scratch = 0, stream = 0;
    Py_ssize_t stretches = 0;
    unsigned blocks = 0;
    if (!PyArg_ParseTuple(arguments, "iKnIKKK", &element, &made, &stretches, &blocks, &rows, &scratch,
                          &stream) ||
        !is_element(element))
        return nullptr;
    return told(self, kernels_of(self).write_rows(static_cast<Element>(element), at(made),
                                                  static_cast<std::size_t>(stretches), blocks,
                                                  {at(rows), at(scratch), at(stream)}));
}

PyObject* write_values(PyObject* self, PyObject* arguments) {
    Address row = 0, values = 0, stream = 0;
    if (!PyArg_ParseTuple(arguments, "KKK", &row, &values, &stream)) return nullptr;
    return told(self, kernels_of(self).write_values(at(row), at<float>(values), at(stream)));
}

PyObject* holds_plain(PyObject* self, PyObject* object) {
    PlainTensor tensor;
    return PyBool_FromLong(find_plain(object, as<GpuObject>(self)->device, Order::any, tensor) &&
                           holds_elements(object, tensor));
}

PyObject* stretch_of(PyObject* self, PyObject* object) {
    PlainTensor tensor;
    if (!find_plain(object, as<GpuObject>(self)->device, Order::any, tensor)) Py_RETURN_NONE;
    return Py_BuildValue("(KnI)", reinterpret_cast<Address>(tensor.data),
                         static_cast<Py_ssize_t>(tensor.count), static_cast<unsigned>(tensor.element));
}

PyMethodDef methods[] = {
    {"scratch_bytes", scratch_bytes, METH_VARARGS,
     "scratch_bytes(stretches, blocks): the memory that a table's launch needs; of one tensor without."},
    {"write_tensor", fast(write_tensor), METH_FASTCALL,
     "write_tensor(tensor, row, scratch, stream): False for a tensor of which Python has to find "
     "out "
     "what it is; None while the stream is captured."},
    {"write_stretch", write_stretch, METH_VARARGS,
     "write_stretch(address, count, element, row, scratch, stream, format, factor, scale): the "
     "record "
     "of what lies there."},
    {"table", or_memory_error<table>, METH_VARARGS,
     "table(element, stretches): the bytes of a table of (address, count, row), and how many blocks it has."},
    {"write_rows", write_rows, METH_VARARGS,
     "write_rows(element, table, stretches, blocks, rows, scratch, stream): the records of a "
     "table."},
    {"write_values", write_values, METH_VARARGS,
     "write_values(row, values, stream): eight statistics of a record, as fp32 numbers."},
    {"stretch_of", stretch_of, METH_O,
     "stretch_of(tensor): its address, count and element; None where Python has to find out."},
    {"holds_plain", holds_plain, METH_O,
     "holds_plain(tensor): whether write_tensor takes it, and its memory is there."},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject gpu_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

int add_gpu_type(PyObject* module) {
    describe<GpuObject>(
        gpu_type, "dftrace_ai._native.GpuStatistics",
        "GpuStatistics(library, device): the kernels in the thread's context of the driver's. "
        "RuntimeError with the reason where it does not take them.");
    gpu_type.tp_new = gpu_new;
    gpu_type.tp_methods = methods;
    return add_type(module, gpu_type);
}

}  // namespace dftrace::py
