#include "training/training_state.hpp"

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>

#include "annotation/span.hpp"
#include "arguments/numbers.hpp"
#include "dftrace/recording/runtime.hpp"
#include "dftrace/recording/session.hpp"
#include "dftrace/text/names.hpp"

namespace dftrace::py {

namespace {

std::uint8_t microbatch_key, microbatches_key;
PyObject *take_pass_name, *end_pass_name, *pass_learns_name, *judges_name, *feeds_name, *alive_name,
    *failed_name, *of_thread_name, *tracks_name, *forget_name, *expects_name, *learner_name;

long long now() {
    Thread* const thread = recording_thread();
    return thread ? static_cast<long long>(thread->tick()) : 0;
}

template <class... Objects>
bool call(TrainingState* self, PyObject* name, Objects*... arguments) {
    const Ref done(PyObject_CallMethodObjArgs(object_of(self), name, object_of(arguments)..., nullptr));
    return static_cast<bool>(done);
}

constexpr std::uint8_t epoch_key = 0, step_key = 1;

Numbers numbers_of_step(const TrainingState* self, long long step) {
    Numbers numbers;
    if (self->epoch.known) numbers.put(epoch_key, self->epoch.value);
    numbers.put(step_key, step);
    return numbers;
}

long long next_step(const TrainingState* self) {
    return self->step_told.known ? self->step_told.value : self->step + 1;
}

long long step_on(const TrainingState* self) { return self->ahead ? next_step(self) : self->step; }

bool is_among(long long step, const TrainingState* self) {
    return step >= self->first_step && step < self->end_step;
}

// The one that trains, of which there is one at most.
const TrainingState* only_training(const TrainingState* first) {
    PyObject* other = nullptr;
    Py_ssize_t at = 0;
    while (!first->training && PyDict_Next(first->others, &at, nullptr, &other))
        if (as<TrainingState>(other)->training) return as<TrainingState>(other);
    return first;
}

// Numbers reach all that carry those of the step. Where several threads train, those of this thread alone.
void give(const TrainingState* self, const Numbers& numbers) noexcept {
    const int trainings = self->first->trainings;
    if (trainings && !self->training) return;  // what it fetches and computes leads to no step of its own
    if (self->training) put_in_thread(numbers, trainings == 1);
    // Which microbatch a backward pass is of that nobody sees is not known.
    if (self->unseen && !self->microbatch.known && trainings == 1) drop_in_thread(microbatch_key);
    if (trainings < 2) tell_followers(numbers);
}

void give_microbatch(const TrainingState* self, long long number) noexcept {
    if (!self->gate->recording) return;
    Numbers numbers;
    numbers.put(microbatch_key, number);
    give(self, numbers);
}

// All numbers anew, as a step begins or none is on.
bool give_all(TrainingState* self) {
    if (!self->between) {
        Numbers numbers = numbers_of_step(self, step_on(self));
        numbers.put(microbatch_key, self->microbatch.known ? self->microbatch.value : 0);
        give(self, numbers);
        return true;
    }
    const TrainingState* const first = self->first;
    if (first->trainings && !self->training) return true;
    if (self->training)
        for (const std::uint8_t key : {epoch_key, step_key, microbatch_key}) drop_in_thread(key);
    if (first->trainings < 2 && !call(self, forget_name)) return false;
    Numbers numbers;
    if (self->epoch.known) numbers.put(epoch_key, self->epoch.value);
    give(self, numbers);
    return true;
}

// This thread trains: something is learned from what it has fetched or cleared itself, or its optimizer
// steps.
bool comes_to_train(TrainingState* self) {
    TrainingState* const first = self->first;
    if (self->training) return true;
    self->training = ++first->trainings;
    if (self->training == 2) {
        // From now on all spans carry what is said of their own thread.
        if (!call(first, forget_name)) return false;
        tell_by_thread(true);
    }
    if (self->training > 1) {
        const Ref number(PyLong_FromLong(self->training));
        const Ref named(number ? PyObject_CallMethodOneArg(object_of(self), tracks_name, number.get())
                               : nullptr);
        if (!named) return false;
    }
    Numbers numbers = numbers_of_step(self, self->step);
    numbers.put(microbatch_key, std::max(self->backwards - 1, 0ll));
    give(self, numbers);
    return true;
}

void learn(TrainingState* self) {
    self->last = now();
    if (!self->begun) self->begun = self->last;
    if (!self->trained) self->clears_first = self->cleared;
    self->trained = true;
}

bool pass_trains(TrainingState* self) {
    if (self->pass && !self->pass->trained) {
        const Ref held(Py_NewRef(object_of(self->pass)));
        if (!call(self, pass_learns_name, held.get())) return false;
    }
    if (self->pass) self->pass->last = self->last;
    return true;
}

}  // namespace

bool resting = false;

TrainingState* state_of_thread(TrainingState* first, bool made) {
    if (resting) return nullptr;
    const unsigned long me = this_thread_state()->thread_id;
    if (first->thread == 0 || first->thread == me) {
        first->thread = me;
        first->here = &detail::this_thread;
        return first;
    }
    const Ref number(PyLong_FromUnsignedLong(me));
    if (!number) return nullptr;
    PyObject* const known = PyDict_GetItemWithError(first->others, number.get());
    if (known || !made || PyErr_Occurred()) return as<TrainingState>(known);
    first->here = nullptr;
    // Kept by the first.
    const Ref fresh(PyObject_CallMethodOneArg(object_of(first), of_thread_name, number.get()));
    return as<TrainingState>(fresh.get());
}

bool is_recorded(const TrainingState* self) {
    const TrainingState* const first = self->first;
    if (!first->recorded || !self->gate->live || resting) return false;
    return self->training > 1 ? self->gate->recording : is_among(self->step, self);
}

bool numbers_here(TrainingState* first, MaybeNumber& step, MaybeNumber& epoch) {
    const TrainingState* self = state_here(first, false);
    if (PyErr_Occurred() || (first->trainings > 1 && (!self || !self->training))) return false;
    if (!self || (first->trainings && !self->training)) self = only_training(first);
    step = {step_on(self), !self->between};
    epoch = self->epoch;
    return true;
}

void forget_threads(TrainingState* first) {
    PyDict_Clear(first->others);
    first->thread = 0;
    first->here = nullptr;
    first->trainings = first->training = 0;
    tell_by_thread(false);
    first->said = {};
}

void clear(TrainingState* self) {
    self->begun = self->last = self->backwards = self->microbatches = self->boundary = self->forwards =
        self->scheduled = 0;
    self->model = nullptr;
    self->closing = self->trained = self->judged = self->inner = self->cleared = self->ahead = false;
    self->stepped.clear();
}

bool tell(TrainingState* self) {
    Gate* const gate = self->gate;
    // Which steps are recorded goes by the training that was there first.
    if (self->training > 1 || (self->first->trainings && !self->training)) return give_all(self);
    gate->recording = gate->live && is_among(step_on(self), self);
    if (gate->shared && gate->shared != Py_None && !resting) {
        const Ref held(Py_NewRef(gate->shared));
        if (PyObject_SetAttrString(held.get(), "value", gate->recording ? Py_True : Py_False) < 0)
            return false;
    }
    return !gate->recording || give_all(self);
}

void tell_epoch(TrainingState* self) {
    Numbers numbers;
    numbers.put(epoch_key, self->epoch.value);
    if (self->gate->recording && self->epoch.known) give(self, numbers);
}

namespace {

// Where step and epoch stand until they are recorded, for who completes the trace of a process that dies.
enum Awaited : std::uint8_t { the_step, the_epoch };

// Asked for once in a session: it is found with a lock.
std::uint32_t lane_of_steps(TrainingState* self, Thread* thread) {
    if (self->lane_generation != thread->generation || self->lane_track != self->track) {
        self->lane = thread->session->lane_named(*thread, number_of_track(self->track));
        self->lane_generation = self->lane ? thread->generation : 0;
        self->lane_track = self->track;
    }
    return self->lane;
}

// It is recorded, or never will be. The place may be another thread's by now.
void forget(const TrainingState* self, Awaited which, std::uint64_t& id) {
    const std::uint64_t before = std::exchange(id, 0);
    if (!before || self->awaited_generation != *detail::live_generation) return;
    AwaitedSlot& slot = self->awaited_in->awaited[which];
    if (slot.span.id == before) slot.clear();
}

// An optimizer has stepped: the process may die before the step and its epoch are recorded.
void await(TrainingState* self) try {
    if (!is_recorded(self) || !self->node->enabled) return;
    Thread* const thread = recording_thread();
    if (!thread) return;
    const bool told = self->epoch_is_told;
    const PassState* const pass = self->pass;
    const bool in_epoch = told || (pass && pass->trained && !pass->told);
    static const std::uint32_t epoch_name = intern_name("pipeline", "epoch");
    if (thread->block != self->awaited_in || thread->generation != self->awaited_generation) {
        thread->session->define_names(std::max(self->node->name, epoch_name));
        forget(self, the_step, self->step_id);
        forget(self, the_epoch, self->epoch_id);
        self->awaited_in = thread->block;
        self->awaited_generation = thread->generation;
    }
    if (!self->step_id) self->step_id = thread->new_id();
    const auto number = [](const MaybeNumber& one, std::uint32_t which) { return one.known ? which : 0u; };
    self->awaited_in->awaited[the_step].put(
        {self->step_id, static_cast<std::uint64_t>(self->begun), static_cast<std::uint64_t>(self->last),
         self->node->name, lane_of_steps(self, thread), self->epoch.value, self->step,
         std::max({self->microbatches, self->backwards, 1ll}),
         number(self->epoch, awaited_epoch) | awaited_step | awaited_microbatches, 0});
    if (!in_epoch) return;
    const long long begun = told ? (self->epoch_begun ? self->epoch_begun : self->begun) : pass->begun;
    AwaitedSlot& epoch = self->awaited_in->awaited[the_epoch];
    if (self->epoch_id && epoch.span.start == static_cast<std::uint64_t>(begun)) return;
    const MaybeNumber& which = told ? self->epoch : pass->number;
    self->epoch_id = thread->new_id();
    epoch.put({self->epoch_id, static_cast<std::uint64_t>(begun), 0, epoch_name,
               thread->session->lane_named(*thread, number_of_track(self->epoch_track)), which.value, 0, 0,
               number(which, awaited_epoch), 0});
} catch (const std::bad_alloc&) {
    // Should the process die, it is not told.
}

}  // namespace

void forget_epoch(TrainingState* self) { forget(self, the_epoch, self->epoch_id); }

bool leave_step(TrainingState* self) {
    if (self->between) return true;
    self->between = true;
    return tell(self);
}

bool enter_step_now(TrainingState* self) {
    PassState* const pass = self->pass;
    if (pass && !pass->trained && !pass->learns) {
        const Ref held(Py_NewRef(object_of(pass)));
        if (!call(self, expects_name, held.get())) return false;
    }
    if (!self->between) return true;
    self->between = false;
    return tell(self);
}

namespace {

// Its numbers are stored without a set of them, for the next step has others; the snapshot is released with
// that one's.
void record_step(TrainingState* self, long long end) noexcept try {
    if (!self->node->enabled) return;
    Thread* const thread = recording_thread();
    if (!thread) return count_event_without_thread();
    Numbers& said = self->said;
    if (self->epoch.known) said.put(epoch_key, self->epoch.value);
    said.put(step_key, self->step);
    said.put(microbatches_key, std::max({self->microbatches, self->backwards, 1ll}));
    if (self->said_generation != thread->generation) {
        thread->session->define_names(self->node->name);
        self->said_snapshot = 0;
        self->said_generation = thread->generation;
    }
    const std::optional<std::uint32_t> arguments = put_numbers(said, self->said_snapshot, thread);
    if (!arguments) return thread->session->count_dropped();
    self->said_snapshot = *arguments;
    const auto begun = static_cast<std::uint64_t>(self->begun);
    const auto ended = std::max(static_cast<std::uint64_t>(end), begun + tick_source.min_step);
    const std::uint32_t lane = lane_of_steps(self, thread);
    Record* const record = thread->reserve();
    if (!record) return;
    *record = Record{};
    record->start = begun;
    record->end = ended;
    record->id = self->step_id ? self->step_id : thread->new_id();
    record->level = 1;
    record->lane = lane;
    record->node = self->node->name;
    record->args = *arguments;
    record->kind = Kind::span;
    thread->commit();
} catch (const std::bad_alloc&) {
    if (Session* const session = current_session()) session->count_dropped();
}

}  // namespace

bool close_step(TrainingState* self, long long end) {
    if (self->begun && is_recorded(self)) record_step(self, end);
    forget(self, the_step, self->step_id);
    self->unfed = !self->fed;
    if (self->begun && self->epoch_is_told) {
        if (!self->epoch_begun) self->epoch_begun = self->begun;
        self->epoch_last = end;
    }
    if (PassState* over = self->pass; over && over->trained) {
        over->last = end;
        if (over->drained && over->fetched <= over->used) {
            const Ref held(Py_NewRef(object_of(over))), when(PyLong_FromLongLong(end));
            if (!when || !call(self, end_pass_name, held.get(), when.get())) return false;
        }
    }
    self->step = next_step(self);
    self->step_told.known = false;
    if (self->boundary) self->follows = true;
    if (!self->stepped.empty()) self->roster.swap(self->stepped);
    clear(self);
    return tell(self);
}

namespace {

bool has_stepped(const TrainingState* self, const void* optimizer) {
    return std::find(self->stepped.begin(), self->stepped.end(), optimizer) != self->stepped.end();
}

// 1 where a batch is being used of a loader that may give more, or of those it gave ahead; -1 with an error
// set.
int is_fed(TrainingState* self) {
    if (!self->fed) return 0;
    const PassState* const pass = self->pass;
    if (pass && pass->drained) return pass->fetched > pass->used;
    const Ref feeds(PyObject_CallMethodNoArgs(object_of(self), feeds_name));
    return feeds ? PyObject_IsTrue(feeds.get()) : -1;
}

// Whether an optimizer is to be expected in this step that has not stepped in it; -1 with an error set.
int misses_one(TrainingState* self) {
    const auto known = [self](const void* one) { return has_stepped(self, one); };
    if (std::any_of(self->roster.begin(), self->roster.end(), known))  // else of another training
        return !std::all_of(self->roster.begin(), self->roster.end(), known);
    const Ref alive(PyObject_CallMethodNoArgs(object_of(self), alive_name));
    const long long number = alive ? PyLong_AsLongLong(alive.get()) : -1;
    return PyErr_Occurred() ? -1 : number > static_cast<long long>(self->stepped.size());
}

bool tell_ahead(TrainingState* self, bool ahead) {
    if (self->ahead == ahead) return true;
    self->ahead = ahead;
    return tell(self);
}

enum class Sign : std::uint8_t { none, again, other };

// Behind the step of an optimizer an update begins. Which optimizer's it is decides whose step that is, and
// is known for certain when that one steps; its number is told by what is likely until then.
bool update_begins(TrainingState* self, Sign sign, bool decided) {
    if (!self->closing || count_of(Inside::optimizer)) return true;
    if (self->boundary) return sign != Sign::other || tell_ahead(self, false);
    if (decided && !self->together) {
        const int fed = is_fed(self);
        if (fed <= 0) return !fed && close_step(self, now());
    }
    self->boundary = now();
    if (sign == Sign::none && !self->follows) {
        const int misses = misses_one(self);
        if (misses < 0) return false;
        // Where clearing begins an update, a forward alone is none.
        if (!misses && !(self->clears_first && self->roster.empty())) sign = Sign::again;
    }
    return tell_ahead(self, sign == Sign::again);
}

// An optimizer steps: for the first time in the step that is on, or it begins the next one.
bool decide(TrainingState* self, PyObject* optimizer) {
    if (!self->closing) return true;
    const long long boundary = self->boundary, backwards = self->backwards;
    if (!has_stepped(self, optimizer)) {
        self->boundary = 0;
        self->together |= boundary != 0;
        return tell_ahead(self, false);
    }
    if (self->stepped.size() == 1) self->together = false;
    const long long begun = boundary ? boundary : now();
    const bool cleared = self->cleared;
    self->backwards = self->boundary = 0;  // the next step's
    if (!close_step(self, begun)) return false;
    self->follows = false;
    self->begun = begun;
    self->trained = true;
    self->cleared = self->clears_first = cleared;
    self->backwards = backwards;
    if (backwards > 1) give_microbatch(self, backwards - 1);
    return true;
}

}  // namespace

bool fetch(TrainingState* all, PyObject* iterator, bool first) {
    TrainingState* const self = state_here(all, first);
    if (!self) return !PyErr_Occurred();
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
        self->judged = self->cleared = false;
    }
    self->fed = true;
    const PassState* const pass = self->pass;
    return !pass || pass->trained || pass->learns ? enter_step(self) : leave_step(self);
}

