// Sets of arguments: made by updates, serialised by the first span that needs them.
#include "arguments/update_sets.hpp"

#include <new>
#include <optional>
#include <string>

#include "arguments/json_args.hpp"

namespace dftrace::py {

namespace {

PyTypeObject arguments_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int arguments_clear(PyObject* self) {
    Py_CLEAR(as<Arguments>(self)->values);
    return 0;
}

void give_back(Arguments* arguments) noexcept {
    if (arguments->generation && arguments->generation == *detail::live_generation)
        if (Session* session = current_session()) session->release_arguments(arguments->snapshot);
    arguments->generation = 0;
}

void arguments_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    give_back(as<Arguments>(self));
    arguments_clear(self);
    delete as<Arguments>(self)->plain;
    PyObject_GC_Del(self);
}

}  // namespace

PyObject* new_arguments(Ref values) {
    if (!values) return nullptr;
    Arguments* made = PyObject_GC_New(Arguments, &arguments_type);
    if (!made) return nullptr;
    made->values = values.release();
    made->generation = made->merge = 0;
    made->snapshot = 0;
    made->settled = false;
    made->merged = nullptr;
    made->merged_numbers = nullptr;
    made->kind = Arguments::Kind::unknown;
    static std::uint64_t last_number = 0;
    made->number = ++last_number;
    made->plain = nullptr;
    PyObject* object = object_of(made);
    PyObject_GC_Track(object);
    return object;
}

bool take_snapshot(Arguments* arguments, Thread* thread, Snapshot& snapshot) {
    const std::uint64_t generation = thread->generation;
    const auto is_there = [&] { return arguments->settled && arguments->generation == generation; };
    if (!is_there()) {
        std::string members;
        std::uint64_t sanitised = 0;
        try {
            if (arguments->values) sanitised = append_members(members, arguments->values);
        } catch (const std::bad_alloc&) {
            members.clear();
            sanitised = 1;
        }
        if (*detail::live_generation != generation) return false;
        Session* session = thread->session;
        // The user's code may have let another thread do it meanwhile.
        if (!is_there()) {
            give_back(arguments);
            const std::optional<std::uint32_t> stored = session->put_arguments(members);
            if (!stored) {
                snapshot.number = stored;
                return true;
            }
            session->count_sanitised(sanitised);
            arguments->snapshot = *stored;
            arguments->generation = generation;
            // What the very values record while they are converted has them by their types alone.
            arguments->settled = !Converting::under_way();
        }
    }
    snapshot = {arguments->snapshot, arguments->settled};
    return true;
}

const PlainText& plain_text(Arguments* arguments, std::uint64_t generation, std::uint64_t& sanitised) {
    if (!arguments->plain) arguments->plain = new PlainText;
    PlainText& plain = *arguments->plain;
    if (plain.generation != generation) {
        plain.generation = 0;
        plain.text.clear();
        plain.members.clear();
        plain.sanitised = arguments->values ? append_plain(plain.text, arguments->values, plain.members) : 0;
        plain.generation = generation;
    }
    sanitised += plain.sanitised;
    return plain;
}

PyObject* values_of(const Carried& carried) {
    PyObject* before = carried.arguments ? as<Arguments>(carried.arguments)->values : nullptr;
    Ref values(before ? PyDict_Copy(before) : PyDict_New());
    if (values && carried.numbers && !put_into(values.get(), carried.numbers->numbers)) return nullptr;
    return values.release();
}

std::uint64_t Merge::last_ = 0;

Merge::~Merge() {
    for (NumberSet* made : made_numbers_) drop_numbers(made);
}

PyObject* Merge::keep(Ref values) {
    Ref made(new_arguments(std::move(values)));
    if (!made) return nullptr;
    try {
        made_.push_back(std::move(made));
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return made_.back().get();
}

// Over what is plain, where there is place for them; else false, with no error set.
bool Merge::make_numbers(const Carried& before, Carried& merged) {
    Arguments* arguments = as<Arguments>(before.arguments);
    if (!given_ || !is_plain(arguments)) return false;
    if (!before.numbers) {
        NumberSet* known = !arguments                    ? from_nothing_.numbers
                           : arguments->merge == number_ ? arguments->merged_numbers
                                                         : nullptr;
        if (known) {
            merged = {before.arguments, known};
            return true;
        }
    }
    Numbers numbers = before.numbers ? before.numbers->numbers : *given_;
    for (std::size_t i = 0; before.numbers && i < given_->count; ++i)
        if (!numbers.put(given_->keys[i], given_->values[i])) return false;
    NumberSet* made = take_numbers(arguments ? arguments->number : 0, numbers);
    if (!made) return false;
    try {
        made_numbers_.push_back(made);
    } catch (const std::bad_alloc&) {
        drop_numbers(made);
        return false;
    }
    if (before.numbers) {
        before.numbers->merge = number_;
        before.numbers->merged = made;
        before.numbers->settled = nullptr;
    } else if (arguments) {
        arguments->merge = number_;
        arguments->merged_numbers = made;
        arguments->merged = nullptr;
    } else {
        from_nothing_.numbers = made;
    }
    merged = {before.arguments, made};
    return true;
}

bool Merge::make(const Carried& before, Carried& merged) {
    if (make_numbers(before, merged)) return true;
    merged = {};
    Arguments* arguments = as<Arguments>(before.arguments);
    PyObject* known = before.numbers ? before.numbers->merge == number_ ? before.numbers->settled : nullptr
                      : arguments    ? arguments->merge == number_ ? arguments->merged : nullptr
                                     : from_nothing_.arguments;
    if (known) {
        merged.arguments = known;
        return true;
    }
    if (!updates_) {
        updates_ = Ref(PyDict_New());
        if (!updates_ || !put_into(updates_.get(), *given_)) return false;
    }
    // Held: keys that are compared may run code that takes the set from its nodes.
    const Ref held(Py_XNewRef(before.arguments));
    if (before.numbers) ++before.numbers->users;
    Ref values(values_of(before));
    const bool well = values && PyDict_Update(values.get(), updates_.get()) == 0;
    merged.arguments = well ? keep(std::move(values)) : nullptr;
    if (merged.arguments) {
        if (before.numbers) {
            before.numbers->merge = number_;
            before.numbers->merged = nullptr;
            before.numbers->settled = merged.arguments;
        } else if (arguments) {
            arguments->merge = number_;
            arguments->merged = merged.arguments;
            arguments->merged_numbers = nullptr;
        } else {
            from_nothing_.arguments = merged.arguments;
        }
    }
    drop_numbers(before.numbers);
    return merged.arguments != nullptr;
}

int add_arguments_type() {
    describe<Arguments>(arguments_type, "dftrace_ai._native.Arguments", nullptr, Py_TPFLAGS_HAVE_GC);
    arguments_type.tp_dealloc = arguments_dealloc;
    arguments_type.tp_traverse = Owning<Arguments, &Arguments::values>::traverse;
    arguments_type.tp_clear = arguments_clear;
    return PyType_Ready(&arguments_type);
}

}  // namespace dftrace::py
