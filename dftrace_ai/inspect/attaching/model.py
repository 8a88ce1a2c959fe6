"""A model under inspection: its layers get plans, and in each step those that are due act."""

from __future__ import annotations

import heapq
import itertools
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from dftrace_ai.inspect.attaching.fp8.amax_sharing import AmaxSharing
from dftrace_ai.inspect.attaching.fp8.recipes import LISTENERS, Recipe, recipe_in_force
from dftrace_ai.inspect.attaching.modules.attention import FAST_PATH
from dftrace_ai.inspect.attaching.modules.swap import Station, station_at
from dftrace_ai.inspect.attaching.plans import PlannedLayer, Plans, first_of
from dftrace_ai.inspect.attaching.weights import stored_weight
from dftrace_ai.inspect.errors import (
    InspectRuntimeError,
    InspectTypeError,
)
from dftrace_ai.inspect.naming import NamedLayer, layers_of
from dftrace_ai.inspect.session import open_session

if TYPE_CHECKING:
    from dftrace_ai.inspect.attaching.layer import LiveLayer
    from dftrace_ai.inspect.session.session import Session

__all__ = ["AttachedModel", "attach"]

_group_numbers = itertools.count()


class _Attached(NamedTuple):
    station: Station
    live: LiveLayer


class AttachedModel:
    """A model under inspection, as `attach` returns it; `detach` ends it."""

    def __init__(
        self,
        session: Session,
        model: nn.Module,
        *,
        name: str | None,
        recipe: Recipe | None,
        tp_group: Any,
        observe_eval: bool,
    ) -> None:
        self._session = session
        self._recipe = recipe
        self._observe_eval = observe_eval
        self._weight_group = None if tp_group is None else f"tp:{next(_group_numbers):06d}"
        self._weights_merged_over: str | None = None
        self._attached: list[_Attached] = []
        self._acting: set[int] = set()
        self._calendar: list[tuple[int, int]] = []
        self._noted: dict[int, int] = {}
        self._iteration = session.iteration
        self._sharing = AmaxSharing(session.groups)
        self._fp8_seen = recipe is not None or recipe_in_force(None) is not None
        self._holds_fast_path = False
        self._plans_told = False
        self._open = True
        plans = Plans(session, self._named(model, name), recipe, tp_group)
        if self._weight_group is not None:
            session.collector.set_group(self._weight_group, tp_group)
        try:
            for one in plans.layers:
                if one.layer.kind != "other" or one.observers or one.custom:
                    self._take_in(one)
        except BaseException:
            self._let_go()
            raise
        plans.tell()
        session.attached.append(self)
        LISTENERS.add(self)
        self._arm_all(session.iteration)

    # What is to be done

    def _named(self, model: nn.Module, name: str | None) -> list[NamedLayer]:
        """Return the layers, called as no layer of another model is."""
        taken = {name for one in self._session.attached for name in one.names}
        layers = layers_of(model, name)
        clashing = [layer.name for layer in layers if layer.name in taken]
        if not clashing:
            return layers
        self._session.log.write(
            f"{first_of(clashing)}: layers of another attached model are called so; these here "
            "get numbers, or names of their own by `attach(..., name=...)`.",
            logging.WARNING,
        )
        return layers_of(model, name, taken)

    @property
    def names(self) -> list[str]:
        """The names of the layers."""
        return [live.name for _, live in self._attached]

    def _take_in(self, one: PlannedLayer) -> None:
        session = self._session
        station = station_at(one.layer.module, one.layer.kind)
        live = station.layer(one.layer.part, one.layer.name)
        live.name = one.layer.name
        live.inspect(
            one.plan,
            one.observers,
            one.custom,
            recipe=self._recipe,
            has_gemms=one.layer.kind != "other",
            observe_eval=self._observe_eval,
            say=session.log.write,
            rings=session.rings,
        )
        self._attached.append(_Attached(station, live))
        for observer in one.observers.values():
            is_weight = observer.tensor == "weight"
            find = partial(stored_weight, one.layer) if is_weight else None
            session.collector.observe(observer, find)

    # Steps

    def _arm_all(self, iteration: int) -> None:
        self._calendar = []
        self._noted = {}
        for index in range(len(self._attached)):
            self._arm(index, iteration)
        self._hold_fast_path()

    def _arm(self, index: int, iteration: int) -> None:
        """Let a layer act in an iteration, or not; note when it has to be asked next."""
        station, live = self._attached[index]
        acts = live.arm(iteration) or live.changes_always or (self._fp8_seen and live.has_gemms)
        live.acts = acts
        station.set_busy(live, busy=acts or live.watch is not None)
        if acts:
            self._acting.add(index)
        else:
            self._acting.discard(index)
        due = live.next_due(iteration)
        if due is not None and self._noted.get(index) != due:
            self._noted[index] = due
            heapq.heappush(self._calendar, (due, index))

    def _hold_fast_path(self) -> None:
        wanted = bool(self._acting)
        if wanted != self._holds_fast_path:
            self._holds_fast_path = wanted
            if wanted:
                FAST_PATH.hold()
            else:
                FAST_PATH.release()

    def settle(self, iteration: int) -> None:
        """Be told that what was seen in an iteration is going to be logged."""
        group = self._weight_group if open_session.weights_are_reduced else None
        if group == self._weights_merged_over:
            return
        self._weights_merged_over = group
        for _, live in self._attached:
            observer = live.observers.get("weight")
            if observer is not None:
                observer.group = group
        self._session.collector.regrouped()

    def rolled(self, iteration: int) -> None:
        """Prepare for an iteration, after another one has ended."""
        if self._fp8_seen:
            self._roll_amax()
        else:
            self._tell_unseen_plans()
        if iteration != self._iteration + 1:
            self._iteration = iteration
            self._arm_all(iteration)
            return
        self._iteration = iteration
        calendar = self._calendar
        turning = {index for index in self._acting if self._attached[index].live.scheduled}
        while calendar and calendar[0][0] <= iteration:
            turning.add(heapq.heappop(calendar)[1])
        for index in sorted(turning):
            self._arm(index, iteration)
        self._hold_fast_path()

    def _tell_unseen_plans(self) -> None:
        if not self._plans_told:
            self._plans_told = True
            for _, live in self._attached:
                live.tell_unseen_plan()

    def tell_what_ran(self) -> None:
        """Tell the session which layers ran with something to do, and whether FP8 was on."""
        if not self._fp8_seen:
            self._tell_unseen_plans()
        silent = self._session.silent
        silent.ran.update(live.name for _, live in self._attached if live.ran)
        silent.forwards = max([silent.forwards, *(live.forwards for _, live in self._attached)])
        silent.fp8_seen |= self._fp8_seen
        silent.delayed_seen |= any(live.scalings() for _, live in self._attached)

    def fp8_entered(self) -> None:
        """Be told that FP8 is switched on somewhere: from now on every layer looks for itself."""
        if not self._fp8_seen:
            self._fp8_seen = True
            for index, (station, live) in enumerate(self._attached):
                if live.has_gemms:
                    live.acts = True
                    station.set_busy(live, busy=True)
                    self._acting.add(index)
            self._hold_fast_path()

    def _roll_amax(self) -> None:
        scalings = {
            (live.name, tensor, recipe): scaling
            for _, live in self._attached
            for (recipe, tensor), scaling in live.scalings().items()
        }
        shares = self._recipe is not None and self._recipe.reduce_amax
        self._sharing.share(scalings, self._session.group, anyway=shares)
        for scaling in scalings.values():
            scaling.trained.roll()
            scaling.aside.roll()

    def detach(self) -> None:
        """End the inspection: the modules get their classes back, and run as before.

        What was seen in this step is logged when it ends. A second call does nothing.

        Example::

            handle = debug_api.attach(model)
            ...
            handle.detach()
        """
        if not self._open:
            return
        self._open = False
        self.tell_what_ran()
        self._session.attached.remove(self)
        LISTENERS.discard(self)
        self._acting.clear()
        self._hold_fast_path()
        self.settle(self._iteration)
        for _, live in self._attached:
            self._session.collector.leave(live.observers.values())
            live.observers = {}
        self._let_go()

    def _let_go(self) -> None:
        self._session.collector.forget(
            observer for _, live in self._attached for observer in live.observers.values()
        )
        for station, live in self._attached:
            live.uninspect()
            station.set_busy(live, busy=live.watch is not None)
            station.leave()
        self._attached = []


