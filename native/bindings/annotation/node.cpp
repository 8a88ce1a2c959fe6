// The Node type: arguments, children, switching on and off.
#include "annotation/node.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "annotation/span.hpp"
#include "arguments/update_sets.hpp"
#include "dftrace/text/names.hpp"
#include "parts.hpp"

namespace dftrace::py {

namespace {

struct NumbersOfThread {
    std::uint64_t since;    // which time they were given since all were forgotten
    std::uint64_t version;  // no two are alike
    Numbers numbers;
};
thread_local NumbersOfThread numbers_of_thread;
NumbersOfThread numbers_everywhere;
std::uint64_t times_forgotten = 0, last_version = 0;
bool told_by_default = false;

const NumbersOfThread* numbers_here() noexcept {
    for (const NumbersOfThread* given : {&numbers_of_thread, &numbers_everywhere})
        if (given->since == times_forgotten && given->numbers.count) return given;
    return nullptr;
}

// Those of the node with the thread's over or beside them; null where there is nothing to add.
NumberSet* set_with(const Numbers& told, Node* node) {
    Arguments* const arguments = as<Arguments>(node->arguments);
    if (!is_plain(arguments)) return nullptr;
    Numbers all = node->numbers ? node->numbers->numbers : Numbers{};
    const auto is_given = [&](std::uint8_t key) {
        const auto end = all.keys.begin() + static_cast<std::ptrdiff_t>(all.count);
        return std::find(all.keys.begin(), end, key) != end ||
               (arguments && arguments->values && has_key(arguments->values, key));
    };
    bool added = false;
    for (std::size_t i = 0; i < told.count; ++i)
        if (node->by_thread || !is_given(told.keys[i])) added |= all.put(told.keys[i], told.values[i]);
    return added ? take_numbers(arguments ? arguments->number : 0, all) : nullptr;
}

void put(NumbersOfThread& into, const Numbers& numbers) noexcept {
    if (into.since != times_forgotten) into = {times_forgotten, 0, {}};
    into.version = ++last_version;
    for (std::size_t i = 0; i < numbers.count; ++i)
        static_cast<void>(into.numbers.put(numbers.keys[i], numbers.values[i]));
}

}  // namespace

void put_in_thread(const Numbers& numbers, bool everywhere) noexcept {
    put(numbers_of_thread, numbers);
    if (everywhere)
        put(numbers_everywhere, numbers);
    else
        numbers_everywhere.numbers = {};
}

void drop_in_thread(std::uint8_t key) noexcept {
    for (NumbersOfThread* into : {&numbers_of_thread, &numbers_everywhere}) {
        const Numbers before = std::exchange(into->numbers, {});
        for (std::size_t i = 0; i < before.count; ++i)
            if (before.keys[i] != key) static_cast<void>(into->numbers.put(before.keys[i], before.values[i]));
        into->version = ++last_version;
    }
}

bool prepare_slow(Node* node, Thread* thread, bool to_open) {
    const std::uint64_t generation = thread->generation;
    Snapshot snapshot;
    const bool by_thread = node->by_thread || (node->takes_told && told_by_default);
    const NumbersOfThread* const here = by_thread ? numbers_here() : nullptr;
    const std::uint64_t version = here ? here->version : 0;
    if (by_thread && node->told_generation == generation && node->told_version == version) return true;
    if (NumberSet* const told = here ? set_with(here->numbers, node) : nullptr) {
        snapshot.number = snapshot_of(told, as<Arguments>(node->arguments), thread);
        drop_numbers(std::exchange(node->numbers_of_one, told));
    } else if (node->numbers) {
        snapshot.number = snapshot_of(node->numbers, as<Arguments>(node->arguments), thread);
    } else if (node->arguments) {
        // Held: what converts the values is the user's code, and may give the node others.
        Ref held(Py_NewRef(node->arguments));
        if (!take_snapshot(as<Arguments>(held.get()), thread, snapshot)) return false;
        if (node->arguments != held.get()) {
            // Good for one span, and not to be given back before that is stored.
            snapshot.settled = false;
            held = Ref(std::exchange(node->arguments_of_one, held.release()));
        }
    }
    if (*detail::live_generation != generation) return false;
    if (node->name_generation != generation) {
        thread->session->define_names(node->name);
        node->name_generation = generation;
    }
    const bool settled = snapshot.settled && snapshot.number;
    node->args_id = snapshot.number.value_or(0);
    node->told_generation = settled && by_thread ? generation : 0;
    node->told_version = version;
    node->args_generation = settled && !by_thread ? generation : 0;
    if (snapshot.number || to_open) return true;
    thread->session->count_dropped();
    return false;
}

namespace {

const char* utf8_of(PyObject* text, Py_ssize_t* bytes, Ref& keep) {
    if (const char* utf8 = PyUnicode_AsUTF8AndSize(text, bytes)) return utf8;
    PyErr_Clear();
    keep = Ref(PyUnicode_AsEncodedString(text, "utf-8", "replace"));
    if (!keep) return nullptr;
    *bytes = PyBytes_GET_SIZE(keep.get());
    return PyBytes_AS_STRING(keep.get());
}

bool name_number(PyObject* category, PyObject* label, std::uint32_t* number) {
    Ref keep_category, keep_label;
    Py_ssize_t category_bytes = 0, label_bytes = 0;
    const char* category_text = utf8_of(category, &category_bytes, keep_category);
    const char* label_text = category_text ? utf8_of(label, &label_bytes, keep_label) : nullptr;
    if (!label_text) return false;
    *number = intern_name({category_text, static_cast<std::size_t>(category_bytes)},
                          {label_text, static_cast<std::size_t>(label_bytes)});
    return true;
}

PyObject* node_new(PyTypeObject* type, PyObject* positional, PyObject* keywords) {
    static const char* names[] = {"cat", "name", "enabled", nullptr};
    PyObject *category = nullptr, *label = nullptr;
    int enabled = 1;
    if (!PyArg_ParseTupleAndKeywords(positional, keywords, "UU|p", const_cast<char**>(names), &category,
                                     &label, &enabled))
        return nullptr;
    std::uint32_t name = 0;
    if (!name_number(category, label, &name)) return nullptr;
    Node* node = as<Node>(type->tp_alloc(type, 0));
    if (!node) return nullptr;
    node->vectorcall = call_of(type);
    node->name = name;
    node->enabled = enabled != 0;
    node->category = Py_NewRef(category);
    node->label = Py_NewRef(label);
    return object_of(node);
}

// For a class whose constructor is not given category and name: they are known when it has begun.
PyObject* node_rename(PyObject* self, PyObject* positional) {
    PyObject *category = nullptr, *label = nullptr;
    std::uint32_t name = 0;
    if (!PyArg_ParseTuple(positional, "UU", &category, &label)) return nullptr;
    if (!name_number(category, label, &name)) return nullptr;
    Node* node = as<Node>(self);
    node->name = name;
    const Ref old_category(std::exchange(node->category, Py_NewRef(category)));
    const Ref old_label(std::exchange(node->label, Py_NewRef(label)));
    node->args_generation = node->told_generation = 0;
    node->name_generation = 0;
    Py_RETURN_NONE;
}

int node_traverse(PyObject* self, visitproc visit, void* arg) {
    Node* node = as<Node>(self);
    Py_VISIT(node->arguments);
    Py_VISIT(node->arguments_of_one);
    Py_VISIT(node->children);
    return 0;
}

int node_clear(PyObject* self) {
    Node* node = as<Node>(self);
    node->args_generation = 0;
    drop_numbers(std::exchange(node->numbers, nullptr));
    drop_numbers(std::exchange(node->numbers_of_one, nullptr));
    Py_CLEAR(node->arguments);
    Py_CLEAR(node->arguments_of_one);
    Py_CLEAR(node->children);
    return 0;
}

void node_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    Node* node = as<Node>(self);
    if (node->weak_references) PyObject_ClearWeakRefs(self);
    node_clear(self);
    Py_CLEAR(node->category);
    Py_CLEAR(node->label);
    Py_TYPE(self)->tp_free(self);
}

// Other arguments for a node, or none; the next span takes a snapshot of them. What goes may run code.
void give_arguments(Node* node, const Carried& to) {
    node->args_id = 0;
    node->args_generation = node->told_generation = 0;
    if (to.numbers) ++to.numbers->users;
    drop_numbers(std::exchange(node->numbers, to.numbers));
    if (to.arguments == node->arguments && !node->arguments_of_one) return;
    PyObject* const before = std::exchange(node->arguments, Py_XNewRef(to.arguments));
    PyObject* const of_one = std::exchange(node->arguments_of_one, nullptr);
    Py_XDECREF(before);
    Py_XDECREF(of_one);
}

// The node and everything below it; `visit` returns false to stop with an error set, and may run code.
// References are counted by hand: `Ref` asks for the GIL each time, which costs more than all the rest.
template <class Visit>
bool each_below(Node* node, const Visit& visit) {
    Py_INCREF(object_of(node));
    bool well = visit(node);
    for (Py_ssize_t i = 0; well && node->children && i < PyList_GET_SIZE(node->children); ++i)
        well = each_below(as<Node>(PyList_GET_ITEM(node->children, i)), visit);
    Py_DECREF(object_of(node));
    return well;
}

Carried carried_by(const Node* node) noexcept { return {node->arguments, node->numbers}; }

bool merge_into(Node* node, Merge& merge) {
    return each_below(node, [&merge](Node* below) {
        Carried merged;
        const bool well = merge.with(carried_by(below), merged);
        if (well) give_arguments(below, merged);
        return well;
    });
}

PyObject* node_merge_args(PyObject* self, PyObject* updates) {
    if (!PyDict_Check(updates))
        return PyErr_Format(PyExc_TypeError, "args must be a dict, not %s", Py_TYPE(updates)->tp_name);
    if (PyDict_GET_SIZE(updates) == 0) Py_RETURN_NONE;
    Merge merge(updates, {});
    return merge_into(as<Node>(self), merge) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* node_take_args(PyObject* self, PyObject* other) {
    if (!PyObject_TypeCheck(other, &node_type))
        return PyErr_Format(PyExc_TypeError, "args are those of a Node");
    const Carried others = carried_by(as<Node>(other));
    const Ref arguments(Py_XNewRef(others.arguments));
    if (others.numbers) ++others.numbers->users;
    const bool takes_told = as<Node>(other)->takes_told;
    each_below(as<Node>(self), [&](Node* node) {
        give_arguments(node, others);
        node->takes_told |= takes_told && !node->has_own;
        return true;
    });
    drop_numbers(others.numbers);
    Py_RETURN_NONE;
}

PyObject* node_clear_args(PyObject* self, PyObject*) {
    each_below(as<Node>(self), [](Node* node) {
        give_arguments(node, {});
        return true;
    });
    Py_RETURN_NONE;
}

PyObject* node_switch(PyObject* self, PyObject* value) {
    const int on = PyObject_IsTrue(value);
    if (on < 0) return nullptr;
    each_below(as<Node>(self), [on](Node* node) {
        node->enabled = on != 0;
        return true;
    });
    Py_RETURN_NONE;
}

void set_by_thread(Node* node, bool on) {
    each_below(node, [on](Node* below) {
        below->by_thread = on;
        below->args_generation = below->told_generation = 0;
        return true;
    });
}

void set_takes_told(Node* node, bool on) {
    each_below(node, [on](Node* below) {
        below->takes_told = on && !below->has_own;
        below->has_own |= !on;
        return true;
    });
}

PyObject* node_takes_told(PyObject* self, PyObject* on) {
    set_takes_told(as<Node>(self), on == Py_True);
    Py_RETURN_NONE;
}

PyObject* node_add_child(PyObject* self, PyObject* child) {
    Node* node = as<Node>(self);
    if (!PyObject_TypeCheck(child, &node_type)) return PyErr_Format(PyExc_TypeError, "a child is a Node");
    if (!node->children && !(node->children = PyList_New(0))) return nullptr;
    if (PyList_Append(node->children, child) != 0) return nullptr;
    if (node->by_thread) set_by_thread(as<Node>(child), true);
    if (node->takes_told) set_takes_told(as<Node>(child), true);
    Py_RETURN_NONE;
}

PyObject* node_copy_args(PyObject* self, PyObject*) { return values_of(carried_by(as<Node>(self))); }

PyObject* get_enabled(PyObject* self, void*) { return PyBool_FromLong(as<Node>(self)->enabled); }
PyObject* get_category(PyObject* self, void*) { return Py_NewRef(as<Node>(self)->category); }
PyObject* get_label(PyObject* self, void*) { return Py_NewRef(as<Node>(self)->label); }

PyMethodDef methods[] = {
    {"_merge_args", node_merge_args, METH_O,
     "Merge a dict into the arguments of this node and all below it."},
    {"_take_args", node_take_args, METH_O,
     "Give this node and all below it the arguments of another, instead of theirs."},
    {"_clear_args", node_clear_args, METH_NOARGS, "Drop the arguments of this node and of all below it."},
    {"_copy_args", node_copy_args, METH_NOARGS, "A copy of this node's arguments."},
    {"_switch", node_switch, METH_O, "Enable or disable this node and all below it."},
    {"_rename", node_rename, METH_VARARGS, "_rename(cat, name): what its spans are called from now on."},
    {"_takes_told", node_takes_told, METH_O,
     "_takes_told(yes): spans of this node, of all below it and of those made from them have what is told of "
     "a training beside their arguments; or never do."},
    {"_add_child", node_add_child, METH_O, "Put a node below this one."},
    {"_begin", node_begin, METH_NOARGS, "Open a span now and return it; None when off."},
    {"_start", node_start, METH_VARARGS,
     "_start(shown=self): open a span of `shown` that this node's `_stop` ends."},
    {"_stop", node_stop, METH_NOARGS, "End the latest span opened by `_start`."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    {"enabled", get_enabled, nullptr, "Whether spans of this node are recorded.", nullptr},
    {"cat", get_category, nullptr, "Category of the events.", nullptr},
    {"name", get_label, nullptr, "Name of the events.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

bool merge_numbers(Node* node, const Numbers& numbers) {
    Merge merge(nullptr, numbers);
    return merge_into(node, merge);
}

void tell_by_default(Node* root, bool on) {
    told_by_default = on;
    each_below(root, [](Node* below) {
        below->args_generation = below->told_generation = 0;
        return true;
    });
}

void number_by_thread(Node* node, bool on) {
    set_by_thread(node, on);
    if (!on) ++times_forgotten;
}

Node* made_by_call(PyTypeObject* type, Node* from, const Numbers& numbers) {
    Carried carried = carried_by(from);
    if (numbers.count) {
        if (!is_plain(as<Arguments>(carried.arguments))) return nullptr;
        Numbers all = carried.numbers ? carried.numbers->numbers : numbers;
        for (std::size_t i = 0; carried.numbers && i < numbers.count; ++i)
            if (!all.put(numbers.keys[i], numbers.values[i])) return nullptr;
        const PyObject* arguments = carried.arguments;
        carried.numbers = take_numbers(arguments ? as<Arguments>(carried.arguments)->number : 0, all);
        if (!carried.numbers) return nullptr;
    } else if (carried.numbers) {
        ++carried.numbers->users;
    }
    // Held: an allocation may run the collector, and that the user's code.
    Py_XINCREF(carried.arguments);
    Node* node = as<Node>(type->tp_alloc(type, 0));
    if (!node) {
        drop_numbers(carried.numbers);
        Py_XDECREF(carried.arguments);
        return nullptr;
    }
    node->vectorcall = from->vectorcall;
    node->name = from->name;
    node->enabled = from->enabled;
    node->by_thread = from->by_thread;
    node->takes_told = from->takes_told;
    node->has_own = from->has_own;
    node->name_generation = from->name_generation;
    node->arguments = carried.arguments;
    node->numbers = carried.numbers;
    node->category = Py_NewRef(from->category);
    node->label = Py_NewRef(from->label);
    return node;
}

PyTypeObject node_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int add_node_type(PyObject* module) {
    node_type.tp_name = "dftrace_ai._native.Node";
    node_type.tp_doc = "The native half of a profiler node.";
    node_type.tp_basicsize = sizeof(Node);
    node_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
    node_type.tp_vectorcall_offset = offsetof(Node, vectorcall);  // used by the types that ask for it
    node_type.tp_new = node_new;
    node_type.tp_dealloc = node_dealloc;
    node_type.tp_traverse = node_traverse;
    node_type.tp_clear = node_clear;
    node_type.tp_weaklistoffset = offsetof(Node, weak_references);
    node_type.tp_methods = methods;
    node_type.tp_getset = properties;
    if (add_arguments_type() < 0 || PyType_Ready(&node_type) < 0 || add_with_protocol(&node_type) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Node", object_of(&node_type));
}

}  // namespace dftrace::py
