#include "instrumentation/call_span.hpp"

namespace dftrace::py {

namespace {

PyObject *enter_name, *exit_name;

}  // namespace

void CallSpan::close_unless_empty() {
    if (state_.generation && is_empty(state_))
        cancel_span(state_);
    else
        close(false);
}

bool CallSpan::enter() {
    const Ref entered(PyObject_CallMethodNoArgs(reinterpret_cast<PyObject*>(node_), enter_name));
    return entered_ = static_cast<bool>(entered);
}

bool CallSpan::leave() {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    if (type) PyErr_NormalizeException(&type, &value, &trace);
    const auto or_none = [](PyObject* one) { return one ? one : Py_None; };
    const Ref left(PyObject_CallMethodObjArgs(reinterpret_cast<PyObject*>(node_), exit_name, or_none(type),
                                              or_none(value), or_none(trace), nullptr));
    if (left) {
        PyErr_Restore(type, value, trace);
    } else {
        for (PyObject* one : {type, value, trace}) Py_XDECREF(one);
    }
    return static_cast<bool>(left);
}

int prepare_call_spans() {
    enter_name = PyUnicode_InternFromString("__enter__");
    exit_name = PyUnicode_InternFromString("__exit__");
    return enter_name && exit_name ? 0 : -1;
}

}  // namespace dftrace::py