def attach(
    model: nn.Module,
    *,
    name: str | None = None,
    fp8: Any = None,
    tp_group: Any = None,
    observe_eval: bool = False,
) -> AttachedModel:
    """Put a model under inspection, as the config of the open session says.

    Linear layers (also those inside of MultiheadAttention and the Conv1D of Hugging Face) are
    emulated and observed in all three GEMMs. Of other layers with parameters, what goes in, the
    weight, what comes out and its gradient are observed. A layer that has nothing to do in an
    iteration runs as it did before. Copies and pickles of the model are not attached.

    Every rank has to attach before the first `step`, if only an empty module.

    Args:
        model: the model, before or after it is wrapped for data parallelism.
        name: the beginning of the names of its layers; ``model`` where it is not given. A module
            with an attribute `name` that is a text is called so. A name that a layer of another
            attached model has gets a number.
        fp8: run all GEMMs in emulated FP8: a recipe as for `fp8_autocast`, or True.
        tp_group: process group whose ranks have shards of the weights; statistics of weights are
            merged over it. Without it each rank logs those of its own weights.
        observe_eval: collect statistics also in modules that do not train.

    Returns:
        The attached model; its `detach()` ends the inspection.

    Raises:
        InspectRuntimeError: no session is open, or a module has a class that cannot be changed or
            will change by itself.
        InspectValueError: two sections select the same layer, a module is attached already, or the
            recipe is not accepted.
        InspectAssertionError: two features modify the same tensor.
        InspectTypeError: the model is no module.

    Example::

        debug_api.initialize("config.yaml", log_dir="log")
        handle = debug_api.attach(model)
    """
    session = open_session.session
    if session is None:
        raise InspectRuntimeError("attach: call dftrace_ai.inspect.initialize first")
    if not isinstance(model, nn.Module):
        raise InspectTypeError(f"attach: a torch.nn.Module is needed, not {type(model).__name__}")
    return AttachedModel(
        session,
        model,
        name=name,
        recipe=Recipe.of(fp8),
        tp_group=tp_group,
        observe_eval=observe_eval,
    )