bool forward(TrainingState* all, bool learns, const void* model) {
    TrainingState* const self = state_here(all, learns);
    if (!self) return !PyErr_Occurred();
    if (!learns) return call(self, judges_name);
    if (!self->training && (self->fed || self->cleared) && !comes_to_train(self)) return false;
    if (!update_begins(self, Sign::none, true) || !enter_step(self)) return false;
    learn(self);
    if (!self->model) {
        self->model = model;
        if (model && self->pass && !self->pass->trained) {
            PyObject* const asked = static_cast<PyObject*>(const_cast<void*>(model));
            if (!call(self, learner_name, asked)) return false;
        }
    }
    if (model && self->model == model) ++self->forwards;
    const long long before = self->backwards || !self->unseen ? self->backwards : self->forwards - 1;
    if (self->microbatch.known)
        give_microbatch(self, self->microbatch.value);
    else if (before > 0)
        give_microbatch(self, before);
    return true;
}

bool at_microbatch(TrainingState* all, MaybeNumber number) {
    TrainingState* const self = state_here(all, number.known);
    if (!self) return !PyErr_Occurred();
    self->microbatch = number;
    if (number.known) self->scheduled = std::max(self->scheduled, number.value + 1);
    // The first of a step begins it, which has its number told.
    if (number.known && !self->between) give_microbatch(self, number.value);
    return true;
}

