"""Which step and epoch a training is in, told from what it does; recorded when each is over."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from dftrace_ai.annotation.node import ProfilerNode
from dftrace_ai.integrations.nodes import forget_arguments, give_to_all
from dftrace_ai.integrations.steps.passes import Pass, epoch_of
from dftrace_ai.run.emitting import complete_between, complete_node, ticks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.integrations.steps.gate import Gate, StepRange

__all__ = ["Training", "is_resting", "rest"]

TRACKS = {"step": "steps", "epoch": "epochs", "evaluate": "evaluations"}

_rests = False


def rest() -> None:
    """Have no steps told in this process, which works for one that trains."""
    global _rests
    _rests = True


def is_resting() -> bool:
    """Return whether this process works for one that trains, as a loader's worker does."""
    return _rests


class Training:
    """Hears of fetches, forwards, backwards and optimizer steps, and makes steps of them.

    A step begins with the first fetch that leads to it or, without a loader, with the forward,
    backward or optimizer step that comes first. It ends when, behind the step of an optimizer, the
    next one begins, a pass over a loader ends or an evaluation begins. All optimizers that step
    between two fetches belong to one step.

    Attributes:
        step: number of the step that is on, from 0.
        epoch: number of the pass over the training's loader; None before there was one.
        recorded: steps, epochs and evaluations become spans.
    """

    def __init__(self, gate: Gate, steps: StepRange) -> None:
        self._gate = gate
        self._steps = steps
        self._all_steps = not steps.is_a_part
        # Nobody else's: what is told of the tree's is not said of it.
        self._node = ProfilerNode("pipeline", "step")
        self.recorded = False
        self.begin()

    def begin(self) -> None:
        """Count from 0 again: another run has begun."""
        self.step = 0
        self.epoch: int | None = None
        self._passes: dict[int, Pass] = {}
        self._pass: Pass | None = None
        self._epochs = 0
        self._told_epoch: int | None = None
        self._step_told: int | None = None
        self._epoch_told: int | None = None
        self._epoch_begun = self._epoch_last = self._evaluation = 0
        self._several_without_fetch = self._clears_first = False
        self._thread = 0
        self._node._clear_args()
        self._clear()
        self._tell()

    def _clear(self) -> None:
        self._begun = self._last = 0
        self._closing = self._fed = self._trained = self._judged = self._inner = False
        self._backwards = self._microbatches = 0
        self._optimizers: tuple[int, ...] = ()

    def _tell(self) -> None:
        gate = self._gate
        gate.recording = gate.live and (self._all_steps or self.step in self._steps)
        if gate.shared is not None and not _rests:
            gate.shared.value = gate.recording
        if gate.recording:
            if self.epoch is None:
                give_to_all(step=self.step, microbatch=0)
            else:
                give_to_all(epoch=self.epoch, step=self.step, microbatch=0)

    def _is_recorded(self) -> bool:
        return self.recorded and self._gate.recording and not _rests

    def _is_elsewhere(self) -> bool:
        """Whether this thread is another than the one that trains."""
        if _rests:
            return True
        if self._thread == 0:
            self._thread = get_ident()
        return self._thread != get_ident()

    def _come_here(self) -> None:
        """Take this thread, which learns, for the one that trains."""
        self._thread = get_ident()
        self._clear()

    def _close(self, end: int) -> None:
        if self._begun and self._is_recorded():
            node, most = self._node, max(self._microbatches, self._backwards, 1)
            if self.epoch is None:
                node.update(step=self.step, microbatches=most)
            else:
                node.update(epoch=self.epoch, step=self.step, microbatches=most)
            complete_node(node, self._begun, end, TRACKS["step"])
        if self._begun and self._epoch_told is not None:
            self._epoch_begun, self._epoch_last = self._epoch_begun or self._begun, end
        over = self._pass
        if over is not None and over.trained:
            over.last = end
            if over.drained and not over.is_ahead:
                self._end_pass(over, end)
        told, self._step_told = self._step_told, None
        self.step = self.step + 1 if told is None else told
        self._clear()
        self._tell()

    def told(
        self, *, step: int | None = None, epoch: int | None = None, begins: bool = False
    ) -> None:
        """A framework tells which step and epoch it is in: its numbers win over those counted here.

        Args:
            step: number of the one that is on or, behind an optimizer's step, of the next.
            epoch: number of the one that is on.
            begins: a batch that something is learned from is about to be computed.
        """
        if self._is_elsewhere():
            return
        if begins and (self._closing or not self._begun):  # no loader that is seen has fed it
            now = ticks()
            if self._closing:
                self._close(now)
            self._begun = now
        before = self.step, self.epoch
        if epoch is not None and epoch != self._epoch_told:
            self._end_epoch()
            self.epoch = self._epoch_told = epoch
        if self._closing:
            self._step_told = step
        elif step is not None:
            self.step = step
        if (self.step, self.epoch) != before:
            self._tell()

    def told_all(self) -> None:
        """The training of a framework is over: what is counted here counts again."""
        if not self._is_elsewhere():
            self._end_epoch()
            self._epoch_told = None
            self._evaluation = 0

    def _end_epoch(self) -> None:
        """End the epoch that a framework has told of: from its first step to the last one."""
        self.pause()
        if self._epoch_begun and self._is_recorded():
            arguments = {"epoch": self._epoch_told}
            self._record("epoch", self._epoch_begun, self._epoch_last, arguments)
        self._epoch_begun = 0

    def evaluation_begins(self) -> bool:
        """A framework begins to evaluate.

        Returns:
            Whether it did not do so already.
        """
        if self._evaluation or self._is_elsewhere():
            return False
        self.pause()
        self._evaluation = ticks()
        return True

    def evaluation_ends(self, stage: str) -> None:
        """The evaluation is over.

        Args:
            stage: what it was, such as ``validate``.
        """
        begun, now = self._evaluation, ticks()
        if not begun or self._is_elsewhere():
            return
        for one in list(self._passes.values()):
            if not one.trained and one.begun >= begun:
                self._end_pass(one, now)
        self._evaluation = 0
        if self._is_recorded():
            arguments: dict[str, object] = {"stage": stage}
            if self.epoch is not None:
                arguments["epoch"] = self.epoch
            self._record("evaluate", begun, now, arguments)

    def fetch(self, iterator: Any, *, first: bool) -> None:
        """A batch is about to be fetched from a loader.

        Args:
            iterator: the loader's, one for each pass.
            first: it has not given any batch yet.
        """
        if (_rests or self._thread != get_ident()) and self._is_elsewhere():
            return
        now = ticks()
        if self._closing:
            self._close(now)
        if first:
            self._abandon(iterator)
            self._passes[id(iterator)] = Pass(iterator, now)
        self._pass = over = self._passes.get(id(iterator))
        if over is not None:
            over.fetched += 1
        if not self._trained and (first or self._judged or not self._begun):
            self._begun = now  # what was fetched before led to no training
            self._judged = False
        self._fed = True
        self._several_without_fetch = False

    def fetched_nothing(self, iterator: Any) -> None:
        """The pass over a loader is over."""
        if self._is_elsewhere():
            return
        over = self._passes.get(id(iterator))
        if over is not None:
            over.fetched -= 1
            over.drained = over.is_ahead
        if over is None or not over.drained:
            if not self._trained:
                self._begun = 0
            if over is not None:
                self._end_pass(over, ticks())

    def _abandon(self, begun_anew: object) -> None:
        """End the passes whose iterators are gone: their loops were left before the end."""
        for one in list(self._passes.values()):
            iterator = one.iterator()
            if iterator is None or iterator is begun_anew or one.drained:
                self._end_pass(one, one.last)

    def _end_pass(self, one: Pass, end: int) -> None:
        self._passes = {key: other for key, other in self._passes.items() if other is not one}
        if self._pass is one:
            self._pass = None
        told = one.told if one.trained else self._evaluation or not one.evaluated
        if not told and self._is_recorded():
            arguments = {} if one.number is None else {"epoch": one.number}
            self._record("epoch" if one.trained else "evaluate", one.begun, end, arguments)

    def _record(self, name: str, begun: int, end: int, arguments: Mapping[str, object]) -> None:
        complete_between(name, begun, end, arguments, category="pipeline", track=TRACKS[name])

    def forward(self, *, learns: bool) -> None:
        """A model's forward is about to begin.

        Args:
            learns: gradients are recorded, and the model is in its training mode.
        """
        if (_rests or self._thread != get_ident()) and self._is_elsewhere():
            return
        if not learns:
            if self._closing:
                self._close(ticks())
            self._judged = True
            over = self._pass
            if over is not None and not over.trained:
                over.evaluated = True
                over.used += 1
                over.last = ticks()
            return
        if self._closing and not self._is_fed():
            self._close(ticks())
        self._learn()
        if self._backwards and self._gate.recording:
            give_to_all(microbatch=self._backwards)

    def judged(self) -> None:
        """A forward that does not learn has ended."""
        over = self._pass
        if over is not None and over.drained and not over.trained and not self._is_elsewhere():
            over.last = ticks()
            if not over.is_ahead:
                self._end_pass(over, over.last)

    def clears(self) -> None:
        """An optimizer is about to clear its gradients: before a forward, or behind its step."""
        if (_rests or self._thread != get_ident()) and self._is_elsewhere():
            return
        if not self._begun:
            self._clears_first = True
            self._begun = ticks()
        elif self._closing and self._clears_first and not self._is_fed():
            self._close(ticks())
            self._begun = ticks()

    def cleared(self) -> None:
        """An optimizer has cleared its gradients: behind its step that belongs to it."""
        if self._closing and not self._is_elsewhere():
            self._last = ticks()

    def _is_fed(self) -> bool:
        """Whether the next fetch, and nothing else, ends the step."""
        return self._fed and not self._several_without_fetch

    def _learn(self) -> None:
        self._last = ticks()
        if not self._begun:
            self._begun = self._last
        self._trained = True

    def backward(self, *, in_optimizer: bool) -> None:
        """A backward pass has ended.

        Args:
            in_optimizer: it was part of an optimizer's step, as of the closure of LBFGS.
        """
        if _rests or self._thread != get_ident():
            self._come_here()
        self._learn()
        self._inner |= in_optimizer
        self._backwards += 1
        self._pass_trains()
        if self._pass is not None:
            self._pass.used += 1

    def _pass_trains(self) -> None:
        over = self._pass
        if over is not None:
            if not over.trained:
                over.trained = True
                over.used = 0  # a teacher's forwards are no use of a batch
                self._number(over)
            over.last = self._last

    def _number(self, over: Pass) -> None:
        """Give a pass that trains its number: what its sampler was told, or one more."""
        told = epoch_of(over.iterator())
        is_news = told is not None and told != self._told_epoch
        counted = told if told is not None and is_news else self._epochs
        over.told = self._epoch_told is not None
        self.epoch = over.number = counted if self._epoch_told is None else self._epoch_told
        self._told_epoch = told
        self._epochs = self.epoch + 1
        if self._gate.recording:
            give_to_all(epoch=self.epoch)

    def optimizer_begins(self) -> None:
        """An optimizer is about to step."""
        if _rests or self._thread != get_ident():
            self._come_here()
        self._learn()
        self._inner = False

    def optimizer_ends(self, optimizer: object) -> None:
        """An optimizer has stepped, or its step was left out for its gradients."""
        if _rests or self._thread != get_ident():
            self._come_here()
        self._learn()
        # The same one twice without a fetch in between: what is fetched is not what makes a step.
        self._several_without_fetch |= id(optimizer) in self._optimizers
        self._optimizers = (*self._optimizers, id(optimizer))
        self._microbatches = max(self._microbatches, self._backwards)
        self._backwards = 0
        self._closing = True
        self._pass_trains()
        if self._inner and not self._is_fed():
            self._close(ticks())

    def pause(self) -> None:
        """Something begins that is no part of a step, such as the writing of a checkpoint."""
        if self._closing and not self._is_elsewhere():
            self._close(ticks())

    def end(self) -> None:
        """Record what is over, for nothing more will come."""
        if self._closing:
            self._close(self._last)
        self._end_epoch()
        for one in list(self._passes.values()):
            self._end_pass(one, one.last)
        forget_arguments()
