// Events that are not spans, each one record with arguments of its own.
#include "events.hpp"

#include <string>

#include "dftrace/names.hpp"
#include "json_args.hpp"
#include "span.hpp"

namespace dftrace::py {

namespace {

// A record of `kind` at this moment, inside the innermost open span of the thread or task. The
// arguments are stored for this record alone.
void record_now(Thread* thread, Kind kind, std::uint32_t name, const std::string& members,
                std::uint64_t value = 0) {
    Session* session = thread->session;
    session->define_names(name);
    const std::uint32_t args = session->put_arguments(members);
    const EnclosingSpan around = enclosing_span(thread);
    if (Record* record = thread->reserve()) {
        *record = Record{};
        record->start = thread->tick();
        record->id = thread->new_id();
        record->parent = around.id;
        record->level = static_cast<std::uint16_t>(around.level + 1);
        record->lane = kind == Kind::counter ? 0 : around.lane;
        record->node = name;
        record->args = args;
        record->value = value;
        record->kind = kind;
        thread->commit();
    }
    session->release_arguments(args);
}

void count_sanitised(Thread* thread, std::uint64_t times) {
    if (times) thread->session->header().args_sanitised.fetch_add(times, std::memory_order_relaxed);
}

PyObject* instant(PyObject*, PyObject* arguments) {
    const char *category = nullptr, *name = nullptr;
    PyObject* args = Py_None;
    if (!PyArg_ParseTuple(arguments, "ss|O", &category, &name, &args)) return nullptr;
    if (Thread* thread = recording_thread()) {
        std::string members;
        if (PyDict_Check(args)) count_sanitised(thread, append_members(members, args));
        record_now(thread, Kind::instant, intern_name(category, name), members);
    }
    Py_RETURN_NONE;
}

PyObject* counter(PyObject*, PyObject* arguments) {
    const char* name = nullptr;
    PyObject* values = nullptr;
    if (!PyArg_ParseTuple(arguments, "sO!", &name, &PyDict_Type, &values)) return nullptr;
    Thread* thread = recording_thread();
    if (!thread) Py_RETURN_NONE;
    // Perfetto counts an error for every value that is not a number: such a one is left out.
    Ref numbers(PyDict_New());
    if (!numbers) return nullptr;
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(values, &at, &key, &value);) {
        Ref number(PyNumber_Float(value));
        if (!number) PyErr_Clear();
        const double real = number ? PyFloat_AS_DOUBLE(number.get()) : Py_NAN;
        if (!Py_IS_FINITE(real) || PyUnicode_Check(value)) {
            count_sanitised(thread, 1);
            continue;
        }
        PyObject* kept = PyLong_CheckExact(value) ? value : number.get();
        if (PyDict_SetItem(numbers.get(), key, kept) < 0) return nullptr;
    }
    std::string members;
    count_sanitised(thread, append_members(members, numbers.get()));
    if (!members.empty()) record_now(thread, Kind::counter, intern_name("counter", name), members);
    Py_RETURN_NONE;
}

PyObject* flow(PyObject*, PyObject* arguments) {
    const char* name = nullptr;
    int inward = 0;
    unsigned long long id = 0;
    if (!PyArg_ParseTuple(arguments, "spK", &name, &inward, &id)) return nullptr;
    if (Thread* thread = recording_thread())
        record_now(thread, inward ? Kind::flow_in : Kind::flow_out, intern_name("flow", name), {}, id);
    Py_RETURN_NONE;
}

PyObject* metadata(PyObject*, PyObject* arguments) {
    PyObject *key = nullptr, *value = nullptr;
    if (!PyArg_ParseTuple(arguments, "OO", &key, &value)) return nullptr;
    if (Thread* thread = recording_thread()) {
        std::string members = ",\"name\":";
        count_sanitised(thread, append_value(members, key));
        members += ",\"value\":";
        count_sanitised(thread, append_value(members, value));
        record_now(thread, Kind::metadata, intern_name("dftracer", "CM"), members);
        thread->session->wake(true);
    }
    Py_RETURN_NONE;
}

PyObject* log_event(PyObject*, PyObject* arguments) {
    const char *category = nullptr, *name = nullptr;
    unsigned long long start_us = 0, duration_us = 0;
    PyObject* args = nullptr;
    if (!PyArg_ParseTuple(arguments, "ssKKO!", &category, &name, &start_us, &duration_us, &PyDict_Type,
                          &args))
        return nullptr;
    Thread* thread = recording_thread();
    if (!thread) Py_RETURN_NONE;
    const std::uint32_t number = intern_name(category, name);
    Session* session = thread->session;
    session->define_names(number);
    std::string members;
    count_sanitised(thread, append_members(members, args));
    const std::uint32_t snapshot = session->put_arguments(members);
    const EnclosingSpan around = enclosing_span(thread);
    if (Record* record = thread->reserve()) {
        *record = Record{};
        record->start = start_us * 1000;
        record->end = (start_us + duration_us) * 1000;
        record->id = thread->new_id();
        record->parent = around.id;
        record->level = static_cast<std::uint16_t>(around.level + 1);
        record->node = number;
        record->args = snapshot;
        record->kind = Kind::span;
        record->flags = RecordFlag::absolute_time;
        thread->commit();
    }
    session->release_arguments(snapshot);
    Py_RETURN_NONE;
}

PyObject* time_us(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(epoch_ns() / 1000); }

PyObject* count_unmatched_stop(PyObject*, PyObject*) {
    if (Thread* thread = recording_thread())
        thread->session->header().unmatched_stops.fetch_add(1, std::memory_order_relaxed);
    Py_RETURN_NONE;
}

}  // namespace

PyMethodDef event_functions[] = {
    {"instant", instant, METH_VARARGS, "instant(cat, name, args=None): a moment inside the open span."},
    {"counter", counter, METH_VARARGS, "counter(name, values): numbers of this moment."},
    {"flow", flow, METH_VARARGS, "flow(name, inward, id): one end of an arrow between spans."},
    {"metadata", metadata, METH_VARARGS, "metadata(key, value): a CM event, written at once."},
    {"log_event", log_event, METH_VARARGS, "log_event(cat, name, start_us, duration_us, args)."},
    {"time_us", time_us, METH_NOARGS, "Microseconds since the epoch, by the trace's clock."},
    {"count_unmatched_stop", count_unmatched_stop, METH_NOARGS, "Count a stop() that had no start()."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dftrace::py