bool clears(TrainingState* all, PyObject* optimizer) {
    TrainingState* const self = state_here(all, true);
    if (!self) return !PyErr_Occurred();
    if (!self->training && self->fed && !comes_to_train(self)) return false;
    if (self->closing) {
        const bool again = has_stepped(self, optimizer);
        // Behind its own step it belongs to that one, unless clearing is what begins an update.
        if (self->clears_first || (!again && self->fed)) {
            if (!update_begins(self, again ? Sign::again : Sign::other, self->clears_first)) return false;
            if (self->boundary) self->cleared = true;
        }
    }
    if (!self->closing && !self->trained) {
        self->cleared = true;
        if (!self->begun) self->begun = now();
        // What is cleared in front of a loop is for the first of its steps.
        if (self->fed || self->unfed) return enter_step(self);
    }
    return true;
}

bool cleared(TrainingState* all) {
    TrainingState* const self = state_here(all, false);
    if (self && self->closing && !self->boundary) self->last = now();
    return self || !PyErr_Occurred();
}

bool backward_begins(TrainingState* all) {
    TrainingState* const self = state_here(all, true);
    // What was computed in one forward may be for several optimizers, with a loader and without.
    return self ? update_begins(self, Sign::none, false) && enter_step(self) : !PyErr_Occurred();
}

