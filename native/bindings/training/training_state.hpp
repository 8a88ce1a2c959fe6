// Where a training is, told from what it does. Each step of a training comes by here several times, each time
// behind milliseconds of other work that have filled the caches: in Python the functions, dicts and texts
// that this takes would be fetched from memory anew, one after the other. What is rare is Python's, in the
// class that is derived from this one.
#pragma once

#include <vector>

#include "annotation/node.hpp"
#include "instrumentation/gate.hpp"
#include "python.hpp"

namespace dftrace::py {

// A pass over a loader, of which Python knows more.
struct PassState {
    PyObject_HEAD unsigned long long of;  // id of the iterator
    long long last;
    long long fetched, used;
    bool trained, drained;
};

struct MaybeNumber {
    long long value;
    bool known;
};

struct TrainingState {
    PyObject_HEAD Gate* gate;
    Node* node;      // the step's
    Node* everyone;  // reaches those that carry what is said of the step
    PyObject* track;
    PassState* pass;                 // that fed the step last; or null
    long long first_step, end_step;  // those to record
    long long step;
    MaybeNumber epoch, step_told;
    long long begun, last;
    long long backwards, microbatches;
    long long optimizers_ended;
    long long epoch_begun, epoch_last;  // as a framework tells of epochs
    unsigned long thread;
    bool recorded, epoch_is_told;
    bool closing, fed, trained, judged, inner;
    bool cleared, clears_first;        // in this step before all else; as of the step that learned last
    long long boundary;                // where an update began that may be the next step; 0 for none
    bool ahead;                        // the next step's number has been told
    bool together, follows;            // optimizers take turns in a step; a forward comes behind it
    std::vector<const void*> stepped;  // optimizers, in this step
    std::vector<const void*> roster;   // in the one before
};

// Whether this process works for one that trains, as a loader's worker does: it has no steps.
bool is_resting_here() noexcept;
void rest_here() noexcept;

// Whether this thread is the one that trains; the first that asks is.
bool is_here(TrainingState* self);
bool is_recorded(const TrainingState* self);
void clear(TrainingState* self);
// What comes by in a step. All that return bool: false with an error set.
bool tell(TrainingState* self);
bool close_step(TrainingState* self, long long end);
bool fetch(TrainingState* self, PyObject* iterator, bool first);
bool forward(TrainingState* self, bool learns);
bool clears(TrainingState* self, PyObject* optimizer);
void cleared(TrainingState* self);
bool backward_begins(TrainingState* self);
bool backward(TrainingState* self, bool in_optimizer);
bool optimizer_begins(TrainingState* self, PyObject* optimizer);
bool optimizer_ends(TrainingState* self, PyObject* optimizer);

// An error is set, which is of ours: whether the training goes on all the same, told once. It does not where
// somebody asks it to stop, as by Ctrl-C.
bool goes_on(TrainingState* self);

// Names that the above look up; false with an error set.
bool prepare_training_state();
extern PyTypeObject training_state_type;
int add_training_types(PyObject* module);

}  // namespace dftrace::py
