"""Which step and epoch a training is in, told from what it does; recorded when each is over."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dftrace_ai.annotation.node import ProfilerNode
from dftrace_ai.annotation.tree import ai
from dftrace_ai.integrations.nodes import ALL_NODES, asked, forget_arguments
from dftrace_ai.run.emitting import Gate, PassState, TrainingState, complete_between, ticks
from dftrace_ai.wording import ToldOnce, described, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from typing_extensions import Self


@dataclass(frozen=True)
class StepRange:
    """Steps from `first` on, up to `end` without it, None for all that come; counted from 0."""

    first: int = 0
    end: int | None = None

    def __contains__(self, step: int) -> bool:
        return step >= self.first and (self.end is None or step < self.end)

    @property
    def is_a_part(self) -> bool:
        """Whether there are steps that are not in it."""
        return self != ALL_STEPS

    @property
    def reach(self) -> tuple[int, int]:
        """The first and the one behind the last, where none is the least and the greatest."""
        if not self.is_a_part:
            return -(1 << 63), (1 << 63) - 1
        return self.first, (1 << 63) - 1 if self.end is None else self.end

    @classmethod
    def parsed(cls, text: str | None) -> StepRange:
        """Return the range that ``A:B``, ``A:``, ``:B`` or None for all steps names."""
        first, _, end = (text or ":").partition(":")
        return cls(int(first or 0), int(end) if end else None)


ALL_STEPS = StepRange()


# Of one around another: what stands for anything has a sampler without end.
MOST_SAMPLERS: Final = 8
# Data sets of which it is known whether something is learned from them; each pass may have its own.
MOST_DATA: Final = 1000


class Pass(PassState):
    """A pass over a loader, from its first fetch on; what it has besides, `PassState` tells.

    Who is `evaluated` has had a model called; one that is `drained` gives no more, and some of its
    batches have been fetched ahead of their use. Whether it `learns` is told before it is seen, by
    what came of other passes over the same `data` with the model in the same `mode`, which is that
    of training or not; or it is `guessed`.
    """

    __slots__ = ("data", "evaluated", "guessed", "iterator", "mode")

    def __init__(self, iterator: object, begun: int) -> None:
        self.of = id(iterator)
        self.iterator = weakref.ref(iterator)
        self.begun = self.last = begun
        self.evaluated = self.guessed = False
        self.mode = True
        self.data = asked(_data_of, iterator)

    @property
    def is_ahead(self) -> bool:
        """Whether batches have been fetched that are not used yet."""
        return self.fetched > self.used


def _data_of(iterator: Any) -> tuple[int, type]:
    """Return what passes over the same data in the same way have in common."""
    sampler = iterator._index_sampler
    return id(iterator._dataset), type(getattr(sampler, "sampler", sampler))


def epoch_of(iterator: object) -> int | None:
    """Return the number that a sampler was told by `set_epoch`; None where it was told none."""
    for name in ("_index_sampler", "_sampler"):
        epoch = asked(_epoch_told, iterator, name)
        if epoch is not None:
            return epoch
    return None


def _epoch_told(iterator: object, name: str) -> int | None:
    sampler = getattr(iterator, name, None)
    for _ in range(MOST_SAMPLERS):
        if sampler is None:
            return None
        epoch = vars(sampler).get("epoch") if hasattr(sampler, "__dict__") else None
        if type(epoch) is int:
            return epoch
        sampler = getattr(sampler, "sampler", None)
    return None


TRACKS = {"step": "steps", "epoch": "epochs", "evaluate": "evaluations"}

rest: Callable[[], None] = TrainingState.rest
"""Has no steps told in this process, which works for one that trains."""

is_resting: Callable[[], bool] = TrainingState.is_resting
"""Returns whether this process works for one that trains, as a loader's worker does."""