bool backward(TrainingState* all, bool in_optimizer) {
    TrainingState* const self = state_here(all, true);
    if (!self) return !PyErr_Occurred();
    learn(self);
    self->inner |= in_optimizer;
    ++self->backwards;
    if (!pass_trains(self)) return false;
    if (self->pass) ++self->pass->used;
    return true;
}

bool optimizer_begins(TrainingState* all, PyObject* optimizer) {
    TrainingState* const self = state_here(all, true);
    if (!self) return !PyErr_Occurred();
    if (!comes_to_train(self) || !decide(self, optimizer) || !enter_step(self)) return false;
    learn(self);
    self->inner = false;
    return true;
}

bool optimizer_ends(TrainingState* all, PyObject* optimizer) {
    TrainingState* const self = state_here(all, true);
    if (!self) return !PyErr_Occurred();
    // One that is left out has not begun.
    if (!comes_to_train(self) || !decide(self, optimizer)) return false;
    learn(self);
    ++self->optimizers_ended;
    try {
        self->stepped.push_back(optimizer);
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
        return false;
    }
    // Schedules of pipelines call the engine of autograd by themselves.
    self->unseen = !self->backwards && !self->microbatches && self->forwards;
    self->microbatches = std::max(self->microbatches, self->unseen ? self->forwards : self->backwards);
    // It has one for each of its stages, and of one for weights and inputs apart.
    if (self->scheduled) self->microbatches = self->scheduled;
    self->backwards = 0;
    self->closing = true;
    if (!pass_trains(self)) return false;
    await(self);
    if (!self->inner) return true;
    const int fed = is_fed(self);
    return fed > 0 || (!fed && close_step(self, now()));
}

bool settle_now(TrainingState* all) {
    ErrorAside error;
    const Ref held(Py_NewRef(all->settle)), done(PyObject_CallNoArgs(held.get()));
    if (done || goes_on(all)) return true;
    error.forget();
    return false;
}

bool goes_on(TrainingState* self) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    const Ref held_type(type), held(value), held_trace(trace);
    if (!call(self, failed_name, value)) forget_error();
    return true;
}

int prepare_training_state() {
    if (intern({{&failed_name, "_failed"},
                {&take_pass_name, "_take_pass"},
                {&end_pass_name, "_end_pass"},
                {&pass_learns_name, "_pass_learns"},
                {&judges_name, "_judges"},
                {&feeds_name, "_feeds"},
                {&alive_name, "_optimizers_alive"},
                {&of_thread_name, "_of_thread"},
                {&tracks_name, "_takes_tracks"},
                {&forget_name, "_forget_told"},
                {&expects_name, "_expects"},
                {&learner_name, "_learns_by"}}) < 0)
        return -1;
    return learn_key("microbatch", microbatch_key) && learn_key("microbatches", microbatches_key) ? 0 : -1;
}

}  // namespace dftrace::py
