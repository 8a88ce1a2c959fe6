// The Node type: arguments, children, switching on and off.
#include "annotation/node.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "annotation/span.hpp"
#include "arguments/update_sets.hpp"
#include "dftrace/text/names.hpp"
#include "parts.hpp"

namespace dftrace::py {

namespace {

struct Told {
    std::uint64_t since;    // which time they were told since all were forgotten
    std::uint64_t version;  // no two are alike
    Numbers numbers;
    std::array<std::uint64_t, Numbers::most> versions;  // that each was told with
    NumberSet* set;                                     // these over nothing; or null
};
thread_local Told told_to_thread;  // has no set, for it goes without the GIL
Told told_everywhere, told_to_followers;
// What all of them need that follow and carry nothing: no more than this is looked at in most spans of a
// step.
struct SharedByFollowers {
    std::uint64_t version;  // of what was told last, to whomever
    std::uint64_t known;    // that which has the snapshot, in the session of that generation
    std::uint64_t generation;
    std::uint32_t snapshot;
};
SharedByFollowers shared;
std::uint64_t times_forgotten = 0;
bool told_by_default = false, by_thread = false;

void put(Told& into, const Numbers& numbers) noexcept {
    if (into.since != times_forgotten) {
        into.since = times_forgotten;
        into.numbers = {};
    }
    into.version = ++shared.version;
    for (std::size_t i = 0; i < numbers.count; ++i) {
        std::size_t at = i;
        if (at >= into.numbers.count || into.numbers.keys[at] != numbers.keys[i]) {
            if (!into.numbers.put(numbers.keys[i], numbers.values[i])) continue;
            for (at = 0; into.numbers.keys[at] != numbers.keys[i];) ++at;
        }
        into.numbers.values[at] = numbers.values[i];
        into.versions[at] = shared.version;
    }
    drop_numbers(std::exchange(into.set, nullptr));
}

void forget(Told& what) noexcept {
    what.numbers = {};
    what.version = ++shared.version;
    drop_numbers(std::exchange(what.set, nullptr));
}

bool takes_told(const Node* node) noexcept { return node->follows || (node->takes_told && told_by_default); }

// What a node that takes it is told; null for nothing.
Told* told_to(const Node* node) noexcept {
    if (node->follows && !by_thread) return told_to_followers.numbers.count ? &told_to_followers : nullptr;
    if (told_everywhere.numbers.count) return &told_everywhere;
    Told& here = told_to_thread;
    return here.since == times_forgotten && here.numbers.count ? &here : nullptr;
}

// Which of these numbers the node has not got by itself.
Numbers to_add(const Node* node, const Told& told) {
    Numbers added;
    const Arguments* const arguments = as<Arguments>(node->arguments);
    const Numbers own = node->numbers ? node->numbers->numbers : Numbers{};
    const auto is_given = [&](std::uint8_t key) {
        const auto end = own.keys.begin() + static_cast<std::ptrdiff_t>(own.count);
        return std::find(own.keys.begin(), end, key) != end ||
               (arguments && arguments->values && has_key(arguments->values, key));
    };
    for (std::size_t i = 0; i < told.numbers.count; ++i) {
        const std::uint8_t key = told.numbers.keys[i];
        const bool adds = node->follows ? by_thread || told.versions[i] > node->own_version : !is_given(key);
        if (adds) static_cast<void>(added.put(key, told.numbers.values[i]));
    }
    return added;
}

// What a node that follows has been told since it was given what it carries.
Numbers told_since(const Node* node) {
    return node->follows && !by_thread && told_to_followers.numbers.count ? to_add(node, told_to_followers)
                                                                          : Numbers{};
}

// These numbers over what the node carries. Null where there is nothing to add, or where there is no place
// for it: then `all_added` is false.
NumberSet* set_over(const Node* node, const Numbers& told, bool& all_added) {
    Arguments* const arguments = as<Arguments>(node->arguments);
    all_added = is_plain(arguments);
    if (!all_added) return nullptr;
    Numbers all = node->numbers ? node->numbers->numbers : Numbers{};
    bool added = false;
    for (std::size_t i = 0; i < told.count; ++i) {
        const bool put = all.put(told.keys[i], told.values[i]);
        added |= put;
        all_added &= put;
    }
    return added ? take_numbers(arguments ? arguments->number : 0, all) : nullptr;
}

Carried carried_by(const Node* node) noexcept { return {node->arguments, node->numbers}; }

// Other arguments for a node, or none; the next span takes a snapshot of them. What goes may run code.
void give_arguments(Node* node, const Carried& to) {
    node->args_id = 0;
    node->args_generation = node->told_generation = 0;
    if (node->follows) {
        node->plain_generation = 0;
        node->own_version = shared.version;
    }
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

// Has the node carry by itself what it has been told; false with an error set.
bool keep_told(Node* node) {
    const Numbers told = told_since(node);
    if (!told.count) return true;
    Merge merge(nullptr, told);
    Carried merged;
    if (!merge.with(carried_by(node), merged)) return false;
    give_arguments(node, merged);
    return true;
}

// An update of nodes, over what those that follow have been told before it.
class Update {
  public:
    // `updates`: a dict; null where there are only numbers.
    Update(PyObject* updates, const Numbers& numbers)
        : updates_(updates), given_(numbers), merge_(updates, given_) {}

    // False with an error set. What `merged` says is borrowed.
    [[nodiscard]] bool with(const Node* node, Carried& merged) {
        return node->follows ? with_told(node, merged) : merge_.with(carried_by(node), merged);
    }

  private:
    // Few follow: those that do not are many, and get through an update without this.
    [[gnu::noinline]] bool with_told(const Node* node, Carried& merged) {
        const Numbers told = told_since(node);
        if (!told.count) return merge_.with(carried_by(node), merged);
        if ((!over_told_ || !(told == told_)) && !make_over(told)) return false;
        return over_told_->with(carried_by(node), merged);
    }

    bool make_over(const Numbers& told) {
        told_ = both_ = told;
        bool fits = !updates_;
        for (std::size_t i = 0; fits && i < given_.count; ++i)
            fits = both_.put(given_.keys[i], given_.values[i]);
        if (fits) {
            over_told_.emplace(nullptr, both_);
            return true;
        }
        const Ref all(PyDict_New());
        if (!all || !put_into(all.get(), told)) return false;
        if (updates_ ? PyDict_Update(all.get(), updates_) < 0 : !put_into(all.get(), given_)) return false;
        over_told_.emplace(all.get(), Numbers{});
        return true;
    }

    PyObject* updates_;
    Numbers given_, told_{}, both_{};
    Merge merge_;
    std::optional<Merge> over_told_;  // of nodes that were told these
};

// The numbers that the node's next span has, for it is told some; borrowed. Null where the node has got to
// carry them by itself.
NumberSet* set_told(Node* node, Told& told) {
    const bool itself = node->follows && !by_thread;
    const bool empty = !node->arguments && !node->numbers;
    const auto end = told.versions.begin() + static_cast<std::ptrdiff_t>(told.numbers.count);
    const auto is_new = [node](std::uint64_t version) { return version > node->own_version; };
    const bool part = itself && !std::all_of(told.versions.begin(), end, is_new);
    if (empty && !part && &told != &told_to_thread) {
        if (!told.set) told.set = take_numbers(0, told.numbers);
        drop_numbers(std::exchange(node->numbers_of_one, nullptr));
        return told.set;
    }
    bool all_added = false;
    NumberSet* const set = empty && part ? nullptr : set_over(node, to_add(node, told), all_added);
    drop_numbers(std::exchange(node->numbers_of_one, set));
    if (all_added || !itself) return set;
    // Not over plain arguments, or too many, or in an order of its own from now on.
    ErrorAside aside;
    if (!keep_told(node)) forget_error();
    return nullptr;
}

[[gnu::noinline]] bool prepare_slow(Node* node, Thread* thread, bool to_open) {
    const std::uint64_t generation = thread->generation;
    Snapshot snapshot;
    const bool takes = takes_told(node);
    Told* const told = takes ? told_to(node) : nullptr;
    // Another thread is told other numbers at the same time.
    constexpr std::uint64_t of_one_thread = std::uint64_t{1} << 63;
    const bool alone = told == &told_to_thread;
    const std::uint64_t version = alone ? told->version | of_one_thread : shared.version;
    if (alone && node->told_generation == generation && node->told_version == version) return true;
    NumberSet* const set = told ? set_told(node, *told) : nullptr;
    if (*detail::live_generation != generation) return false;
    if (set) {
        snapshot.number = snapshot_of(set, as<Arguments>(node->arguments), thread);
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
    node->told_generation = settled && takes ? generation : 0;
    node->told_version = version;
    node->args_generation = settled && !takes ? generation : 0;
    if (settled && set && told == &told_to_followers && set == told->set && !node->arguments &&
        !node->numbers) {
        shared.known = shared.version;
        shared.generation = node->plain_generation = generation;
        shared.snapshot = node->args_id;
    }
    if (snapshot.number || to_open) return true;
    thread->session->count_dropped();
    return false;
}

}  // namespace

bool prepare_told(Node* node, Thread* thread, bool to_open) {
    const std::uint64_t generation = thread->generation;
    if (node->told_generation == generation) {
        if (node->told_version == shared.version) return true;
        if (node->plain_generation == generation && shared.known == shared.version &&
            shared.generation == generation) {
            node->args_id = shared.snapshot;
            node->told_version = shared.version;
            return true;
        }
    }
    return prepare_slow(node, thread, to_open);
}

void follow_told(Node* node) {
    if (node->follows) return;
    each_below(node, [](Node* below) {
        below->follows = true;
        below->own_version = 0;
        below->args_generation = below->told_generation = below->plain_generation = 0;
        return true;
    });
}

void tell_followers(const Numbers& numbers) noexcept { put(told_to_followers, numbers); }

void forget_told() noexcept { forget(told_to_followers); }

void put_in_thread(const Numbers& numbers, bool everywhere) noexcept {
    put(told_to_thread, numbers);
    if (everywhere)
        put(told_everywhere, numbers);
    else
        forget(told_everywhere);
}

void drop_in_thread(std::uint8_t key) noexcept {
    for (Told* into : {&told_to_thread, &told_everywhere}) {
        const Numbers before = into->numbers;
        forget(*into);
        for (std::size_t i = 0; i < before.count; ++i)
            if (before.keys[i] != key) static_cast<void>(into->numbers.put(before.keys[i], before.values[i]));
    }
}

void tell_by_default(Node* root, bool on) {
    told_by_default = on;
    each_below(root, [](Node* below) {
        below->args_generation = below->told_generation = 0;
        return true;
    });
}

void tell_by_thread(bool on) noexcept {
    by_thread = on;
    if (on) return;
    ++times_forgotten;
    forget(told_everywhere);
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
    node->args_generation = node->told_generation = node->plain_generation = 0;
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

bool merge_into(Node* node, Update& update) {
    return each_below(node, [&update](Node* below) {
        Carried merged;
        const bool well = update.with(below, merged);
        if (well) give_arguments(below, merged);
        return well;
    });
}

PyObject* node_merge_args(PyObject* self, PyObject* updates) {
    if (!PyDict_Check(updates))
        return PyErr_Format(PyExc_TypeError, "args must be a dict, not %s", Py_TYPE(updates)->tp_name);
    if (PyDict_GET_SIZE(updates) == 0) Py_RETURN_NONE;
    Update update(updates, {});
    return merge_into(as<Node>(self), update) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* node_take_args(PyObject* self, PyObject* other) {
    if (!PyObject_TypeCheck(other, &node_type))
        return PyErr_Format(PyExc_TypeError, "args are those of a Node");
    if (!keep_told(as<Node>(other))) return nullptr;
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
    if (node->follows) follow_told(as<Node>(child));
    if (node->takes_told) set_takes_told(as<Node>(child), true);
    Py_RETURN_NONE;
}

PyObject* node_copy_args(PyObject* self, PyObject*) {
    Node* const node = as<Node>(self);
    return keep_told(node) ? values_of(carried_by(node)) : nullptr;
}

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
    Update update(nullptr, numbers);
    return merge_into(node, update);
}

Node* made_by_call(PyTypeObject* type, Node* from, const Numbers& numbers) {
    if (from->follows) return nullptr;
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
