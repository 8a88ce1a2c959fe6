#include "training/training_state.hpp"

#include <algorithm>
#include <cstdint>
#include <new>

#include "annotation/events.hpp"
#include "arguments/numbers.hpp"
#include "dftrace/recording/runtime.hpp"

namespace dftrace::py {

namespace {

bool resting = false;
std::uint8_t microbatch_key, microbatches_key;
PyObject *take_pass_name, *end_pass_name, *pass_learns_name, *judges_name;

long long now() {
    Thread* const thread = recording_thread();
    return thread ? static_cast<long long>(thread->tick()) : 0;
}

template <class... Objects>
bool call(TrainingState* self, PyObject* name, Objects*... arguments) {
    const Ref done(PyObject_CallMethodObjArgs(reinterpret_cast<PyObject*>(self), name,
                                              reinterpret_cast<PyObject*>(arguments)..., nullptr));
    return static_cast<bool>(done);
}

// This thread, which learns, is the one that trains.
void come_here(TrainingState* self) {
    const unsigned long me = PyThread_get_thread_ident();
    if (!resting && self->thread == me) return;
    self->thread = me;
    clear(self);
}

Numbers numbers_of_step(const TrainingState* self) {
    constexpr std::uint8_t epoch_key = 0, step_key = 1;
    Numbers numbers;
    if (self->epoch.known) numbers.put(epoch_key, self->epoch.value);
    numbers.put(step_key, self->step);
    return numbers;
}

// Whether the next fetch, and nothing else, ends the step.
bool is_fed(const TrainingState* self) { return self->fed && !self->several_without_fetch; }

void learn(TrainingState* self) {
    self->last = now();
    if (!self->begun) self->begun = self->last;
    self->trained = true;
}

bool pass_trains(TrainingState* self) {
    if (self->pass && !self->pass->trained) {
        const Ref held(Py_NewRef(reinterpret_cast<PyObject*>(self->pass)));
        if (!call(self, pass_learns_name, held.get())) return false;
    }
    if (self->pass) self->pass->last = self->last;
    return true;
}

}  // namespace

bool is_resting_here() noexcept { return resting; }

void rest_here() noexcept { resting = true; }

bool is_here(TrainingState* self) {
    if (resting) return false;
    const unsigned long me = PyThread_get_thread_ident();
    if (self->thread == 0) self->thread = me;
    return self->thread == me;
}

bool is_recorded(const TrainingState* self) { return self->recorded && self->gate->recording && !resting; }

void clear(TrainingState* self) {
    self->begun = self->last = self->backwards = self->microbatches = 0;
    self->closing = self->fed = self->trained = self->judged = self->inner = false;
    self->stepped.clear();
}

bool tell(TrainingState* self) {
    Gate* const gate = self->gate;
    gate->recording = gate->live && self->step >= self->first_step && self->step < self->end_step;
    if (gate->shared && gate->shared != Py_None && !resting) {
        const Ref held(Py_NewRef(gate->shared));
        if (PyObject_SetAttrString(held.get(), "value", gate->recording ? Py_True : Py_False) < 0)
            return false;
    }
    if (!gate->recording) return true;
    Numbers numbers = numbers_of_step(self);
    numbers.put(microbatch_key, 0);
    return merge_numbers(self->everyone, numbers);
}

bool close_step(TrainingState* self, long long end) {
    if (self->begun && is_recorded(self)) {
        Numbers numbers = numbers_of_step(self);
        numbers.put(microbatches_key, std::max({self->microbatches, self->backwards, 1ll}));
        if (!merge_numbers(self->node, numbers)) return false;
        put_between(self->node, static_cast<std::uint64_t>(self->begun), static_cast<std::uint64_t>(end),
                    self->track);
    }
    if (self->begun && self->epoch_is_told) {
        if (!self->epoch_begun) self->epoch_begun = self->begun;
        self->epoch_last = end;
    }
    if (PassState* over = self->pass; over && over->trained) {
        over->last = end;
        if (over->drained && over->fetched <= over->used) {
            const Ref held(Py_NewRef(reinterpret_cast<PyObject*>(over))), when(PyLong_FromLongLong(end));
            if (!when || !call(self, end_pass_name, held.get(), when.get())) return false;
        }
    }
    self->step = self->step_told.known ? self->step_told.value : self->step + 1;
    self->step_told.known = false;
    clear(self);
    return tell(self);
}

bool fetch(TrainingState* self, PyObject* iterator, bool first) {
    if (!is_here(self)) return true;
    const long long time = now();
    if (self->closing && !close_step(self, time)) return false;
    if (first || !self->pass || self->pass->of != reinterpret_cast<std::uintptr_t>(iterator)) {
        const Ref when(PyLong_FromLongLong(time));
        if (!when || !call(self, take_pass_name, iterator, first ? Py_True : Py_False, when.get()))
            return false;
    }
    if (self->pass) ++self->pass->fetched;
    if (!self->trained && (first || self->judged || !self->begun)) {
        self->begun = time;  // what was fetched before led to no training
        self->judged = false;
    }
    self->fed = true;
    self->several_without_fetch = false;
    return true;
}

bool forward(TrainingState* self, bool learns) {
    if (!is_here(self)) return true;
    if (!learns) return call(self, judges_name);
    if (self->closing && !is_fed(self) && !close_step(self, now())) return false;
    learn(self);
    if (!self->backwards || !self->gate->recording) return true;
    Numbers numbers;
    numbers.put(microbatch_key, self->backwards);
    return merge_numbers(self->everyone, numbers);
}

bool clears(TrainingState* self) {
    if (!is_here(self)) return true;
    if (!self->begun) {
        self->clears_first = true;
        self->begun = now();
    } else if (self->closing && self->clears_first && !is_fed(self)) {
        if (!close_step(self, now())) return false;
        self->begun = now();
    }
    return true;
}

void cleared(TrainingState* self) {
    if (self->closing && is_here(self)) self->last = now();
}

bool backward(TrainingState* self, bool in_optimizer) {
    come_here(self);
    learn(self);
    self->inner |= in_optimizer;
    ++self->backwards;
    if (!pass_trains(self)) return false;
    if (self->pass) ++self->pass->used;
    return true;
}

void optimizer_begins(TrainingState* self) {
    come_here(self);
    learn(self);
    self->inner = false;
}

bool optimizer_ends(TrainingState* self, PyObject* optimizer) {
    come_here(self);
    learn(self);
    ++self->optimizers_ended;
    // The same one twice without a fetch in between: what is fetched is not what makes a step.
    if (std::find(self->stepped.begin(), self->stepped.end(), optimizer) != self->stepped.end()) {
        self->several_without_fetch = true;
    } else {
        try {
            self->stepped.push_back(optimizer);
        } catch (const std::bad_alloc&) {
            PyErr_NoMemory();
            return false;
        }
    }
    self->microbatches = std::max(self->microbatches, self->backwards);
    self->backwards = 0;
    self->closing = true;
    return pass_trains(self) && (!self->inner || is_fed(self) || close_step(self, now()));
}

bool prepare_training_state() {
    take_pass_name = PyUnicode_InternFromString("_take_pass");
    end_pass_name = PyUnicode_InternFromString("_end_pass");
    pass_learns_name = PyUnicode_InternFromString("_pass_learns");
    judges_name = PyUnicode_InternFromString("_judges");
    return take_pass_name && end_pass_name && pass_learns_name && judges_name &&
           learn_key("microbatch", microbatch_key) && learn_key("microbatches", microbatches_key);
}

}  // namespace dftrace::py
