"""A model under inspection: its layers get plans, and in each step those that are due act.

Loaded late, when a name of it is asked for: it needs torch.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from dftrace_ai import recorder
from dftrace_ai.inspect.attaching.custom import CustomCalls, Implementation
from dftrace_ai.inspect.attaching.dumping import TensorFiles
from dftrace_ai.inspect.attaching.fp8 import LISTENERS, AmaxSharing, Recipe, recipe_in_force
from dftrace_ai.inspect.attaching.layer import LiveLayer, PlannedLayer
from dftrace_ai.inspect.attaching.modules.attention import FAST_PATH
from dftrace_ai.inspect.attaching.modules.observed import observable_tensors
from dftrace_ai.inspect.attaching.modules.swap import Station, station_at
from dftrace_ai.inspect.collecting.collector import DEFAULT_GROUP
from dftrace_ai.inspect.collecting.observer import TensorObserver
from dftrace_ai.inspect.config import Observe, layer_plan
from dftrace_ai.inspect.config.names import TENSORS, listed
from dftrace_ai.inspect.errors import InspectRuntimeError, InspectTypeError, InspectValueError
from dftrace_ai.inspect.naming import NamedLayer, layers_of
from dftrace_ai.inspect.ranks.exchange import distributed
from dftrace_ai.inspect.session import open_session
from dftrace_ai.inspect.session.silent_sections import near

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.inspect.naming import NamedLayer
    from dftrace_ai.inspect.session.session import Session


NAMED_MOST = 8
"""A warning names so many layers."""


def _is_unready(module: nn.Module) -> bool:
    """Tell whether a module gets its parameters and its class when it first runs."""
    lazy = isinstance(module, LazyModuleMixin)
    return lazy and any(is_lazy(one) for one in module.parameters(recurse=False))


# The weight of a layer, without computing it where a parametrization computes it.


def _place_of(layer: NamedLayer) -> tuple[nn.Module, str]:
    """The module that has the weight of a layer, and under which name."""
    if layer.kind == "attention" and layer.part == "out_proj":
        return cast("nn.Module", layer.module.out_proj), "weight"
    return layer.module, f"{layer.part}_weight" if layer.kind == "attention" else "weight"


def _stored_weight(layer: NamedLayer) -> Any:
    """Return the weight as it is stored, None where it is computed whenever it is asked for."""
    holder, part = _place_of(layer)
    return holder._parameters.get(part, vars(holder).get(part))


def _what_is_the_weight(layer: NamedLayer) -> Any:
    """Return the object that two layers share which have the same weight."""
    holder, part = _place_of(layer)
    if parametrize.is_parametrized(holder, part):
        return cast("nn.ModuleDict", holder.parametrizations)[part]
    return getattr(holder, part)


class _Plans:
    """What is to be done with the layers of a model; nothing is changed by it."""

    def __init__(
        self, session: Session, layers: list[NamedLayer], recipe: Recipe | None, tp_group: Any
    ) -> None:
        self._session = session
        self._tp_group = tp_group
        self._recipe = recipe
        self._unreached: dict[str, list[NamedLayer]] = {}
        self.layers = self._planned(layers)
        for one in self.layers:
            if one.plan.ignored:
                ignored = f"{listed(one.plan.ignored)} cannot act"
                self._unreached.setdefault(ignored, []).append(one.layer)

    def _planned(self, layers: list[NamedLayer]) -> list[PlannedLayer]:
        """Work everything out; nothing is changed yet, so that an error leaves nothing behind."""
        session = self._session
        infos = [layer.info for layer in layers]
        selector = session.config.selector(infos)
        made: dict[int, Implementation] = {}
        files = TensorFiles(session.log_dir, session.rank)
        weights: dict[int, Any] = {}
        planned = []
        for layer, info in zip(layers, infos, strict=True):
            if _is_unready(layer.module):
                raise InspectRuntimeError(
                    f"{layer.name}: a {info.class_name} changes its class when it first runs; run "
                    "the model once before `attach`"
                )
            present = vars(layer.module).get("_inspect_station")
            live = present.layers.get(layer.part) if isinstance(present, Station) else None
            if live is not None and live.inspected:
                raise InspectValueError(f"{live.name}: the module is attached already")
            plan = layer_plan(selector.section_of(info), info)
            if self._recipe is not None:
                plan.check_recipe(self._recipe.name)
            observers = self._observers(layer, plan.observe, weights)
            for use in plan.custom:
                if id(use) not in made:
                    made[id(use)] = Implementation.of(use, self._tp_group, files)
            uses = [made[id(use)] for use in plan.custom]
            custom = CustomCalls(
                layer.name, uses, plan.modify, session.broke, has_gemms=info.has_gemms
            )
            custom.arm(session.iteration, strict=True)
            planned.append(PlannedLayer(layer, plan, observers, custom))
        self._selector, self._infos = selector, infos
        return planned

    def _observers(
        self, layer: NamedLayer, wanted: Iterable[Observe], weights: dict[int, Any]
    ) -> dict[str, TensorObserver]:
        by_tensor: dict[str, list[Observe]] = {}
        for observe in wanted:
            by_tensor.setdefault(observe.tensor, []).append(observe)
        known = TENSORS if layer.kind != "other" else observable_tensors(layer.module)
        unseen = tuple(tensor for tensor in by_tensor if tensor not in known)
        if unseen:
            self._unreached.setdefault(f"{listed(unseen)} cannot be seen", []).append(layer)
        observers = {}
        for tensor, observes in by_tensor.items():
            if tensor in unseen:
                continue
            group: str | None = DEFAULT_GROUP
            if tensor == "weight":
                weight = _what_is_the_weight(layer)
                if id(weight) in weights:
                    # Tied: it appears under the name of the first layer that has it.
                    continue
                if weight is not None:
                    weights[id(weight)] = weight
                group = None
            observers[tensor] = TensorObserver(
                layer.name, tensor, observes, group, self._session.failed
            )
        return observers

    def tell(self) -> None:
        """Tell of what cannot be done, and the session which sections have layers."""
        session = self._session
        if lacking := recorder.lack():
            session.log.write(f"no tensor is looked at: {lacking}.", logging.WARNING)
            return
        for what, layers in self._unreached.items():
            names = [f"{layer.name} ({layer.info.class_name})" for layer in layers]
            session.log.write(
                f"{what} on these layers, whose GEMMs are not reached: {first_of(names)}.",
                logging.WARNING,
            )
        named = {info.name: info for info in self._infos}
        sections = {one.layer.name: one.plan.section for one in self.layers if one.plan.section}
        session.silent.attached(named, sections)
        # Of several ranks, another one may have the layer.
        level = logging.WARNING if distributed() is None else logging.INFO
        for section, missing in self._selector.unmatched_names():
            place = f"{section.name}.layers.exact_layer_names"
            close = near([missing], named)
            message = f"{place}: no layer is called {missing}{close and '; '}{close}."
            session.log.write(message, level)
            if level == logging.WARNING:
                session.silent.told_of(section.name)


def first_of(names: list[str]) -> str:
    """Return names as a list in words, the first of them where they are many."""
    if len(names) > NAMED_MOST:
        names = [*names[:NAMED_MOST], f"{len(names) - NAMED_MOST} more"]
    return listed(names)


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
        plans = _Plans(session, self._named(model, name), recipe, tp_group)
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
            one,
            recipe=self._recipe,
            observe_eval=self._observe_eval,
            say=session.log.write,
            rings=session.rings,
        )
        self._attached.append(_Attached(station, live))
        for observer in one.observers.values():
            is_weight = observer.tensor == "weight"
            find = partial(_stored_weight, one.layer) if is_weight else None
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

    def settle(self) -> None:
        """Be told that what was seen up to now is going to be logged."""
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
        silent.delayed_seen |= any(live.scalings for _, live in self._attached)

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
            for (recipe, tensor), scaling in live.scalings.items()
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
        self.settle()
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