class Training(TrainingState):
    """Hears of fetches, forwards, backwards and optimizer steps, and makes steps of them.

    A step begins with the first fetch that leads to it or, without a loader, with the clearing,
    forward, backward or optimizer step that comes first. It ends when, behind the step of an
    optimizer, the next one begins: a batch is fetched, or an optimizer that has stepped in it goes
    on to its next update; and when a pass over a loader ends or an evaluation begins. Optimizers
    that take turns between two fetches share a step; without a loader each update is one, unless
    they did so before.

    Each thread that trains has its own. This one is that of the first thread, and stands for all:
    what is told it is about the thread that tells. What comes by in each step, and its numbers,
    are in the native half. `recorded`: steps, epochs and evaluations become spans.
    """

    _node: ProfilerNode

    def __new__(cls, gate: Gate, steps: StepRange, of: Self | None = None) -> Self:
        """Make one that tells a gate whether the step that is on is one of those to record."""
        # The step's is nobody else's: what is told of the tree's is not said of it.
        node = ProfilerNode("pipeline", "step")
        made = super().__new__(cls, gate, node, ALL_NODES, TRACKS["step"], *steps.reach, of)
        made._node = node
        made._epoch_track = TRACKS["epoch"]
        return made

    def __init__(self, gate: Gate, steps: StepRange, of: Self | None = None) -> None:
        self._gate = gate
        self._steps = steps
        self._tracks = TRACKS
        self._told_once = ToldOnce()
        self.recorded = False
        # Those that were made meanwhile and live, by identity, in whichever thread.
        self.optimizers: weakref.WeakValueDictionary[int, Any] = (
            weakref.WeakValueDictionary() if of is None else of.optimizers
        )
        if of is None:
            self.begin()
        else:
            self._reset()

    def begin(self) -> None:
        """Count from 0 again, in all threads: another run has begun."""
        self._forget_threads()
        self._by_default(ai, self._gate.live)
        self._reset()
        self._tell()

    def _reset(self) -> None:
        self.step = 0
        self.epoch = None
        self._passes: dict[int, Pass] = {}
        self._pass = None
        self._epochs = 0
        self._told_epoch: int | None = None
        self._epoch_on: int | None = None
        self._learned: dict[tuple[object, bool], bool] = {}
        self._learner: weakref.ref[Any] | None = None
        self._between, self._unfed = True, False
        self._step_told = None
        self._have_told(None)
        self._epoch_begun = self._epoch_last = self._evaluation = 0
        self._fed = self._clears_first = self._together = self._follows = False
        self._node._clear_args()
        self._clear()

    def _of_thread(self, thread: int) -> Training:
        """Return one for a thread that has none: that of a thread which has ended, or another."""
        living = sys._current_frames()
        ended = [one for one in (self, *self._others.values()) if one._thread not in living]
        if ended:
            found = ended[0]
            found._leave()
            self._others.pop(found._thread, None)
        else:
            found = Training(self._gate, self._steps, self)
        found._thread = thread
        if found is not self:
            self._others[thread] = found
        return found

    def _takes_tracks(self, number: int) -> None:
        """This thread trains, beside others: its steps and epochs lie apart."""
        self._tracks = {name: f"{track} {number}" for name, track in TRACKS.items()}
        self._track, self._epoch_track = self._tracks["step"], self._tracks["epoch"]

    def _forget_told(self) -> None:
        forget_arguments()

    def _have_told(self, epoch: int | None) -> None:
        self._epoch_told = epoch
        self._epoch_is_told = epoch is not None

    def told(
        self, *, step: int | None = None, epoch: int | None = None, begins: bool = False
    ) -> None:
        """A framework tells its step and epoch: its numbers win over those counted here."""
        on = self._here(True)
        if on is not None:
            on._told_here(step, epoch, begins=begins)

    def _told_here(self, step: int | None, epoch: int | None, *, begins: bool) -> None:
        if begins and (self._closing or not self._begun):  # no loader that is seen has fed it
            now = ticks()
            if self._closing:
                self._close(now)
            self._begun = now
        if begins:
            self._enter_step()
        before = self.step, self.epoch
        if epoch is not None and epoch != self._epoch_told:
            self._end_epoch()
            self.epoch = self._epoch_on = epoch
            self._have_told(epoch)
        if self._closing:
            self._step_told = step
        elif step is not None:
            self.step = step
        if (self.step, self.epoch) != before:
            self._tell()

    def told_all(self) -> None:
        """The training of a framework is over: what is counted here counts again."""
        on = self._here(False)
        if on is not None:
            on._end_epoch()
            on._have_told(None)
            on._evaluation = 0

    def _end_epoch(self) -> None:
        """End the epoch that a framework has told of: from its first step to the last one."""
        self._pause()
        if self._epoch_begun and self._is_recorded():
            arguments = {"epoch": self._epoch_told}
            self._record("epoch", self._epoch_begun, self._epoch_last, arguments)
        self._epoch_begun = 0

    def evaluation_begins(self) -> bool:
        """A framework begins to evaluate."""
        on = self._here(True)
        if on is None or on._evaluation:
            return False
        on._pause()
        on._evaluation = ticks()
        return True

    def evaluation_ends(self, stage: str) -> None:
        """The evaluation is over."""
        on = self._here(False)
        if on is not None and on._evaluation:
            on._evaluated(stage)

    def _evaluated(self, stage: str) -> None:
        begun, now = self._evaluation, ticks()
        for one in list(self._passes.values()):
            if not one.trained and one.begun >= begun:
                self._end_pass(one, now)
        self._evaluation = 0
        if self._is_recorded():
            arguments: dict[str, int | str] = {"stage": stage}
            if self.epoch is not None:
                arguments["epoch"] = self.epoch
            self._record("evaluate", begun, now, arguments)

    def _take_pass(self, iterator: object, first: bool, now: int) -> None:
        """Go on with another pass than the one before, or begin it."""
        if first:
            self._abandon(iterator)
            self._passes[id(iterator)] = Pass(iterator, now)
        one = self._pass = self._passes.get(id(iterator))
        if one is not None and first:
            self._foresee(one)
        elif one is not None and one.trained and self._epoch_told is None:
            self._epoch_on = one.number
            self._are_in(one.number)

    def _foresee(self, one: Pass) -> None:
        """Say whether something will be learned from a pass that begins, and in which epoch."""
        model = None if self._learner is None else self._learner()
        one.mode = asked(lambda: model is None or bool(model.training)) is not False
        known = self._learned.get((one.data, one.mode))
        one.guessed = known is None
        if known is None:
            known = self._learned.get((one.data, not one.mode), one.mode)
        one.learns = (known or self._epoch_told is not None) and not self._evaluation
        self._are_in(self._number_of(one)[0] if one.learns else self._epoch_on)

    def _expects(self, one: Pass) -> None:
        """It seems that something is learned from a pass that did not look like it."""
        one.learns = True
        self._are_in(self._number_of(one)[0])

    def _learns_by(self, model: object) -> None:
        """A model is called first in a pass, for something to be learned."""
        self._learner = weakref.ref(model)

    def _are_in(self, epoch: int | None) -> None:
        if self._epoch_told is None and epoch != self.epoch:
            self.epoch = epoch
            self._tell()

    def fetched_nothing(self, iterator: object) -> None:
        """The pass over a loader is over."""
        on = self._here(False)
        if on is not None:
            on._drain(iterator)

    def _drain(self, iterator: object) -> None:
        over = self._passes.get(id(iterator))
        if over is not None:
            over.fetched -= 1
            over.drained = over.is_ahead
        if over is None or not over.drained:
            if not self._trained:
                self._begun = 0
            self._fed = False
            if over is not None:
                self._end_pass(over, ticks())

    def _feeds(self) -> bool:
        """Whether the loader that gave the last batch may give another one."""
        return self._pass is None or self._pass.iterator() is not None

    def _optimizers_alive(self) -> int:
        return len(self.optimizers)

    def _abandon(self, begun_anew: object) -> None:
        """End the passes whose iterators are gone: their loops were left before the end."""
        for one in list(self._passes.values()):
            iterator = one.iterator()
            if iterator is None or iterator is begun_anew or one.drained:
                self._end_pass(one, one.last)

    def _end_pass(self, one: Pass, end: int) -> None:
        self._passes = {key: other for key, other in self._passes.items() if other is not one}
        if self._pass is one:
            self._pass, self._fed = None, False
            if not self._begun:
                self._are_in(self._epoch_on)
                self._leave_step()
        if one.evaluated and not one.trained:
            self._note(one, learns=False)
        told = one.told if one.trained else self._evaluation or not one.evaluated
        if not told and self._is_recorded():
            epoch = one.number if one.trained else self._epoch_on
            arguments = {} if epoch is None else {"epoch": epoch}
            self._record("epoch" if one.trained else "evaluate", one.begun, end, arguments)

    def _record(
        self, name: str, begun: int, end: int, arguments: Mapping[str, int | str | None]
    ) -> None:
        if name == "epoch":
            self._forget_epoch()
        complete_between(name, begun, end, arguments, category="pipeline", track=self._tracks[name])

    def _judges(self) -> None:
        """A model's forward is about to begin that nothing is learned from."""
        if self._closing:
            self._close(ticks())
        self._judged = True
        over = self._pass
        if over is not None and not over.trained:
            if over.evaluated or over.guessed:
                # Else it may be a teacher's, in front of what is learned.
                over.learns = False
                self._are_in(self._epoch_on)
                self._leave_step()
            over.evaluated = True
            over.used += 1
            over.last = ticks()
        elif not self._begun:
            self._leave_step()

    def judged(self) -> None:
        """A forward that does not learn has ended."""
        on = self._here(False)
        over = None if on is None else on._pass
        if on is not None and over is not None and over.drained and not over.trained:
            over.last = ticks()
            if not over.is_ahead:
                on._end_pass(over, over.last)

    def _pass_learns(self, over: Pass) -> None:
        """Something is learned from a pass for the first time."""
        over.trained = True
        over.used = 0  # a teacher's forwards are no use of a batch
        self._number(over)

    def _number(self, over: Pass) -> None:
        """Give a pass that trains its number: what its sampler was told, or one more."""
        counted, told = self._number_of(over)
        over.told = self._epoch_told is not None
        number = counted if self._epoch_told is None else self._epoch_told
        self.epoch = over.number = self._epoch_on = number
        self._told_epoch = told
        self._epochs = number + 1
        self._note(over, learns=True)
        self._tell_epoch()

    def _note(self, over: Pass, *, learns: bool) -> None:
        """Remember of what a pass is over whether something is learned from it."""
        if len(self._learned) >= MOST_DATA:
            self._learned.clear()
        if over.data is not None and (learns or (over.data, over.mode) not in self._learned):
            self._learned[over.data, over.mode] = learns

    def _number_of(self, one: Pass) -> tuple[int, int | None]:
        """Return the number of a pass that trains, and what its sampler was told."""
        told = epoch_of(one.iterator())
        if told is None or told == self._told_epoch:
            return self._epochs, told
        return told, told

    def _failed(self, error: Exception) -> None:
        """What is done here has raised, where the training goes on."""
        if self._told_once.first("failed"):
            warn(
                "auto cannot follow this step of the training, which goes on: %s", described(error)
            )

    def pause(self) -> None:
        """Something begins that is no part of a step, such as the writing of a checkpoint."""
        on = self._here(False)
        if on is not None:
            on._pause()

    def _pause(self) -> None:
        if self._closing:
            self._close(ticks())
        if not self._begun:
            self._leave_step()

    def end(self) -> None:
        """Record what is over, for nothing more will come, in any thread."""
        for one in (self, *self._others.values()):
            one._leave()
        self._by_default(ai, False)
        forget_arguments()

    def _leave(self) -> None:
        """Record what is over, for nothing more will come."""
        if self._closing:
            self._close(self._last)
        self._end_epoch()
        for one in list(self._passes.values()):
            self._end_pass(one, one.last)
        self._clear()
