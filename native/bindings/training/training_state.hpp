// Where a training is, told from what it does. Each step of a training comes by here several times, each time
// behind milliseconds of other work that have filled the caches: in Python the functions, dicts and texts
// that this takes would be fetched from memory anew, one after the other. What is rare is Python's, in the
// class that is derived from this one.
#pragma once

#include <vector>

#include "annotation/node.hpp"
#include "dftrace/spool/spool.hpp"
#include "instrumentation/gate.hpp"
#include "python.hpp"

namespace dftrace::py {

struct MaybeNumber {
    long long value;
    bool known;
};

// A pass over a loader, of which Python knows more.
struct PassState {
    PyObject_HEAD unsigned long long of;  // id of the iterator
    long long begun, last;
    long long fetched, used;
    MaybeNumber number;  // of the epoch
    bool trained, drained, told;
    bool learns;  // as it seems until something has been learned from it
};

// Of one thread. The first of them stands for all: who tells something tells it, and it goes to the one of
// the thread that tells. Each thread that trains has steps, epochs and tracks of its own.
struct TrainingState {
    PyObject_HEAD Gate* gate;
    TrainingState* first;  // owned by the others
    PyObject* others;      // of the first: dict, by the threads' numbers
    int trainings;         // of the first: threads that train
    int training;          // which one of those this is, from 1; 0 for none
    Node* node;            // the step's
    Node* everyone;        // reaches those that follow what is told of the step
    PyObject* track;
    PassState* pass;                 // that fed the step last; or null
    long long first_step, end_step;  // those to record
    long long step;
    MaybeNumber epoch, step_told;
    long long begun, last;
    long long backwards, microbatches;
    const void* model;  // that was called first in this step, and how often it was; or null
    long long forwards;
    bool unseen;  // backward passes: in the step before none was, and its microbatches are forwards
    MaybeNumber microbatch;  // as a schedule tells it, which computes in an order of its own
    long long scheduled;     // microbatches that it has told of in this step
    long long optimizers_ended;
    long long epoch_begun, epoch_last;  // as a framework tells of epochs
    unsigned long thread;
    const detail::ThisThread* here;    // of the first: its thread, known without a call; or null
    ThreadBlock* awaited_in;           // where step and epoch stand until they are recorded; or null
    std::uint64_t awaited_generation;  // of the session that this belongs to
    std::uint64_t step_id, epoch_id;   // 0 while none stands there
    Numbers said;                      // of the step that was recorded last, and their snapshot
    std::uint64_t said_generation;
    std::uint32_t said_snapshot;
    std::uint32_t lane;  // of steps, in the session of that generation
    std::uint64_t lane_generation;
    const PyObject* lane_track;
    PyObject* epoch_track;
    PyObject* under_way;  // of the first: dict of collectives whose ends nobody has seen; or null
    PyObject* settle;     // ends those of them that are done
    bool recorded, epoch_is_told;
    bool closing, fed, trained, judged, inner;
    bool cleared, clears_first;        // in this step before all else; as of the step that learned last
    long long boundary;                // where an update began that may be the next step; 0 for none
    bool ahead;                        // the next step's number has been told
    bool between;                      // no step is on: between passes, in evaluations and checkpoints
    bool unfed;                        // the step before used no loader
    bool together, follows;            // optimizers take turns in a step; a forward comes behind it
    std::vector<const void*> stepped;  // optimizers, in this step
    std::vector<const void*> roster;   // in the one before
};

// Whether this process works for one that trains, as a loader's worker does: it has no steps.
extern bool resting;

// That of this thread, borrowed; null where it has none, or with an error set. `made`: it gets one.
TrainingState* state_of_thread(TrainingState* first, bool made);
inline TrainingState* state_here(TrainingState* first, bool made) {
    return first->here == &detail::this_thread && !resting ? first : state_of_thread(first, made);
}
bool is_recorded(const TrainingState* self);
// Numbers of the step and the epoch that this thread is in; false where nobody knows.
bool numbers_here(TrainingState* first, MaybeNumber& step, MaybeNumber& epoch);
// Another run has begun, and nobody trains.
void forget_threads(TrainingState* first);
void clear(TrainingState* self);
// What comes by in a step, from `fetch` on in this thread. All that return bool: false with an error set.
bool tell(TrainingState* self);
void tell_epoch(TrainingState* self);
// What is recorded from now on belongs to no step; or to one again.
bool leave_step(TrainingState* self);
bool enter_step_now(TrainingState* self);
inline bool enter_step(TrainingState* self) {
    const PassState* const pass = self->pass;
    const bool expected = !pass || pass->trained || pass->learns;
    return (expected && !self->between) || enter_step_now(self);
}
bool close_step(TrainingState* self, long long end);
// The epoch is recorded, or none.
void forget_epoch(TrainingState* self);
bool fetch(TrainingState* all, PyObject* iterator, bool first);
// A schedule computes a microbatch, or has done so: numbers that it tells win over those counted here.
bool at_microbatch(TrainingState* all, MaybeNumber number);
bool forward(TrainingState* all, bool learns, const void* model);
bool clears(TrainingState* all, PyObject* optimizer);
bool cleared(TrainingState* all);
bool backward_begins(TrainingState* all);
bool backward(TrainingState* all, bool in_optimizer);
bool optimizer_begins(TrainingState* all, PyObject* optimizer);
bool optimizer_ends(TrainingState* all, PyObject* optimizer);

// A call of torch's has returned, maybe with an error set: collectives that it has waited for by itself end
// in its span. False: somebody asks the training to stop, and the error is that.
bool settle_now(TrainingState* all);
inline bool settle(TrainingState* all) {
    PyObject* const under_way = all->under_way;
    const bool none = !under_way || !PyDict_Check(under_way) || PyDict_GET_SIZE(under_way) == 0;
    return none || settle_now(all);
}

// An error is set, which is of ours: whether the training goes on all the same, told once. It does not where
// somebody asks it to stop, as by Ctrl-C.
bool goes_on(TrainingState* self);

// What the above look up; -1 with an error set.
int prepare_training_state();
extern PyTypeObject training_state_type;

}  // namespace dftrace::py
